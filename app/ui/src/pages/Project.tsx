/** A project: is it learning, what is under way, what does it confuse, and what to do next. */
import { Loaded } from "../components/Loaded";
import { useJobs } from "../hooks/useJobs";
import { usePools } from "../hooks/usePools";
import { useAdvice, useEnsembles, useLearningCurve, useProject } from "../hooks/useProject";
import { useRounds } from "../hooks/useRounds";
import type { Project } from "../api/types";
import { AdvicePart } from "./Project/AdvicePart";
import { Backtests } from "./Project/Backtests";
import { DeleteProject } from "./Project/DeleteProject";
import { EvaluationPart } from "./Project/EvaluationPart";
import { Heading } from "./Project/Heading";
import { KeyFigures } from "./Project/KeyFigures";
import { LabelsPart } from "./Project/LabelsPart";
import { Learning } from "./Project/Learning";
import { Now } from "./Project/Now";
import { Rounds } from "./Project/Rounds";
import { Schedules } from "./Project/Schedules";
import { ProjectSettings } from "./Project/ProjectSettings";
import { Versions } from "./Project/Versions";
import "./Project.css";

export default function ProjectPage({ projectId }: { projectId: string }) {
  const project = useProject(projectId);
  return (
    <Loaded of={project} lines={8}>
      {(known) => <Overview project={known} onChange={project.reload} />}
    </Loaded>
  );
}

function Overview({ project, onChange }: { project: Project; onChange: () => void }) {
  const { id } = project;
  const pools = usePools(id);
  const rounds = useRounds(id);
  const jobs = useJobs(id);
  const curve = useLearningCurve(id);
  const ensembles = useEnsembles(id);
  const advice = useAdvice(id);
  return (
    <div className="project">
      <Heading project={project} pools={pools} rounds={rounds} curve={curve.data} onJob={jobs.reload} />
      <KeyFigures
        project={project}
        pools={pools.data}
        curve={curve.data}
        ensembles={ensembles.data}
        advice={advice.data}
      />
      <hr />
      <div className="split">
        <Learning
          project={project}
          curve={curve}
          advice={advice.data}
          hasPools={pools.data && pools.data.length > 0}
        />
        <div className="aside">
          <Now jobs={jobs} ensembles={ensembles.data} rounds={rounds.data} />
          <AdvicePart projectId={id} advice={advice} />
          <Versions
            project={project}
            ensembles={ensembles}
            onChange={() => {
              onChange();
              ensembles.reload();
            }}
          />
        </div>
      </div>
      <hr />
      <div className="columns">
        <EvaluationPart project={project} ensembles={ensembles.data} />
        <LabelsPart project={project} />
      </div>
      <hr />
      <div className="columns">
        <Rounds projectId={id} rounds={rounds} />
        <Schedules projectId={id} pools={pools.data} />
      </div>
      <hr />
      <Backtests project={project} pools={pools.data} onAdopted={onChange} />
      <ProjectSettings project={project} onChange={onChange} />
      <DeleteProject project={project} />
    </div>
  );
}

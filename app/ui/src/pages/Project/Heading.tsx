/** The name, what there is, and what one does next: label, train, rank. */
import { Link } from "wouter";
import type { LearningCurve as Curve, Pool, Project, Round } from "../../api/types";
import { count, many } from "../../formats";
import type { Resource } from "../../hooks/useResource";
import { LabelAction } from "./LabelAction";
import { RankAction } from "./RankAction";
import { TrainAction } from "./TrainAction";

interface Props {
  project: Project;
  pools: Resource<Pool[]>;
  rounds: Resource<Round[]>;
  curve: Curve | undefined;
  onJob: () => void;
}

export function Heading({ project, pools, rounds, curve, onJob }: Props) {
  return (
    <header className="between">
      <div>
        <h1>{project.name}</h1>
        <p className="quiet counts">
          {taskWords(project)}
          {pools.data !== undefined && (
            <>
              {" · "}
              <Link href={`/p/${project.id}/pools`}>{poolWords(pools.data)}</Link>
            </>
          )}
          {curve !== undefined && ` · ${measuredWords(curve)}`}
        </p>
      </div>
      <div className="row">
        <LabelAction project={project} pools={pools.data} rounds={rounds} />
        <TrainAction projectId={project.id} pools={pools.data} onJob={onJob} />
        <RankAction project={project} pools={pools.data} />
      </div>
    </header>
  );
}

function taskWords({ task }: Project): string {
  if (task.kind === "classification") return many(task.classes.length, "class", "classes");
  return (task.outputs ?? 1) === 1 ? "a number" : many(task.outputs ?? 1, "number");
}

export function poolWords(pools: readonly Pool[]): string {
  const n = pools
    .filter(({ purpose }) => purpose === "candidates")
    .reduce((sum, { n_rows }) => sum + n_rows, 0);
  return pools.length === 0 ? "no pool yet" : many(n, "candidate");
}

function measuredWords({ metric_set, points }: Curve): string {
  const n = points.at(-1)?.metrics.n ?? 0;
  if (metric_set === "evaluation") return `measured on ${count(n)} kept aside`;
  if (metric_set === "holdout") return `measured on ${many(n, "label")} held out`;
  return points.length === 0 ? "not trained yet" : "not measured: no rows are kept aside";
}

/** After the last item: the training as it goes on, and the next round when there is one. */
import { useState } from "react";
import { api } from "../../api/client";
import type { Job, Project, Round } from "../../api/types";
import { ButtonLink } from "../../components/Button";
import { JobLine } from "../../components/JobLine";
import { Loaded } from "../../components/Loaded";
import { many } from "../../formats";
import { useEvents } from "../../hooks/useEvents";
import { useResource } from "../../hooks/useResource";
import { isActive } from "../../jobs";

interface Props {
  project: Project;
  round: Round;
  nUnsent: number;
}

export function Ending({ project, round, nUnsent }: Props) {
  const next = useNextRound(round);
  const [job, setJob] = useState<Job | null>(null);
  const isComplete = round.status === "complete";
  const trains = isComplete && round.ensemble_id !== null;
  return (
    <section className="stage words ending" aria-label="The end of the round">
      <h2>
        {isComplete ? "Round complete." : "This round was closed."}
        {trains && trainingWords(job)}
      </h2>
      {!isComplete && <p>What was labelled is kept.</p>}
      {nUnsent > 0 && <p>{many(nUnsent, "label")} still on the way: they count in the project.</p>}
      {trains && round.ensemble_id !== null && <Training ensembleId={round.ensemble_id} onEnd={setJob} />}
      {next !== null && next.status === "ranking" && (
        <p role="status">Round {next.number} is being chosen. It can be labelled in a moment.</p>
      )}
      <div className="row">
        {next !== null && next.status === "open" && (
          <ButtonLink href={`/p/${project.id}/label/${next.id}`} kind="primary">
            Label round {next.number}
          </ButtonLink>
        )}
        <ButtonLink href={`/p/${project.id}`}>To the project</ButtonLink>
      </div>
    </section>
  );
}

/** Till the training has ended, nothing is known of it but that it is under way. */
function trainingWords(job: Job | null): string {
  if (job === null) return " Training.";
  return job.status === "succeeded" ? " A new version is trained." : " The training did not succeed.";
}

function Training({ ensembleId, onEnd }: { ensembleId: string; onEnd: (job: Job) => void }) {
  const training = useResource(ensembleId, async (signal) => {
    const ensemble = await api.get("/v1/ensembles/{ensemble_id}", {
      path: { ensemble_id: ensembleId },
      signal,
    });
    const job = await api.get("/v1/jobs/{job_id}", { path: { job_id: ensemble.job_id }, signal });
    if (!isActive(job)) onEnd(job);
    return { ensemble, job };
  });
  return (
    <Loaded of={training} lines={2}>
      {({ ensemble, job }) => (
        <JobLine job={job} title={`Training version ${ensemble.version}`} onEnd={onEnd} />
      )}
    </Loaded>
  );
}

/** The newest round, if it is newer than this one; told of when it opens. */
function useNextRound(round: Round): Round | null {
  const newest = useResource(`next round after ${round.id}`, async (signal) => {
    const path = { project_id: round.project_id };
    const query = { order: "desc", limit: 1 } as const;
    return (await api.get("/v1/projects/{project_id}/rounds", { path, query, signal })).items[0] ?? null;
  });
  useEvents((news) => {
    const isNewer =
      news.event === "round" && news.data.project_id === round.project_id && news.data.number > round.number;
    if (isNewer || news.event === "ready") newest.reload();
  });
  const found = newest.data ?? null;
  return found !== null && found.number > round.number ? found : null;
}

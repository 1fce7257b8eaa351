/** What runs and waits for this project, live; and what failed last, until something else is done. */
import type { Ensemble, Job, Round } from "../../api/types";
import { JobLine } from "../../components/JobLine";
import { Loaded } from "../../components/Loaded";
import type { Resource } from "../../hooks/useResource";
import { isActive, jobTitle } from "../../jobs";

interface Props {
  jobs: Resource<Job[]>;
  ensembles: Ensemble[] | undefined;
  rounds: Round[] | undefined;
}

/** Those under way, the oldest first; or the newest, where it failed. */
export function shownJobs(jobs: readonly Job[]): Job[] {
  const whole = jobs.filter(({ parent_id }) => parent_id === null || parent_id === undefined);
  const active = whole.filter(isActive).reverse();
  const [newest] = whole;
  return newest !== undefined && newest.status === "failed" ? [...active, newest] : active;
}

export function Now({ jobs, ensembles, rounds }: Props) {
  return (
    <section aria-labelledby="now">
      <h2 id="now">Now</h2>
      <Loaded of={jobs}>
        {(known) => {
          const shown = shownJobs(known);
          if (shown.length === 0) return <p className="quiet">Nothing is under way.</p>;
          return (
            <div className="stack">
              {shown.map((job) => (
                <JobLine
                  key={job.id}
                  job={job}
                  title={titleOf(job, ensembles)}
                  cause={causeOf(job, ensembles, rounds)}
                  onEnd={jobs.reload}
                />
              ))}
            </div>
          );
        }}
      </Loaded>
    </section>
  );
}

function titleOf(job: Job, ensembles: Ensemble[] | undefined): string {
  const made = ensembles?.find(({ job_id }) => job_id === job.id);
  return made === undefined ? jobTitle(job.kind) : `Training version ${made.version}`;
}

/** "from round 4", "by a schedule". */
function causeOf(
  job: Job,
  ensembles: Ensemble[] | undefined,
  rounds: Round[] | undefined,
): string | undefined {
  const origin = ensembles?.find(({ job_id }) => job_id === job.id)?.origin;
  if (origin === undefined) return undefined;
  const [kind, id] = origin.split(":");
  if (kind === "schedule") return "by a schedule";
  const round = kind === "round" ? rounds?.find((each) => each.id === id) : undefined;
  return round === undefined ? undefined : `from round ${round.number}`;
}

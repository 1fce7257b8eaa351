/** How far the making of a project is; and where something was refused, what is there and what can be done. */
import { Link } from "wouter";
import { sentence } from "../../api/problem";
import { Button, ButtonLink } from "../../components/Button";
import { JobLine } from "../../components/JobLine";
import { Notice } from "../../components/Notice";
import { Progress } from "../../components/Progress";
import { bytes, duration } from "../../formats";
import { secondsLeft } from "../../jobs";
import type { Plan, Making, Stage } from "./useMaking";

interface Props {
  making: Making;
  plan: Plan;
  onRetry: () => void;
  onMend: () => void;
  onDiscard: () => void;
  onCancel: () => void;
}

const STAGES: Stage[] = ["project", "rows", "evaluation", "training", "round"];

export function MakingView({ making, plan, onRetry, onMend, onDiscard, onCancel }: Props) {
  const at = STAGES.indexOf(making.stage);
  const wanted = STAGES.filter((stage) => isWanted(stage, plan, making));
  return (
    <div className="making stack">
      <ol className="stages" aria-label="What is made">
        {wanted.map((stage) => {
          const i = STAGES.indexOf(stage);
          const isNow = i === at && making.status !== "done";
          return (
            <li key={stage} className={isNow ? undefined : "quiet"} aria-current={isNow ? "step" : undefined}>
              <span className="figures" aria-hidden="true">
                {i < at || making.status === "done"
                  ? "✓"
                  : isNow
                    ? making.status === "failed"
                      ? "✕"
                      : "…"
                    : "·"}
              </span>{" "}
              {titleOf(stage, plan)}
              {(i < at || making.status === "done") && <span className="hidden"> (done)</span>}
            </li>
          );
        })}
      </ol>
      {making.status === "busy" && <Under making={making} onCancel={onCancel} />}
      {making.status === "busy" && making.stage === "training" && making.project !== null && (
        <p className="quiet">
          The round opens when it has learnt from your labels. You may{" "}
          <Link href={`/p/${making.project.id}`}>look at the project</Link> meanwhile.
        </p>
      )}
      {making.status === "failed" && (
        <Failed making={making} onRetry={onRetry} onMend={onMend} onDiscard={onDiscard} />
      )}
    </div>
  );
}

function isWanted(stage: Stage, { draft, file, evaluation }: Plan, making: Making): boolean {
  if (stage === "project") return true;
  if (file === null) return false;
  if (stage === "evaluation") return evaluation !== null;
  if (stage === "training")
    return making.stage === "training" || draft.labelColumn !== "" || hasLabels(draft);
  return true;
}

function hasLabels({ roles }: Plan["draft"]): boolean {
  return Object.values(roles).includes("label");
}

function titleOf(stage: Stage, { draft, evaluation }: Plan): string {
  switch (stage) {
    case "project":
      return `Make the project “${draft.name.trim()}”`;
    case "rows":
      return `Send and read ${draft.fileName}`;
    case "evaluation":
      return `Send and read ${evaluation?.name ?? "the rows to measure on"}`;
    case "training":
      return "Learn from the labels that came with it";
    case "round":
      return `Choose the first ${draft.k} to label`;
  }
}

function Under({ making, onCancel }: { making: Making; onCancel: () => void }) {
  if (making.job !== null) return <JobLine key={making.job.id} job={making.job} />;
  const isSending = making.stage === "rows" || making.stage === "evaluation";
  const last = making.samples.at(-1);
  if (!isSending || last === undefined) return null;
  const left = secondsLeft(making.samples, last.at);
  const isSent = last.done >= last.total;
  return (
    <div className="stack">
      <Progress done={last.done} total={last.total} label="Sending the file">
        {isSent
          ? "sent; the service looks at its first rows"
          : `${bytes(last.done)} of ${bytes(last.total)}${left === null ? "" : ` · ${duration(left)} left`}`}
      </Progress>
      {!isSent && (
        <div>
          <Button onClick={onCancel}>Stop sending</Button>
        </div>
      )}
    </div>
  );
}

type FailedProps = Pick<Props, "making" | "onRetry" | "onMend" | "onDiscard">;

function Failed({ making, onRetry, onMend, onDiscard }: FailedProps) {
  const { project, stage, error } = making;
  const isStopped = error instanceof DOMException && error.name === "AbortError";
  const isOfFile = stage === "rows" || stage === "evaluation";
  return (
    <>
      <Notice kind={isStopped ? "warn" : "bad"}>
        <p>{isStopped ? "You stopped it." : sentence(error)}</p>
      </Notice>
      {project !== null && (
        <p>
          {stage === "rows"
            ? `The project “${project.name}” is there, but has no rows yet. Mend the file or what you said of it, and it is used for the same project; or delete it.`
            : `The project “${project.name}” and its rows are there; only this step is missing.`}
        </p>
      )}
      <div className="row">
        <Button kind="primary" onClick={isOfFile && !isStopped ? onMend : onRetry}>
          {isOfFile && !isStopped ? "Take another file" : "Try again"}
        </Button>
        {isOfFile && !isStopped && <Button onClick={onRetry}>Try the same again</Button>}
        {(!isOfFile || isStopped) && <Button onClick={onMend}>Change what I said</Button>}
        {project !== null && (
          <>
            <ButtonLink href={`/p/${project.id}`}>Open it as it is</ButtonLink>
            <Button kind="danger" onClick={onDiscard}>
              Delete the project
            </Button>
          </>
        )}
      </div>
    </>
  );
}

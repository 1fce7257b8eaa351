/** A job under way: what it is, how far, how long yet; and once it has ended, how. */
import { useEffect, useState, type ReactNode } from "react";
import { api } from "../api/client";
import { sentence } from "../api/problem";
import type { Job } from "../api/types";
import { duration } from "../formats";
import { useLiveJob } from "../hooks/useLiveJob";
import { useForbidden } from "../hooks/useMe";
import { isActive, jobTitle, progressWords, secondsLeft, trouble } from "../jobs";
import { Button } from "./Button";
import "./JobLine.css";
import { Progress } from "./Progress";

interface Props {
  job: Job;
  /** In place of what jobs of its kind are called: "Training version 5". */
  title?: ReactNode;
  /** Where it comes from: "from round 4". */
  cause?: ReactNode;
  /** Told once, when it has ended. */
  onEnd?: (job: Job) => void;
}

export function JobLine({ job: given, title, cause, onEnd }: Props) {
  const { job, samples, heardAt, set } = useLiveJob(given, onEnd);
  const forbidden = useForbidden("write");
  const [error, setError] = useState<string>();
  const [isBusy, setBusy] = useState(false);
  const isUnderWay = isActive(job);
  const now = useNow(isUnderWay);
  const name = title ?? jobTitle(job.kind);

  async function ask(what: "cancel" | "retry"): Promise<void> {
    setBusy(true);
    setError(undefined);
    try {
      const path = { job_id: job.id };
      set(
        await (what === "cancel"
          ? api.post("/v1/jobs/{job_id}/cancel", { path })
          : api.post("/v1/jobs/{job_id}/retry", { path })),
      );
    } catch (reason) {
      setError(sentence(reason));
    } finally {
      setBusy(false);
    }
  }

  const unusual = trouble(job, heardAt, now);
  return (
    <div className="job-line">
      <div className="about">
        <p>
          {name}
          {cause !== undefined && <span className="quiet"> · {cause}</span>}
        </p>
        {isUnderWay ? (
          <Button
            kind="link"
            forbidden={forbidden}
            isBusy={isBusy || job.cancel_requested}
            onClick={() => void ask("cancel")}
            aria-label={`Cancel: ${typeof name === "string" ? name : jobTitle(job.kind)}`}
          >
            {job.cancel_requested ? "Stopping…" : "Cancel"}
          </Button>
        ) : (
          (job.status === "failed" || job.status === "cancelled") && (
            <Button kind="link" forbidden={forbidden} isBusy={isBusy} onClick={() => void ask("retry")}>
              Retry
            </Button>
          )
        )}
      </div>
      {isUnderWay && (
        <Progress
          done={job.progress?.done ?? 0}
          total={job.progress?.total ?? 0}
          label={typeof name === "string" ? name : jobTitle(job.kind)}
        >
          {job.status === "queued" && job.progress === null
            ? "waits for a worker"
            : progressWords(job, secondsLeft(samples, now))}
        </Progress>
      )}
      {isUnderWay && (job.progress?.total ?? 0) > 1 && job.progress?.message !== "" && (
        <p className="quiet small">{job.progress?.message}</p>
      )}
      <div role="status">
        {unusual !== null && <p className="warn small">{unusual}</p>}
        {job.status === "succeeded" && <p className="good small">Done{took(job)}</p>}
        {job.status === "cancelled" && <p className="quiet small">Cancelled.</p>}
        {job.status === "failed" && <p className="bad small">{reasonOf(job)}</p>}
      </div>
      {error !== undefined && (
        <p className="bad small" role="alert">
          {error}
        </p>
      )}
    </div>
  );
}

function took({ started_at, finished_at }: Job): string {
  if (started_at === null || finished_at === null) return ".";
  return ` in ${duration((Date.parse(finished_at) - Date.parse(started_at)) / 1000)}.`;
}

function reasonOf({ error }: Job): string {
  const known = [error?.title, error?.detail].filter((part) => typeof part === "string" && part !== "");
  return known.length > 0 ? `${known.join(": ")}` : "It failed, and nothing is known of why.";
}

/** The time, anew each second while something is under way. */
function useNow(isOn: boolean): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    if (!isOn) return;
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, [isOn]);
  return now;
}

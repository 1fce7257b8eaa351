/** What jobs are called, how far they are and how long they have left. */
import type { Job } from "./api/types";
import { count, duration } from "./formats";

const TITLES: Record<string, string> = {
  train_ensemble: "Training",
  rank_pool: "Ranking",
  ingest_pool: "Reading a file",
  predict: "Predicting",
  backtest: "Backtest",
  simulate: "Simulation",
  propose: "Next design",
  delete_objects: "Deleting files",
  sweep_storage: "Tidying storage",
};

const UNITS: Record<string, string> = {
  train_ensemble: "steps",
  rank_pool: "rows",
  score_shard: "rows",
  ingest_pool: "rows",
  predict: "rows",
  backtest: "steps",
  simulate: "truths",
};

export function jobTitle(kind: string): string {
  const known = TITLES[kind];
  if (known !== undefined) return known;
  const words = kind.replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

export function isActive({ status }: Pick<Job, "status">): boolean {
  return status === "queued" || status === "running";
}

/** A progress, and when this tab was told of it, in milliseconds. */
export interface Sample {
  at: number;
  done: number;
  total: number;
}

export const KEPT_SAMPLES = 10;

/** The last ten of one phase: a job that begins something else, or again, is timed anew. */
export function withSample(samples: readonly Sample[], next: Sample): Sample[] {
  const last = samples.at(-1);
  if (last === undefined || last.total !== next.total || next.done < last.done) return [next];
  if (last.done === next.done) return [...samples];
  return [...samples, next].slice(-KEPT_SAMPLES);
}

/** Seconds until the phase ends, at the pace of the samples; null where they do not tell. */
export function secondsLeft(samples: readonly Sample[], now: number): number | null {
  const [first, last] = [samples[0], samples.at(-1)];
  if (first === undefined || last === undefined || last.total <= 0) return null;
  const [done, seconds] = [last.done - first.done, (last.at - first.at) / 1000];
  if (done <= 0 || seconds <= 0) return null;
  const left = ((last.total - last.done) * seconds) / done;
  return Math.max(0, left - (now - last.at) / 1000);
}

/** "310 of 500 steps · 0:12 left"; what is counted in ones, such as "computing", has only its message. */
export function progressWords(job: Pick<Job, "kind" | "progress">, left: number | null): string {
  const { done = 0, total = 0, message = "" } = job.progress ?? {};
  if (total <= 1) return message;
  const unit = total < 10 ? "parts" : (UNITS[job.kind] ?? "");
  const how = `${count(Math.floor(done))} of ${count(total)} ${unit}`.trim();
  return left === null || done >= total ? how : `${how} · ${duration(left)} left`;
}

/** Silent for longer than a lease, a worker has lost its job. */
const SILENT_SECONDS = 45;

/** What is unusual about a job under way, in words; null where nothing is. */
export function trouble(
  job: Pick<Job, "status" | "attempts" | "max_attempts" | "error" | "heartbeat_at" | "run_at">,
  heardAt: number,
  now: number,
): string | null {
  const attempt = `attempt ${job.attempts + (job.status === "queued" ? 1 : 0)} of ${job.max_attempts}`;
  const why = typeof job.error?.title === "string" ? job.error.title.toLowerCase() : "it failed";
  if (job.status === "queued" && job.attempts > 0) {
    const pause = (Date.parse(job.run_at) - now) / 1000;
    return `${why}, trying again${pause > 1 ? ` in ${duration(pause)}` : ""} · ${attempt}`;
  }
  if (job.status !== "running") return null;
  // By both clocks, since that of the service may differ from this one.
  const silent = Math.min(now - Date.parse(job.heartbeat_at ?? job.run_at), now - heardAt) / 1000;
  if (silent > SILENT_SECONDS)
    return `no word from its worker for ${duration(silent)}; if it is lost, another tries again`;
  return job.attempts > 1 ? `${why}, trying again · ${attempt}` : null;
}

/** One job as it stands now, when it was last heard of, and how fast it goes. */
import { useEffect, useState } from "react";
import { api } from "../api/client";
import type { Job } from "../api/types";
import { isActive, withSample, type Sample } from "../jobs";
import { useEvents } from "./useEvents";

interface Live {
  job: Job;
  samples: Sample[];
  heardAt: number;
}

const NONE: Sample[] = [];

export function useLiveJob(given: Job, onEnd?: (job: Job) => void): Live & { set: (job: Job) => void } {
  const [live, setLive] = useState<Live>(() =>
    after({ job: given, samples: NONE, heardAt: Date.now() }, given),
  );
  const set = (job: Job) => {
    if (isActive(live.job) && !isActive(job)) onEnd?.(job);
    setLive((before) => after(before, job));
  };

  useEffect(() => setLive((before) => (before.job === given ? before : after(before, given))), [given]);
  useEvents((news) => {
    if (news.event === "job" && news.data.id === given.id) set(news.data);
    // What was told while the stream was closed is not told again.
    if (news.event === "ready" && isActive(live.job)) {
      void api.get("/v1/jobs/{job_id}", { path: { job_id: given.id } }).then(set, () => undefined);
    }
  });
  return { ...live, set };
}

function after(before: Live, job: Job): Live {
  const at = Date.now();
  const samples = before.job.id === job.id && before.job.attempts === job.attempts ? before.samples : NONE;
  if (job.progress === null) return { job, samples, heardAt: at };
  return { job, samples: withSample(samples, { at, ...plain(job.progress) }), heardAt: at };
}

function plain({ done = 0, total = 0 }: NonNullable<Job["progress"]>) {
  return { done, total };
}

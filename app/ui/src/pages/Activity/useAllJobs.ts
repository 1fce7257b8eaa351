/** Jobs of all projects that match a filter, page after page, kept up by what the service tells. */
import { useState } from "react";
import { api } from "../../api/client";
import type { Job } from "../../api/types";
import { useEvents } from "../../hooks/useEvents";
import { merged } from "../../hooks/useJobs";
import { useResource, type Resource } from "../../hooks/useResource";

export interface Wanted {
  status?: Job["status"];
  kind?: string;
  project_id?: string;
}

const PAGE = 25;

interface Older {
  address: string;
  items: Job[];
  next: string | null;
}

export function useAllJobs(wanted: Wanted): {
  jobs: Resource<Job[]>;
  next: string | null;
  showMore: () => Promise<void>;
} {
  const address = `jobs ${wanted.status ?? ""} ${wanted.kind ?? ""} ${wanted.project_id ?? ""}`;
  const first = useResource(address, (signal) =>
    api.get("/v1/jobs", { query: { ...wanted, order: "desc", limit: PAGE }, signal }),
  );
  const [older, setOlder] = useState<Older>({ address: "", items: [], next: null });
  const [told, setTold] = useState<ReadonlyMap<string, Job>>(new Map());
  useEvents((news) => {
    if (news.event === "ready") first.reload();
    if (news.event === "job") setTold((before) => new Map(before).set(news.data.id, news.data));
  });

  const isOurs = older.address === address;
  const next = isOurs ? older.next : (first.data?.next_cursor ?? null);
  const listed = [...(first.data?.items ?? []), ...(isOurs ? older.items : [])];
  const all = merged(listed, told).filter((job) => matches(job, wanted));

  async function showMore(): Promise<void> {
    if (next === null) return;
    const page = await api.get("/v1/jobs", {
      query: { ...wanted, order: "desc", limit: PAGE, cursor: next },
    });
    setOlder((before) => ({
      address,
      items: [...(before.address === address ? before.items : []), ...page.items],
      next: page.next_cursor,
    }));
  }

  return { jobs: { ...first, data: first.data === undefined ? undefined : all }, next, showMore };
}

/** Told of a job that a filter leaves out, the list leaves it out, too; parts are told by the job they are of. */
export function matches(job: Job, { status, kind, project_id }: Wanted): boolean {
  return (
    (status === undefined || job.status === status) &&
    (kind === undefined || job.kind === kind) &&
    (project_id === undefined || job.project_id === project_id) &&
    typeof job.parent_id !== "string"
  );
}

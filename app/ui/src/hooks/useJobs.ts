/** The jobs of a project, newest first, kept up by what the service tells. */
import { useCallback, useState } from "react";
import { api } from "../api/client";
import type { Job } from "../api/types";
import { useEvents } from "./useEvents";
import { useResource, type Resource } from "./useResource";

export function useJobs(projectId: string): Resource<Job[]> {
  const listed = useResource(`/v1/projects/${projectId}/jobs`, async (signal) => {
    const query = { order: "desc", limit: 20 } as const;
    return (
      await api.get("/v1/projects/{project_id}/jobs", { path: { project_id: projectId }, query, signal })
    ).items;
  });
  const [told, setTold] = useState<ReadonlyMap<string, Job>>(new Map());
  const { reload } = listed;
  useEvents(
    useCallback(
      (news) => {
        if (news.event === "ready") reload();
        if (news.event !== "job" || news.data.project_id !== projectId) return;
        setTold((before) => new Map(before).set(news.data.id, news.data));
      },
      [projectId, reload],
    ),
  );
  return { ...listed, data: listed.data === undefined ? undefined : merged(listed.data, told) };
}

/** What was told replaces what was listed, unless the list is newer: a job does not come back from its end. */
export function merged(listed: readonly Job[], told: ReadonlyMap<string, Job>): Job[] {
  const known = new Map(listed.map((job) => [job.id, job]));
  for (const job of told.values()) {
    const before = known.get(job.id);
    const isOlder =
      before !== undefined &&
      before.finished_at !== null &&
      job.finished_at === null &&
      before.attempts >= job.attempts;
    if (!isOlder) known.set(job.id, job);
  }
  return [...known.values()].sort((a, b) => Date.parse(b.created_at) - Date.parse(a.created_at));
}

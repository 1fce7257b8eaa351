/** The pools of a project, oldest first. */
import { allItems, api } from "../api/client";
import type { Pool } from "../api/types";
import { isEndNews, isLabelNews, useReloadOn } from "./useReloadOn";
import { useResource, type Resource } from "./useResource";

export function usePools(projectId: string): Resource<Pool[]> {
  const pools = useResource(`pools ${projectId}`, (signal) =>
    allItems((cursor) =>
      api.get("/v1/projects/{project_id}/pools", {
        path: { project_id: projectId },
        query: { cursor, limit: 100 },
        signal,
      }),
    ),
  );
  useReloadOn(
    pools.reload,
    (news) => isLabelNews(news, projectId) || isEndNews(news, projectId, "ingest_pool"),
    1000,
  );
  return pools;
}

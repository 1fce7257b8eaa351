/** Where rows of a pool lie beside each other. */
import { api } from "../api/client";
import type { PoolMapData } from "../api/types";
import { isLabelNews, useReloadOn } from "./useReloadOn";
import { useResource, type Resource } from "./useResource";

export function usePoolMap(projectId: string, poolId: string | null): Resource<PoolMapData> {
  const map = useResource(poolId === null ? null : `map ${poolId}`, (signal) =>
    api.get("/v1/pools/{pool_id}/map", { path: { pool_id: poolId ?? "" }, query: { n: 2000 }, signal }),
  );
  useReloadOn(map.reload, (news) => poolId !== null && isLabelNews(news, projectId), 3000);
  return map;
}

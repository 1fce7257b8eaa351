/** The backtests of a project, newest first. */
import { api } from "../api/client";
import type { Backtest } from "../api/types";
import { isEndNews, useReloadOn } from "./useReloadOn";
import { useResource, type Resource } from "./useResource";

export function useBacktests(projectId: string): Resource<Backtest[]> {
  const backtests = useResource(`backtests ${projectId}`, async (signal) => {
    const query = { order: "desc", limit: 20 } as const;
    return (
      await api.get("/v1/projects/{project_id}/backtests", { path: { project_id: projectId }, query, signal })
    ).items;
  });
  useReloadOn(backtests.reload, (news) => isEndNews(news, projectId, "backtest"));
  return backtests;
}

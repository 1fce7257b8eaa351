/** The rounds of a project, newest first. */
import { api } from "../api/client";
import type { Round } from "../api/types";
import { isLabelNews, isRoundNews, useReloadOn } from "./useReloadOn";
import { useResource, type Resource } from "./useResource";

export function useRounds(projectId: string): Resource<Round[]> {
  const rounds = useResource(`rounds ${projectId}`, async (signal) => {
    const query = { order: "desc", limit: 50 } as const;
    const path = { project_id: projectId };
    return (await api.get("/v1/projects/{project_id}/rounds", { path, query, signal })).items;
  });
  useReloadOn(rounds.reload, (news) => isRoundNews(news, projectId) || isLabelNews(news, projectId), 1000);
  return rounds;
}

/** When a project trains by itself. */
import { api } from "../api/client";
import type { Schedule } from "../api/types";
import { isVersionNews, useReloadOn } from "./useReloadOn";
import { useResource, type Resource } from "./useResource";

export function useSchedules(projectId: string): Resource<Schedule[]> {
  const schedules = useResource(`schedules ${projectId}`, async (signal) => {
    const path = { project_id: projectId };
    return (await api.get("/v1/projects/{project_id}/schedules", { path, query: { limit: 100 }, signal }))
      .items;
  });
  useReloadOn(schedules.reload, (news) => isVersionNews(news, projectId));
  return schedules;
}

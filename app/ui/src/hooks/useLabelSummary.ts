/** How many labels there are: by class, and by who gave them. */
import { api } from "../api/client";
import type { LabelSummary } from "../api/types";
import { isLabelNews, useReloadOn } from "./useReloadOn";
import { useResource, type Resource } from "./useResource";

export function useLabelSummary(projectId: string): Resource<LabelSummary> {
  const summary = useResource(`label summary ${projectId}`, (signal) =>
    api.get("/v1/projects/{project_id}/labels/summary", { path: { project_id: projectId }, signal }),
  );
  useReloadOn(summary.reload, (news) => isLabelNews(news, projectId), 1000);
  return summary;
}

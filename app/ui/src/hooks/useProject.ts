/** A project, and what is known of how it learns. */
import { api } from "../api/client";
import type { Advice, LearningCurve as Curve, Ensemble, Project } from "../api/types";
import { isLabelNews, isVersionNews, useReloadOn } from "./useReloadOn";
import { useResource, type Resource } from "./useResource";

export function useProject(projectId: string): Resource<Project> {
  const project = useResource(`project ${projectId}`, (signal) =>
    api.get("/v1/projects/{project_id}", { path: { project_id: projectId }, signal }),
  );
  useReloadOn(project.reload, (news) => isVersionNews(news, projectId));
  return project;
}

export function useLearningCurve(projectId: string): Resource<Curve> {
  const curve = useResource(`curve ${projectId}`, (signal) =>
    api.get("/v1/projects/{project_id}/learning-curve", { path: { project_id: projectId }, signal }),
  );
  useReloadOn(curve.reload, (news) => isVersionNews(news, projectId));
  return curve;
}

/** Newest first. */
export function useEnsembles(projectId: string): Resource<Ensemble[]> {
  const ensembles = useResource(`ensembles ${projectId}`, async (signal) => {
    const query = { order: "desc", limit: 100 } as const;
    const path = { project_id: projectId };
    return (await api.get("/v1/projects/{project_id}/ensembles", { path, query, signal })).items;
  });
  useReloadOn(ensembles.reload, (news) => isVersionNews(news, projectId));
  return ensembles;
}

/** Costs the service more than the rest: read anew when there is a version, or labels have come for some seconds. */
export function useAdvice(projectId: string): Resource<Advice> {
  const advice = useResource(`advice ${projectId}`, (signal) =>
    api.get("/v1/projects/{project_id}/advice", { path: { project_id: projectId }, signal }),
  );
  useReloadOn(advice.reload, (news) => isVersionNews(news, projectId) || isLabelNews(news, projectId), 3000);
  return advice;
}

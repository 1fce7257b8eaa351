/** The simulations of an experiment, the newest first. */
import { api } from "../api/client";
import type { Simulation } from "../api/types";
import { useEvents } from "./useEvents";
import { useResource, type Resource } from "./useResource";

export function useSimulations(experimentId: string): Resource<Simulation[]> {
  const found = useResource(`/v1/experiments/${experimentId}/simulations`, async (signal) => {
    const query = { limit: 10, order: "desc" } as const;
    const path = { experiment_id: experimentId };
    return (await api.get("/v1/experiments/{experiment_id}/simulations", { path, query, signal })).items;
  });
  useEvents((news) => {
    if (news.event === "job" && news.data.kind === "simulate" && news.data.status === "succeeded")
      found.reload();
  });
  return found;
}

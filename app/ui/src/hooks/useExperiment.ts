/** An experiment with its spec. */
import { api } from "../api/client";
import type { Experiment } from "../api/types";
import { useResource, type Resource } from "./useResource";

export function useExperiment(experimentId: string | null): Resource<Experiment> {
  return useResource(experimentId === null ? null : `/v1/experiments/${experimentId}`, (signal) =>
    api.get("/v1/experiments/{experiment_id}", { path: { experiment_id: experimentId ?? "" }, signal }),
  );
}

/** What an ensemble confuses, and whether it is as sure as it should be. */
import { api } from "../api/client";
import type { Evaluation } from "../api/types";
import { useResource, type Resource } from "./useResource";

/** Null reads nothing: there is no version yet. */
export function useEvaluation(ensembleId: string | null): Resource<Evaluation> {
  return useResource(ensembleId === null ? null : `evaluation ${ensembleId}`, (signal) =>
    api.get("/v1/ensembles/{ensemble_id}/evaluation", { path: { ensemble_id: ensembleId ?? "" }, signal }),
  );
}

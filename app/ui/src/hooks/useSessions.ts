/** The sessions of an experiment, the newest first. */
import { allItems, api } from "../api/client";
import type { SessionItem } from "../api/types";
import { useResource, type Resource } from "./useResource";

export function useSessions(experimentId: string): Resource<SessionItem[]> {
  return useResource(`/v1/experiments/${experimentId}/sessions`, (signal) =>
    allItems((cursor) =>
      api.get("/v1/experiments/{experiment_id}/sessions", {
        path: { experiment_id: experimentId },
        query: { cursor, limit: 200, order: "desc" },
        signal,
      }),
    ),
  );
}

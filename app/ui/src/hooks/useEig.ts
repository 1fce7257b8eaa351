/** What designs would teach, asked for once there is a proposal: a curve takes longer than that. */
import { useEffect } from "react";
import { api } from "../api/client";
import { Problem } from "../api/problem";
import type { DesignVariable, Estimate } from "../api/types";
import { shapeOf } from "../experiments/shape";
import { useResource, type Resource } from "./useResource";

const POINTS = 61;
/** Of two lists; of two ranges each point of the map is dearer than a list's. */
const LISTED_MAP_POINTS = 144;
const MAP_POINTS = 49;
const FEWEST = 16;

/** `proposalId` is null until the first one is there; at another one the curve is read anew, and the old one stays meanwhile. */
export function useEig(
  sessionId: string,
  designs: readonly DesignVariable[],
  proposalId: string | null,
): Resource<Estimate[]> {
  const found = useResource(`/v1/sessions/${sessionId}/eig`, async (signal) => {
    if (proposalId === null) return [];
    let points = pointsOf(designs);
    for (;;) {
      try {
        const query = { points };
        return (
          await api.get("/v1/sessions/{session_id}/eig", { path: { session_id: sessionId }, query, signal })
        ).items;
      } catch (error) {
        // Too many for the time that a request has: a coarser picture is better than none.
        if (!(error instanceof Problem && error.status === 422 && points > FEWEST)) throw error;
        points = Math.max(FEWEST, Math.floor(points / 3));
      }
    }
  });
  const { reload } = found;
  useEffect(() => {
    if (proposalId !== null) reload();
  }, [proposalId, reload]);
  return found;
}

function pointsOf(designs: readonly DesignVariable[]): number {
  if (shapeOf(designs).kind !== "map") return POINTS;
  return designs.every(({ kind }) => kind === "values") ? LISTED_MAP_POINTS : MAP_POINTS;
}

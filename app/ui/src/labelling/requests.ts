/** What labelling asks of the service. */
import { addressOf, api, send } from "../api/client";
import type { Next, Round } from "../api/types";
import type { Batch, Place } from "./queue";
import type { Work } from "./reducer";
import type { Entry } from "./saying";

export interface Given extends Next {
  /** What the service's clock says less what this one says, in milliseconds. */
  clockAhead: number;
}

export interface Requests {
  next: (place: Place, count: number, features: boolean) => Promise<Given>;
  post: (batch: Batch, place: Place) => Promise<unknown>;
  release: (place: Place, rows: number[]) => Promise<unknown>;
  items: (place: Place, rows: number[], features: boolean) => Promise<Work[]>;
  round: (place: Place) => Promise<Round>;
}

/** What a browser still sends for a tab that is closed. */
const MOST_KEPT_ALIVE = 60_000;
/** A service that does not answer by then is asked again. */
const PATIENCE = 30_000;

export function labelOf({ row, saying, leadTime }: Entry, annotator: string) {
  const said =
    saying.kind === "label"
      ? { value: saying.value }
      : saying.kind === "skip"
        ? { skip: true }
        : { retract: true };
  return { row, ...said, annotator, ...(leadTime === null ? {} : { lead_time: leadTime }) };
}

async function post(path: string, id: object, body: object, headers: Record<string, string> = {}) {
  const text = JSON.stringify(body);
  return send(addressOf(path, id), {
    method: "POST",
    headers: { "Content-Type": "application/json", ...headers },
    body: text,
    keepalive: text.length < MOST_KEPT_ALIVE,
    signal: AbortSignal.timeout(PATIENCE),
  });
}

export const requests: Requests = {
  async next({ roundId, annotator }, count, features) {
    const asked = { annotator, count: Math.min(1000, count), features };
    const response = await send(addressOf("/v1/rounds/{round_id}/next", { round_id: roundId }), {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(asked),
      signal: AbortSignal.timeout(PATIENCE),
    });
    const date = Date.parse(response.headers.get("Date") ?? "");
    const clockAhead = Number.isFinite(date) ? date - Date.now() : 0;
    return { ...((await response.json()) as Next), clockAhead };
  },

  async post({ key, to, entries }, { projectId, roundId, poolId, annotator }) {
    const labels = entries.map((entry) => labelOf(entry, annotator));
    const headers = { "Idempotency-Key": key };
    const response =
      to === "round"
        ? await post("/v1/rounds/{round_id}/labels", { round_id: roundId }, { labels }, headers)
        : await post(
            "/v1/projects/{project_id}/labels",
            { project_id: projectId },
            { labels: labels.map((label) => ({ ...label, pool_id: poolId })) },
            headers,
          );
    return response.json();
  },

  release: ({ roundId, annotator }, rows) =>
    post("/v1/rounds/{round_id}/release", { round_id: roundId }, { annotator, rows }),

  async items({ poolId }, rows, features) {
    const query = { rows: rows.join(","), features, limit: rows.length };
    return (await api.get("/v1/pools/{pool_id}/items", { path: { pool_id: poolId }, query })).items;
  },

  round: ({ roundId }) => api.get("/v1/rounds/{round_id}", { path: { round_id: roundId } }),
};

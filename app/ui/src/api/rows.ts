/** Rows of a pool by their numbers, with their features: an answer has room for 100,000 of these, and others follow. */
import { api } from "./client";
import type { PoolItem } from "./types";

export async function readRows(
  poolId: string,
  rows: readonly number[],
  signal: AbortSignal,
): Promise<PoolItem[]> {
  const read: PoolItem[] = [];
  let cursor: string | null = null;
  do {
    const query: object = { rows: rows.join(","), features: true, ...(cursor === null ? {} : { cursor }) };
    const answer: { items: PoolItem[]; next_cursor: string | null } = await api.get(
      "/v1/pools/{pool_id}/items",
      { path: { pool_id: poolId }, query, signal },
    );
    read.push(...answer.items);
    cursor = answer.next_cursor;
  } while (cursor !== null);
  return read;
}

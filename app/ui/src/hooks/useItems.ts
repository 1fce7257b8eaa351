/** Rows of a pool as a long list: the pages that are seen are read, and what was read stays. */
import { useEffect, useRef, useState } from "react";
import { api } from "../api/client";
import { readRows } from "../api/rows";
import type { Pool, PoolItem } from "../api/types";
import { PAGE, pagesOf } from "../pages/Pools/windowing";

export type ItemStatus = PoolItem["status"];

export interface Filter {
  key: string;
  status: ItemStatus | "";
}

export interface Items {
  /** As far as is known: of a filtered list one more than was read, until its end was. */
  n: number;
  isEnd: boolean;
  at: (index: number) => PoolItem | undefined;
  /** Reads what is needed to show these. */
  want: (first: number, end: number) => void;
  error: unknown;
  reload: () => void;
}

interface Found {
  items: ReadonlyMap<number, PoolItem>;
  nRead: number;
  cursor: string | null;
  isEnd: boolean;
}

const NOTHING: Found = { items: new Map(), nRead: 0, cursor: null, isEnd: false };

export function useItems(pool: Pool, filter: Filter): Items {
  const isFiltered = filter.key !== "" || filter.status !== "";
  const address = `${pool.id} ${pool.n_rows} ${filter.key} ${filter.status}`;
  const [turn, setTurn] = useState(0);
  const [state, setState] = useState<{ address: string; found: Found; error: unknown }>({
    address,
    found: NOTHING,
    error: undefined,
  });
  const asked = useRef<{ name: string; pages: Set<number>; stop: AbortController } | null>(null);
  const name = `${address} ${turn}`;
  const isOurs = state.address === name;
  const found = isOurs ? state.found : NOTHING;

  useEffect(
    () => () => {
      asked.current?.stop.abort();
      asked.current = null;
    },
    [],
  );

  function begin() {
    if (asked.current?.name === name) return asked.current;
    asked.current?.stop.abort();
    asked.current = { name, pages: new Set(), stop: new AbortController() };
    return asked.current;
  }

  /** `page` is what is read only once; `ask` reads it. */
  async function read(
    page: number,
    ask: (signal: AbortSignal) => Promise<{ items: PoolItem[]; next_cursor: string | null }>,
  ): Promise<void> {
    const now = begin();
    if (now.pages.has(page)) return;
    now.pages.add(page);
    try {
      const answer = await ask(now.stop.signal);
      setState((before) => {
        const old = before.address === name ? before.found : NOTHING;
        const start = isFiltered ? old.nRead : page * PAGE;
        const items = new Map(old.items);
        answer.items.forEach((item, i) => items.set(isFiltered ? start + i : item.row, item));
        const cursor = answer.next_cursor;
        return {
          address: name,
          error: undefined,
          found: { items, nRead: old.nRead + answer.items.length, cursor, isEnd: cursor === null },
        };
      });
    } catch (error) {
      now.pages.delete(page);
      if (!now.stop.signal.aborted)
        setState((before) => ({
          address: name,
          found: before.address === name ? before.found : NOTHING,
          error,
        }));
    }
  }

  return {
    n: isFiltered ? found.nRead + (found.isEnd ? 0 : 1) : pool.n_rows,
    isEnd: !isFiltered || found.isEnd,
    at: (index) => found.items.get(index),
    want: (first, end) => {
      if (isOurs && state.error !== undefined) return; // until somebody asks again: not over and over
      if (!isFiltered) {
        for (const page of pagesOf(first, end)) {
          const start = page * PAGE;
          const rows = Array.from({ length: Math.min(PAGE, pool.n_rows - start) }, (_, i) => start + i);
          if (rows.length === 0) continue;
          void read(page, async (signal) => ({
            items: await readRows(pool.id, rows, signal),
            next_cursor: null,
          }));
        }
      } else if (!found.isEnd && end >= found.nRead) {
        const { key, status } = filter;
        const query = {
          features: true,
          limit: PAGE,
          ...(key === "" ? {} : { key }),
          ...(status === "" ? {} : { status }),
          ...(found.cursor === null ? {} : { cursor: found.cursor }),
        };
        void read(found.nRead, (signal) =>
          api.get("/v1/pools/{pool_id}/items", { path: { pool_id: pool.id }, query, signal }),
        );
      }
    },
    error: isOurs ? state.error : undefined,
    reload: () => setTurn((before) => before + 1),
  };
}

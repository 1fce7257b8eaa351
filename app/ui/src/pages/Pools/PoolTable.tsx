/** What each pool is for, and how much of it is labelled. */
import { Link } from "wouter";
import type { Pool } from "../../api/types";
import { DataTable } from "../../components/DataTable";
import { ago, bytes, count } from "../../formats";

export function PoolTable({ projectId, pools }: { projectId: string; pools: Pool[] }) {
  if (pools.length === 0) {
    return (
      <p className="quiet">
        No pool yet. A pool is a file of rows: items to choose from, or labelled ones to measure on.
      </p>
    );
  }
  return (
    <DataTable
      caption="Pools"
      isCards
      rows={pools}
      keyOf={({ id }) => id}
      columns={[
        { title: "pool", cell: ({ id, name }) => <Link href={`/p/${projectId}/pools/${id}`}>{name}</Link> },
        { title: "purpose", cell: ({ purpose }) => purpose },
        { title: "state", cell: (pool) => <State pool={pool} /> },
        { title: "rows", cell: ({ n_rows }) => count(n_rows), isNumber: true },
        { title: "labelled", cell: ({ n_labelled }) => count(n_labelled), isNumber: true },
        { title: "skipped", cell: ({ n_skipped }) => count(n_skipped), isNumber: true },
        { title: "size", cell: ({ n_bytes }) => bytes(n_bytes), isNumber: true },
        { title: "added", cell: ({ created_at }) => ago(created_at) },
      ]}
    />
  );
}

export function State({ pool: { status, error } }: { pool: Pool }) {
  if (status === "failed")
    return (
      <span className="bad">refused: {String(error?.detail ?? error?.title ?? "it could not be read")}</span>
    );
  return <>{{ empty: "waits for its file", ingesting: "is read", ready: "ready" }[status]}</>;
}

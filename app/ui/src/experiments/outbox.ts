/** An outcome between the press of a button and the service's answer: kept in the browser, so that it is never lost. */
import type { ObservationIn } from "../api/types";

export interface Kept {
  /** Its Idempotency-Key: sent twice, it is recorded once. */
  key: string;
  body: ObservationIn;
  /** What was run, for whoever reads that it waits. */
  design: Record<string, unknown>;
}

const nameOf = (sessionId: string) => `bensemble.outcome.${sessionId}`;

export function keep(sessionId: string, entry: Kept): void {
  localStorage.setItem(nameOf(sessionId), JSON.stringify(entry));
}

export function readKept(sessionId: string): Kept | null {
  const text = localStorage.getItem(nameOf(sessionId));
  if (text === null) return null;
  try {
    const found = JSON.parse(text) as Partial<Kept>;
    return typeof found.key === "string" && found.body?.outcome !== undefined ? (found as Kept) : null;
  } catch {
    return null; // written by something else: no outcome can be made of it
  }
}

/** Forgets that entry, and no other: another tab may have kept one meanwhile. */
export function forget(sessionId: string, key: string): void {
  if (readKept(sessionId)?.key === key) localStorage.removeItem(nameOf(sessionId));
}

/** Seconds until it is sent again after so many failures: 1, 2, 4 … 30. */
export function delayAfter(failures: number, retryAfter: number | null = null): number {
  return Math.max(retryAfter ?? 0, Math.min(30, 2 ** Math.max(0, failures - 1)));
}

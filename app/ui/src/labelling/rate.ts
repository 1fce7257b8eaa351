/** How fast somebody labels: "31 a minute". */
const PAUSE = 30_000;
const WINDOW = 20;

/** Of the last answers without a long pause; null of fewer than three, from which nobody would tell. */
export function perMinute(times: readonly number[], now: number): number | null {
  let from = times.length - 1;
  if (from < 0 || now - (times[from] ?? 0) > PAUSE) return null;
  while (from > 0 && times.length - from < WINDOW && (times[from] ?? 0) - (times[from - 1] ?? 0) <= PAUSE) {
    from -= 1;
  }
  const n = times.length - 1 - from;
  const taken = (times.at(-1) ?? 0) - (times[from] ?? 0);
  return n < 2 || taken === 0 ? null : Math.round((60_000 * n) / taken);
}

/** What was believed of one parameter after each trial: its median, and the bands around it. */
import type { Posterior, Trial } from "../api/types";

export interface Point {
  /** How many trials had been observed; 0 is before the first. */
  n: number;
  median: number;
  /** The central 50 and 95 %. */
  half: [number, number];
  most: [number, number];
}

type Summary = Posterior["posterior"][string];

/** Trials whose figures are computed anew just now are left out: the line goes on behind them. */
export function traceOf(
  name: string,
  prior: Posterior["posterior"] | undefined,
  trials: readonly Trial[],
): Point[] {
  const before = pointOf(0, prior?.[name]);
  const after = trials.map(({ posterior }, i) => pointOf(i + 1, posterior?.[name]));
  return [before, ...after].filter((point) => point !== null);
}

function pointOf(n: number, summary: Summary | undefined): Point | null {
  if (summary === undefined) return null;
  const at = (q: string) => Number(summary.quantiles[q]);
  const point: Point = {
    n,
    median: at("0.5"),
    half: [at("0.25"), at("0.75")],
    most: [at("0.025"), at("0.975")],
  };
  return [point.median, ...point.half, ...point.most].every(Number.isFinite) ? point : null;
}

/** How well an ensemble does: the one figure of its task, with the interval that holds the truth 95 times of 100. */
import type { CurvePoint, Metrics, Project } from "./api/types";
import { number, share } from "./formats";

export type MetricName = "accuracy" | "rmse";

export interface Measure {
  name: MetricName;
  value: number;
  /** Null where its error is not known. */
  low: number | null;
  high: number | null;
  /** Rows it rests on. */
  n: number;
  /** `estimate`: no rows were kept aside, and the labels themselves had to do. */
  measuredOn: "evaluation" | "holdout" | "estimate";
}

export const Z = 1.96;

export function metricOf(task: Project["task"]): MetricName {
  return task.kind === "classification" ? "accuracy" : "rmse";
}

export function isKnown(value: unknown): value is number {
  return typeof value === "number" && Number.isFinite(value);
}

export function measureOf(metrics: Metrics | null, name: MetricName): Measure | null {
  if (metrics === null) return null;
  const { measured_on: on, n = 0 } = metrics;
  const value = metrics[name];
  if ((on === "evaluation" || on === "holdout") && isKnown(value)) {
    const range = name === "accuracy" ? shareEnds(value, n) : ends(value, metrics.rmse_se);
    return { name, value, ...range, n, measuredOn: on };
  }
  const estimate = metrics.estimate?.[name];
  if (estimate === undefined || !isKnown(estimate.value)) return null;
  return {
    name,
    value: estimate.value,
    low: estimate.low,
    high: estimate.high,
    n: metrics.estimate?.n ?? 0,
    measuredOn: "estimate",
  };
}

interface Range {
  low: number | null;
  high: number | null;
}

/** 1.96 standard errors to either side, and not below 0. */
export function ends(value: number, se: unknown): Range {
  if (!isKnown(se)) return { low: null, high: null };
  return { low: Math.max(0, value - Z * se), high: value + Z * se };
}

/**
 * Wilson's interval of a share p of n rows: the shares q with |p − q| ≤ z √(q (1 − q) / n). The standard error at p
 * itself is 0 where all rows are right, however few they are.
 */
export function shareEnds(p: number, n: number): Range {
  if (n < 1) return { low: null, high: null };
  const shrunk = 1 + Z ** 2 / n;
  const centre = (p + Z ** 2 / (2 * n)) / shrunk;
  const half = (Z / shrunk) * Math.sqrt((p * (1 - p)) / n + (Z / (2 * n)) ** 2);
  return { low: Math.max(0, centre - half), high: Math.min(1, centre + half) };
}

/** 0.878, or 54.2 of numbers. */
export function metricText(name: MetricName, value: number | null | undefined): string {
  return name === "accuracy" ? share(value) : number(value);
}

/** "± 0.014": half of the interval, with as many decimals as the value; both ends where one is much nearer. */
export function spreadText({ name, value, low, high }: Measure): string {
  if (low === null || high === null) return "";
  const half = (high - low) / 2;
  if (name === "accuracy") {
    const isEven = Math.max(value - low, high - value) < 1.5 * Math.min(value - low, high - value);
    return isEven ? `± ${half.toFixed(3)}` : `${share(low)} to ${share(high)}`;
  }
  const decimals = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value) || 1)));
  return `± ${half.toFixed(Math.min(6, decimals))}`;
}

export interface MeasuredPoint extends Measure {
  version: number;
  nLabels: number;
}

/** The points that can be compared with the newest: measured on the same kind of rows; of equal counts the newest. */
export function comparable(points: readonly CurvePoint[], name: MetricName): MeasuredPoint[] {
  const measured = points.flatMap((point) => {
    const measure = measureOf(point.metrics, name);
    return measure === null ? [] : [{ ...measure, version: point.version, nLabels: point.n_labels }];
  });
  const newest = measured.at(-1);
  const byLabels = new Map<number, MeasuredPoint>();
  for (const point of measured) {
    if (point.measuredOn === newest?.measuredOn) byLabels.set(point.nLabels, point);
  }
  return [...byLabels.values()].sort((a, b) => a.nLabels - b.nLabels);
}

export interface ControlPoint {
  nLabels: number;
  value: number;
}

/** What random rows alone gave, as the newest point that knows it says. */
export function controlOf(points: readonly CurvePoint[], name: MetricName): ControlPoint[] {
  const newest = points.findLast(({ control }) => control.length > 0);
  return (newest?.control ?? []).flatMap((each) => {
    const [nLabels, value] = [each.n_labels, each[name]];
    return isKnown(nLabels) && isKnown(value) ? [{ nLabels, value }] : [];
  });
}

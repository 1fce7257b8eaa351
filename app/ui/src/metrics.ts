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
    return { name, value, ...ends(value, metrics[`${name}_se`], name), n, measuredOn: on };
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

/** 1.96 standard errors to either side, and no further than the metric goes. */
export function ends(
  value: number,
  se: unknown,
  name: MetricName,
): { low: number | null; high: number | null } {
  if (!isKnown(se)) return { low: null, high: null };
  const high = value + Z * se;
  return { low: Math.max(0, value - Z * se), high: name === "accuracy" ? Math.min(1, high) : high };
}

/** 0.878, or 54.2 of numbers. */
export function metricText(name: MetricName, value: number | null | undefined): string {
  return name === "accuracy" ? share(value) : number(value);
}

/** "± 0.014": half of the interval, with as many decimals as the value. */
export function spreadText({ name, value, low, high }: Measure): string {
  if (low === null || high === null) return "";
  const half = (high - low) / 2;
  if (name === "accuracy") return `± ${half.toFixed(3)}`;
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

/** How the designs of an experiment are drawn: along a line, as stems, on a map, or not at all. */
import type { DesignVariable } from "../api/types";

export type Shape =
  | { kind: "line"; x: DesignVariable }
  | { kind: "stems"; x: DesignVariable; isEven: boolean }
  | { kind: "map"; x: DesignVariable; y: DesignVariable }
  | { kind: "table" };

const MOST_STEMS = 80;

export function shapeOf(designs: readonly DesignVariable[]): Shape {
  const [x, y, ...more] = designs.filter(
    (variable) => !(variable.kind === "values" && (variable.values?.length ?? 0) < 2),
  );
  if (x === undefined || more.length > 0) return { kind: "table" };
  if (y !== undefined) return { kind: "map", x, y };
  if (x.kind === "float") return { kind: "line", x };
  if (x.kind === "integer") return { kind: "stems", x, isEven: true };
  const isEven = isEvenlySpaced(x.values ?? []);
  return isEven && (x.values?.length ?? 0) > MOST_STEMS ? { kind: "line", x } : { kind: "stems", x, isEven };
}

/** Numbers about as far apart as each other; others are drawn side by side, by their names. */
export function isEvenlySpaced(values: readonly unknown[]): boolean {
  if (values.length < 2 || !values.every((value) => typeof value === "number")) return false;
  const sorted = [...(values as number[])].sort((a, b) => a - b);
  const gaps = sorted.slice(1).map((value, i) => value - (sorted[i] ?? 0));
  return Math.max(...gaps) <= 5 * Math.min(...gaps);
}

/** Each value once, numbers in order. */
export function distinct(values: readonly unknown[]): unknown[] {
  const found = [...new Set(values)];
  return found.every((value) => typeof value === "number")
    ? found.sort((a, b) => Number(a) - Number(b))
    : found;
}

/** The number of the value that is nearest; of names the same one, or -1. */
export function nearest(values: readonly unknown[], wanted: unknown): number {
  if (typeof wanted !== "number") return values.indexOf(wanted);
  let best = -1;
  values.forEach((value, i) => {
    if (typeof value !== "number") return;
    if (best < 0 || Math.abs(value - wanted) < Math.abs(Number(values[best]) - wanted)) best = i;
  });
  return best;
}

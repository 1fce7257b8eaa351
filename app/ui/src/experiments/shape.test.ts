import { expect, test } from "vitest";
import type { DesignVariable } from "../api/types";
import { distinct, isEvenlySpaced, nearest, shapeOf } from "./shape";

function variable(name: string, given: Partial<DesignVariable>): DesignVariable {
  return { name, kind: "float", low: 0, high: 1, is_log: false, values: null, ...given };
}

const T = variable("t", {});
const N = variable("n", { kind: "integer", low: 1, high: 15 });
const DOSES = variable("dose", { kind: "values", values: [0.01, 0.1, 1, 10, 100] });
const ALWAYS = variable("lab", { kind: "values", values: [3] });

test("one variable is a line where it is continuous and stems where it is listed", () => {
  expect(shapeOf([T])).toEqual({ kind: "line", x: T });
  expect(shapeOf([N])).toEqual({ kind: "stems", x: N, isEven: true });
  expect(shapeOf([DOSES])).toEqual({ kind: "stems", x: DOSES, isEven: false });
});

test("what never varies is not drawn; two are a map, more a table", () => {
  expect(shapeOf([ALWAYS, T])).toEqual({ kind: "line", x: T });
  expect(shapeOf([T, N])).toEqual({ kind: "map", x: T, y: N });
  expect(shapeOf([T, N, DOSES])).toEqual({ kind: "table" });
});

test("names and doses over decades are not evenly spaced", () => {
  expect(isEvenlySpaced([1, 2, 3])).toBe(true);
  expect(isEvenlySpaced([0.01, 1, 100])).toBe(false);
  expect(isEvenlySpaced(["a", "b"])).toBe(false);
});

test("values are listed once, in order, and the nearest is found", () => {
  expect(distinct([3, 1, 3, 2])).toEqual([1, 2, 3]);
  expect(distinct(["b", "a", "b"])).toEqual(["b", "a"]);
  expect(nearest([1, 2, 4], 3.4)).toBe(2);
  expect(nearest(["a", "b"], "b")).toBe(1);
  expect(nearest(["a", "b"], "c")).toBe(-1);
});

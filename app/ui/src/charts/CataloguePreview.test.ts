import { expect, test } from "vitest";
import { pathsOf } from "./CataloguePreview";

const y = { name: "y", label: "P(y)" };

test("curves fill the stamp, the highest value on top", () => {
  const preview = {
    x: { name: "x", values: [0, 10], is_log: false },
    y,
    curves: [{ label: "a", values: [0, 1] }],
  };
  expect(pathsOf(preview, 106, 46)).toEqual(["M3.0 43.0L103.0 3.0"]);
});

test("names stand side by side, and what is not defined is left out", () => {
  const preview = {
    x: { name: "arm", values: ["a", "b", "c"], is_log: false },
    y,
    curves: [{ label: "a", values: [1, null, 1] }],
  };
  expect(pathsOf(preview, 106, 46)).toEqual(["M3.0 23.0L103.0 23.0"]);
});

test("a logarithmic axis is even in its logarithm", () => {
  const x = { name: "dose", values: [1, 10, 100], is_log: true };
  expect(pathsOf({ x, y, curves: [{ label: "a", values: [0, 0, 1] }] }, 106, 46)).toEqual([
    "M3.0 43.0L53.0 43.0L103.0 3.0",
  ]);
});

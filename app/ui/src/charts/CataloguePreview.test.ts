import { expect, test } from "vitest";
import { pathsOf } from "./CataloguePreview";

const y = { name: "y", label: "P(y)" };

test("curves fill the stamp, the highest value on top", () => {
  const preview = { x: { name: "x", values: [0, 10] }, y, curves: [{ label: "a", values: [0, 1] }] };
  expect(pathsOf(preview, 106, 46)).toEqual(["M3.0 43.0L103.0 3.0"]);
});

test("names stand side by side, and what is not defined is left out", () => {
  const preview = {
    x: { name: "arm", values: ["a", "b", "c"] },
    y,
    curves: [{ label: "a", values: [1, null, 1] }],
  };
  expect(pathsOf(preview, 106, 46)).toEqual(["M3.0 23.0L103.0 23.0"]);
});

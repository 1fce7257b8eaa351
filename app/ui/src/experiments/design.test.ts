import { expect, test } from "vitest";
import type { DesignVariable } from "../api/types";
import { readDesign } from "./design";

const base = { low: 1, high: 15, is_log: false, values: null };
const VARIABLES: DesignVariable[] = [
  { ...base, name: "xi", kind: "integer" },
  { ...base, name: "t", kind: "float" },
  { ...base, name: "cue", kind: "values", values: ["left", "right"] },
  { ...base, name: "dose", kind: "values", values: [0.1, 1] },
];

test("a design is read with numbers as numbers and names as names; what is empty is open", () => {
  expect(readDesign(VARIABLES, { xi: "7", t: " ", cue: "left", dose: "0.1" })).toEqual({
    values: { xi: 7, cue: "left", dose: 0.1 },
    errors: {},
  });
});

test("what was run may lie beyond the ends, but is a number of its kind", () => {
  expect(readDesign(VARIABLES, { xi: "20", t: "0,5" })).toEqual({
    values: { xi: 20 },
    errors: { t: "Write 0.5 with a point." },
  });
  expect(readDesign(VARIABLES, { xi: "7.5" }).errors).toEqual({ xi: "Enter a whole number." });
});

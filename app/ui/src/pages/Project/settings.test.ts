import { expect, test } from "vitest";
import type { Project } from "../../api/types";
import { changedFields, choiceOf, displayOf, textsOfDisplay } from "./settings";

const display = {
  kind: "image" as const,
  shape: [8, 8],
  range: [0, 16],
  columns: null,
  unit: null,
  instructions: null,
};
const project = {
  name: "Digits",
  posterior: { name: "auto", folds: 5, epochs: 100 },
  acquisition: null,
  selection: null,
  calibrate: true,
  display,
} as unknown as Project;
const same = {
  name: "Digits",
  posterior: { name: "auto" },
  acquisition: null,
  selection: null,
  calibrate: true,
  display,
};

test("what is shown is read back as it was", () => {
  expect(displayOf(textsOfDisplay(display))).toEqual({ display });
  expect(displayOf(textsOfDisplay(null))).toEqual({ display: null });
});

test("a shape that is none is told", () => {
  const { error } = displayOf({ ...textsOfDisplay(display), shape: "8 by 8" });
  expect(error).toBe("Shape: expected 2 or 3 numbers with commas between, got “8 by 8”.");
});

test("only what differs is asked for", () => {
  expect(changedFields(project, same)).toEqual({});
  expect(changedFields(project, { ...same, calibrate: "folds" })).toEqual({ calibrate: "folds" });
  expect(changedFields(project, { ...same, posterior: { name: "auto", folds: 3 } })).toEqual({
    posterior: { name: "auto", folds: 3 },
  });
  expect(changedFields(project, { ...same, acquisition: { name: "bald" } })).toEqual({
    acquisition: { name: "bald" },
  });
});

test("a stored method is shown with the options that are not usual", () => {
  const properties = {
    name: { const: "auto" },
    folds: { type: "integer", default: 5 },
    epochs: { type: "integer", default: 100 },
  };
  const methods = { auto: { schema: { properties } } };
  expect(choiceOf(methods, { name: "auto", folds: 3, epochs: 100 })).toEqual({
    name: "auto",
    texts: { folds: "3" },
  });
  expect(choiceOf(methods, null)).toEqual({ name: "", texts: {} });
});

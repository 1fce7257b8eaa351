import { expect, test } from "vitest";
import { argumentWords, assignments, priorWords, stopWords, variableWords } from "./words";

test("a design is read as assignments", () => {
  expect(assignments({ xi: 7, cue: "left", t: 0.123456 })).toBe("xi = 7, cue = left, t = 0.1235");
});

test("priors are told in words, and unknown ones as they stand", () => {
  expect(priorWords({ dist: "normal", loc: 7, scale: 2 })).toBe("normal around 7, sd 2");
  expect(priorWords({ dist: "truncnormal", loc: 1, scale: 1, low: 0.001 })).toBe(
    "normal around 1, sd 1, from 0.001",
  );
  expect(priorWords({ dist: "grid", values: [1, 2, 3, 4, 5, 6, 7, 8, 9] })).toBe(
    "one of 1, 2 … 9 (9 values)",
  );
  expect(priorWords({ dist: "new", q: 1 })).toBe('{"dist":"new","q":1}');
});

test("design variables are told with their ends", () => {
  const base = { name: "x", low: null, high: null, is_log: false, values: null };
  expect(variableWords({ ...base, kind: "integer", low: 1, high: 15 })).toBe("whole numbers from 1 to 15");
  expect(variableWords({ ...base, kind: "float", low: 0.05, high: 10, is_log: true })).toBe(
    "any number from 0.05 to 10, on a log scale",
  );
  expect(variableWords({ ...base, kind: "values", values: ["a", "b"] })).toBe("one of a, b");
  expect(variableWords({ ...base, kind: "values", values: [3] })).toBe("always 3");
});

test("arguments of a family are told as stated", () => {
  expect(argumentWords({ family: "bernoulli", logit: "theta - xi" })).toBe("logit = theta - xi");
  expect(argumentWords({ family: "categorical", logits: ["0", "a"], labels: ["x", "y"] })).toBe(
    "logits = [0, a]",
  );
});

test("stopping rules say how far they are", () => {
  const rule = { any: [{ sd: { theta: 0.6 } }, { max_eig_below: 0.02 }, { max_trials: 30 }] };
  const standing = { n: 5, posterior: { theta: { mean: 7.8, sd: 1.123, quantiles: {} } } };
  expect(stopWords(rule, standing)).toEqual([
    "sd of theta is 1.12, stops at 0.6",
    "stops when no design promises 0.02 nats",
    "5 of at most 30 trials",
  ]);
  expect(stopWords({ all: [{ max_trials: 1 }, { budget: 3 }] })).toEqual([
    "at most 1 trial, and stops at a cost of 3",
    "all of these together",
  ]);
  expect(stopWords(undefined)).toEqual([]);
});

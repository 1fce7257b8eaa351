import { expect, test } from "vitest";
import type { Trial } from "../api/types";
import { traceOf } from "./trace";

function summary(median: number, sd: number) {
  const quantiles = {
    "0.025": median - 2 * sd,
    "0.25": median - sd,
    "0.5": median,
    "0.75": median + sd,
    "0.975": median + 2 * sd,
  };
  return { theta: { mean: median, sd, quantiles } };
}

const trial = (posterior: Trial["posterior"]) => ({ posterior }) as Trial;

test("the trace begins with the prior and has a point a trial", () => {
  const found = traceOf("theta", summary(7, 2), [trial(summary(8, 1))]);
  expect(found).toEqual([
    { n: 0, median: 7, half: [5, 9], most: [3, 11] },
    { n: 1, median: 8, half: [7, 9], most: [6, 10] },
  ]);
});

test("trials without figures are passed over and keep their number", () => {
  const found = traceOf("theta", undefined, [trial(null), trial(summary(8, 1)), trial({})]);
  expect(found.map(({ n }) => n)).toEqual([2]);
});

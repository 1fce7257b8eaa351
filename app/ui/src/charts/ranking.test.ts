import { expect, test } from "vitest";
import { groupsOf, otherMarks } from "./PoolMap";
import { histogramOption, sharePassed } from "./ScoreHistogram";
import { contrast, splitOf } from "./UncertaintyScatter";

test("a map has five classes by themselves, the commonest first", () => {
  const label = ["a", "b", "b", "c", "d", "e", "f", null, "g"];
  const status = label.map((value, i) =>
    value === null ? "unlabelled" : i === 8 ? "skipped" : "labelled",
  ) as never;
  const { classes, others, unlabelled } = groupsOf({ label, status });
  expect(classes).toEqual([
    { name: "b", at: [1, 2] },
    { name: "a", at: [0] },
    { name: "c", at: [3] },
    { name: "d", at: [4] },
    { name: "e", at: [5] },
  ]);
  expect(others).toEqual([6]);
  expect(unlabelled).toEqual([7, 8]);
});

test("picks lie above the rows of the bins that end before them", () => {
  expect(sharePassed({ n: 10, edges: [0, 1, 2, 3], counts: [5, 3, 2], picks: [2.5, 2.1] })).toBe(0.8);
  expect(sharePassed({ n: 0, edges: [0, 1], counts: [0], picks: [] })).toBeNull();
});

test("scores that begin a little above 0 are drawn from 0, others from the lowest", () => {
  const from = (low: number) =>
    histogramOption({ n: 1, edges: [low, 1], counts: [1], picks: [] }, "margin", {} as never).xAxis as object;
  expect(from(0.0003)).toMatchObject({ min: 0, max: 1 });
  expect(from(0.5)).toMatchObject({ min: 0.5, max: 1 });
});

test("picks are drawn apart from the others, and compared with them", () => {
  const split = splitOf({
    row: [7, 8, 9],
    score: [1, 2, 3],
    aleatoric: [1, 1, 2],
    epistemic: [1, 3, 8],
    picked: [false, false, true],
    unit: "nats",
  });
  expect(split.picks).toEqual([[2, 8, 9, 3]]);
  expect(split.others.map(([, , row]) => row)).toEqual([7, 8]);
  expect(contrast(split)).toBe(
    "The chosen rows have 4 times the disagreement of the others, and 2 times the noise.",
  );
});

test("a map says what its other marks are", () => {
  const groups = { others: [3, 4], unlabelled: [5] };
  expect(otherMarks(groups, true, true)).toBe("✕ chosen · ● grey: other classes, 2 · ○ without a label, 1");
  expect(otherMarks(groups, false, false)).toBe("○ without a label, 1");
});

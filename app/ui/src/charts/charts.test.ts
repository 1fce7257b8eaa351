import { describe, expect, test } from "vitest";
import type { MeasuredPoint } from "../metrics";
import { barsOf } from "./ClassBars";
import { confusionOption, mistakes } from "./Confusion";
import { intervalWords } from "./Coverage";
import { bandOf, bracketOf, learningCurveOption, lowestShown, roundRange, roundStep } from "./LearningCurve";
import { dotSize, excess, sureness } from "./Reliability";
import type { Colours } from "./theme";

const colours: Colours = {
  paper: "#faf9f5",
  raised: "#ffffff",
  rule: "#d9d5c9",
  ink: "#1c1e22",
  quiet: "#5a5d63",
  accent: "#0b5a8f",
  series: ["#0b5a8f", "#c33a68", "#83720a", "#603306", "#102d20"],
  ramp: ["#eaf1f6", "#0b5a8f", "#06304d"],
};
const point = (nLabels: number, value: number, half: number | null = 0.02): MeasuredPoint => ({
  name: "accuracy",
  version: nLabels / 20,
  nLabels,
  value,
  low: half === null ? null : value - half,
  high: half === null ? null : value + half,
  n: 500,
  measuredOn: "evaluation",
});

describe("learning curve", () => {
  test("the band goes along the upper ends and back along the lower", () => {
    expect(bandOf([point(20, 0.5, 0.25), point(30, 0.6, null), point(40, 0.75, 0.125)])).toEqual([
      [20, 0.75],
      [40, 0.875],
      [40, 0.625],
      [20, 0.25],
    ]);
  });

  test("the bracket reaches from the labels there are to those that random rows need", () => {
    expect(bracketOf(point(80, 0.878), { labels: 21, randomNeeds: 101 })).toEqual({
      from: 80,
      to: 101,
      value: 0.878,
      words: "21 labels saved",
      isCut: false,
    });
  });

  test("a bracket that would squeeze the curve is cut, and one to the left says so", () => {
    expect(bracketOf(point(80, 0.9), { labels: 400, randomNeeds: 480 })).toMatchObject({
      to: 160,
      isCut: true,
    });
    expect(bracketOf(point(80, 0.9), { labels: -1, randomNeeds: 79 })?.words).toBe(
      "1 label more than random",
    );
    expect(bracketOf(point(80, 0.9), null)).toBeNull();
  });

  test("the axis of an accuracy begins at a fifth below the least that is drawn", () => {
    expect(lowestShown("accuracy", [0.536, 0.878])).toBe(0.4);
    expect(lowestShown("accuracy", [0.4, 0.878])).toBe(0.2);
    expect(lowestShown("accuracy", [0.1])).toBe(0);
  });

  test("labels begin at 0 and reach as far as the bracket", () => {
    const drawn = { metric: "accuracy" as const, points: [point(20, 0.5), point(80, 0.878)], control: [] };
    const axisOf = (saved: { labels: number; randomNeeds: number } | null) =>
      learningCurveOption({ ...drawn, saved }, colours, 800).xAxis as { min: number; max: number };
    expect(axisOf(null)).toMatchObject({ min: 0, max: 80 });
    expect(axisOf({ labels: 21, randomNeeds: 101 })).toMatchObject({ min: 0, max: 101 });
  });
});

describe("confusion", () => {
  const told = {
    classes: ["a", "b"],
    counts: [
      [8, 2],
      [3, 1],
    ],
  };

  test("mistakes are the cells beside the diagonal, the commonest first", () => {
    expect(mistakes(told)).toEqual([
      { was: "b", taken: "a", n: 3, share: 0.75 },
      { was: "a", taken: "b", n: 2, share: 0.2 },
    ]);
  });

  test("cells are shaded by the share of their row", () => {
    const { series } = confusionOption(told, colours, 320) as { series: { data: { value: number[] }[] }[] };
    expect(series[0]?.data.map(({ value }) => value)).toEqual([
      [0, 0, 0.8],
      [1, 0, 0.2],
      [0, 1, 0.75],
      [1, 1, 0.25],
    ]);
  });
});

describe("reliability", () => {
  const bins = [
    { confidence: 0.9, accuracy: 0.8, n: 30 },
    { confidence: 0.5, accuracy: 0.6, n: 10 },
  ];

  test("says by how much it is too sure, by rows", () => {
    expect(excess(bins)).toBeCloseTo(0.05);
    expect(sureness(bins)).toBe("It is too sure: right 5 % less often than it says.");
    expect(sureness([{ confidence: 0.9, accuracy: 0.905, n: 5 }])).toBe("It is as sure as it should be.");
  });

  test("the area of a dot is as its rows", () => {
    expect(dotSize(100, 100) ** 2 / dotSize(25, 100) ** 2).toBeCloseTo(4);
  });

  test("of numbers is told by what intervals hold", () => {
    expect(
      intervalWords([
        { expected: 0.5, observed: 0.4 },
        { expected: 0.9, observed: 0.8 },
      ]),
    ).toContain("10 % fewer");
  });
});

test("classes beyond those that fit are counted together", () => {
  const counts = Array.from({ length: 30 }, (_, i) => ({ value: `class ${i}`, n: i }));
  const bars = barsOf(counts);
  expect(bars).toHaveLength(24);
  expect(bars[0]).toEqual({ value: "class 29", n: 29 });
  expect(bars.at(-1)).toEqual({ value: "7 others", n: 21 });
});

test("an axis of numbers ends on round ones around all of them", () => {
  expect(roundRange([47.2, 64.9])).toEqual({ min: 45, max: 65 });
  expect(roundRange([0.31, 0.52])).toEqual({ min: 0.30000000000000004, max: 0.6000000000000001 });
  expect(roundStep(21)).toBe(50);
  expect(roundStep(20)).toBe(20);
});

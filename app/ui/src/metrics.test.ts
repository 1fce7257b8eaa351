import { describe, expect, test } from "vitest";
import type { CurvePoint, Metrics } from "./api/types";
import { comparable, controlOf, ends, measureOf, shareEnds, spreadText } from "./metrics";

const point = (
  version: number,
  n_labels: number,
  metrics: Metrics,
  control: CurvePoint["control"] = [],
): CurvePoint => ({
  ensemble_id: `e${version}`,
  version,
  n_labels,
  metrics,
  control,
  origin: "request",
  created_at: "2026-11-18T12:00:00Z",
});
const measured = (accuracy: number, on = "evaluation"): Metrics => ({
  n: 500,
  measured_on: on,
  accuracy,
  accuracy_se: 0.01,
});

describe("the band", () => {
  test("of an error reaches 1.96 standard errors to either side, and not below 0", () => {
    expect(ends(50, 2)).toEqual({ low: 46.08, high: 53.92 });
    expect(ends(0.5, 1).low).toBe(0);
    expect(ends(0.5, undefined)).toEqual({ low: null, high: null });
  });

  test("of a share solves |p − q| = 1.96 √(q (1 − q) / n)", () => {
    const { low, high } = shareEnds(0.878, 500);
    for (const q of [low ?? NaN, high ?? NaN]) {
      expect(Math.abs(0.878 - q)).toBeCloseTo(1.96 * Math.sqrt((q * (1 - q)) / 500), 10);
    }
  });

  test("is wide where all of a few rows are right", () => {
    const { low, high } = shareEnds(1, 7);
    expect(low).toBeCloseTo(7 / (7 + 1.96 ** 2), 10);
    expect(high).toBe(1);
    expect(shareEnds(1, 0)).toEqual({ low: null, high: null });
  });
});

describe("a measure", () => {
  test("is of the rows kept aside, where there are any", () => {
    const found = measureOf(measured(0.878), "accuracy");
    expect(found).toMatchObject({ value: 0.878, n: 500, measuredOn: "evaluation" });
    expect(found && spreadText(found)).toBe("± 0.029");
    const sure = measureOf({ ...measured(1), n: 7 }, "accuracy");
    expect(sure && spreadText(sure)).toBe("0.646 to 1.000");
  });

  test("is the estimate from the labels where there are none", () => {
    const estimate = {
      kind: "lure",
      n: 40,
      accuracy: { value: 0.7, standard_error: 0.05, low: 0.6, high: 0.79 },
    };
    const found = measureOf({ n: 0, measured_on: "none", estimate } as Metrics, "accuracy");
    expect(found).toEqual({
      name: "accuracy",
      value: 0.7,
      low: 0.6,
      high: 0.79,
      n: 40,
      measuredOn: "estimate",
    });
    expect(measureOf({ n: 0, measured_on: "none" }, "accuracy")).toBeNull();
  });

  test("of numbers has as many decimals in its spread as in itself", () => {
    expect(
      spreadText({ name: "rmse", value: 54.23, low: 50.1, high: 58.3, n: 9, measuredOn: "holdout" }),
    ).toBe("± 4.1");
  });
});

describe("points", () => {
  test("are those measured like the newest, one for each number of labels, in their order", () => {
    const points = [
      point(1, 20, measured(0.4, "holdout")),
      point(2, 40, measured(0.7)),
      point(3, 40, measured(0.72)),
      point(4, 30, measured(0.6)),
    ];
    expect(comparable(points, "accuracy").map(({ nLabels, value }) => [nLabels, value])).toEqual([
      [30, 0.6],
      [40, 0.72],
    ]);
  });

  test("of random rows are those of the newest version that knows them", () => {
    const points = [
      point(1, 20, measured(0.4), [{ n_labels: 10, accuracy: 0.1 }]),
      point(2, 40, measured(0.7), [
        { n_labels: 20, accuracy: 0.3 },
        { n_labels: 40, accuracy: null },
      ]),
      point(3, 60, measured(0.8)),
    ];
    expect(controlOf(points, "accuracy")).toEqual([{ nLabels: 20, value: 0.3 }]);
  });
});

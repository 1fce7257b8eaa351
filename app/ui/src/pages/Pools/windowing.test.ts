import { describe, expect, test } from "vitest";
import { MOST_PIXELS, pagesOf, scrollTo, windowOf } from "./windowing";

describe("what is seen of a list", () => {
  test("is the rows at the scroll position, and some around them", () => {
    expect(windowOf(1000, 50, 0, 500)).toEqual({ height: 50_000, first: 0, end: 16, top: 0 });
    expect(windowOf(1000, 50, 5000, 500)).toEqual({ height: 50_000, first: 94, end: 116, top: 4700 });
  });

  test("ends with the list", () => {
    expect(windowOf(1000, 50, 49_500, 500)).toMatchObject({ first: 984, end: 1000 });
    expect(windowOf(3, 50, 0, 500)).toEqual({ height: 150, first: 0, end: 3, top: 0 });
    expect(windowOf(0, 50, 0, 500)).toMatchObject({ first: 0, end: 0 });
  });

  test("of a million rows reaches the first and the last within what browsers can hold", () => {
    const n = 1_000_000;
    expect(windowOf(n, 50, 0, 500)).toMatchObject({ height: MOST_PIXELS, first: 0, top: 0 });
    const last = windowOf(n, 50, MOST_PIXELS - 500, 500);
    expect(last.end).toBe(n);
    // The last row ends where the list ends.
    expect(last.top + (last.end - last.first) * 50).toBeCloseTo(MOST_PIXELS);
  });

  test("a row that was asked for is the first that is seen", () => {
    for (const [n, row] of [
      [1000, 400],
      [1_000_000, 654_321],
    ] as const) {
      const at = scrollTo(row, n, 50, 500);
      const seen = windowOf(n, 50, at, 500);
      const y = seen.top + (row - seen.first) * 50 - at;
      expect(Math.abs(y)).toBeLessThan(50);
    }
  });
});

test("pages are those that hold the rows", () => {
  expect(pagesOf(95, 105)).toEqual([0, 1]);
  expect(pagesOf(100, 200)).toEqual([1]);
  expect(pagesOf(5, 5)).toEqual([]);
});

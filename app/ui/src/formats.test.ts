import { expect, test } from "vitest";
import { ago, bytes, count, duration, many, number, share, times } from "./formats";

test("numbers have so many digits as mean something", () => {
  expect([1234.5678, 0.012345, -3.14159, 0, 12345678, 0.00001].map((value) => number(value))).toEqual([
    "1,235",
    "0.0123",
    "−3.14",
    "0",
    "1.23e+7",
    "1.00e−5",
  ]);
  expect([number(null), number(NaN), share(undefined)]).toEqual(["–", "–", "–"]);
  expect(share(0.5)).toBe("0.500");
});

test("counts, sizes and times are read aloud without thinking", () => {
  expect([times(1), times(2), times(1297)]).toEqual(["once", "2 times", "1,297 times"]);
  expect([count(1297), many(1, "label"), many(2, "class", "classes")]).toEqual([
    "1,297",
    "1 label",
    "2 classes",
  ]);
  expect([bytes(999), bytes(4400), bytes(16 * 2 ** 20)]).toEqual(["999 bytes", "4.4 kB", "16.8 MB"]);
  expect([duration(12), duration(185), duration(3729), duration(-1)]).toEqual([
    "0:12",
    "3:05",
    "1:02:09",
    "0:00",
  ]);
});

test("the past is told from now", () => {
  const now = Date.parse("2026-01-01T12:00:00Z");
  expect(ago("2026-01-01T11:59:55Z", now)).toBe("just now");
  expect(ago("2026-01-01T11:58:00Z", now)).toBe("2 minutes ago");
  expect(ago("2026-01-01T09:00:00Z", now)).toBe("3 hours ago");
});

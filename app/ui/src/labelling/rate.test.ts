import { expect, it } from "vitest";
import { perMinute } from "./rate";

const every = (seconds: number, n: number, from = 0) =>
  Array.from({ length: n }, (_, i) => from + i * seconds * 1000);

it("is what the last answers took", () => {
  expect(perMinute(every(2, 10), 18_000)).toBe(30);
  expect(perMinute([...every(10, 30), ...every(1, 20, 291_000)], 310_000)).toBe(60);
});

it("leaves pauses out, and says nothing of too few answers", () => {
  expect(perMinute([...every(5, 5), ...every(2, 3, 600_000)], 604_000)).toBe(30);
  expect(perMinute([0, 2000], 2000)).toBeNull();
  expect(perMinute(every(2, 10), 60_000)).toBeNull();
  expect(perMinute([], 0)).toBeNull();
});

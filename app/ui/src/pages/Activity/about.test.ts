import { expect, test } from "vitest";
import { causeWords, placeOf } from "./about";

test("a job says why it was begun", () => {
  const words = (about: Record<string, string>, parent_id: string | null = null) =>
    causeWords({ about, parent_id });
  expect(words({ ensemble_id: "e", origin: "request" })).toBeUndefined();
  expect(words({ ensemble_id: "e", origin: "round:r" })).toBe("a round was completed");
  expect(words({ ensemble_id: "e", origin: "schedule:s" })).toBe("by a schedule");
  expect(words({ ranking_id: "k", round_id: "r" })).toBe("for a round");
  expect(words({}, "job")).toBe("a part of another job");
});

test("a job links to what it made", () => {
  const href = (about: Record<string, string>, project_id: string | null = "p") =>
    placeOf({ about, project_id })?.href;
  expect(href({ ranking_id: "k", round_id: "r" })).toBe("/p/p/label/r");
  expect(href({ ranking_id: "k" })).toBe("/p/p/rankings/k");
  expect(href({ pool_id: "o" })).toBe("/p/p/pools/o");
  expect(href({ session_id: "s" }, null)).toBe("/s/s");
  expect(href({ ensemble_id: "e" })).toBeUndefined();
  expect(href({ ranking_id: "k" }, null)).toBeUndefined();
});

import { beforeEach, expect, test } from "vitest";
import { delayAfter, forget, keep, readKept, type Kept } from "./outbox";

const ENTRY: Kept = { key: "k1", body: { outcome: { y: 1 }, proposal_id: "p" }, design: { xi: 7 } };

beforeEach(() => localStorage.clear());

test("an outcome that was kept is there after a reload, for its session alone", () => {
  keep("s1", ENTRY);
  expect(readKept("s1")).toEqual(ENTRY);
  expect(readKept("s2")).toBeNull();
});

test("only the outcome that was answered is forgotten", () => {
  keep("s1", ENTRY);
  forget("s1", "k2");
  expect(readKept("s1")).toEqual(ENTRY);
  forget("s1", "k1");
  expect(readKept("s1")).toBeNull();
});

test("what is no outcome is passed over", () => {
  localStorage.setItem("bensemble.outcome.s1", "{");
  expect(readKept("s1")).toBeNull();
  localStorage.setItem("bensemble.outcome.s1", '{"key": "k"}');
  expect(readKept("s1")).toBeNull();
});

test("it waits longer after each failure, at most half a minute, and as long as the service asks", () => {
  expect([1, 2, 3, 5, 6, 20].map((n) => delayAfter(n))).toEqual([1, 2, 4, 16, 30, 30]);
  expect(delayAfter(1, 45)).toBe(45);
});

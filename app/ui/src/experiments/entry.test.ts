import { expect, test } from "vitest";
import type { OutcomeField } from "../api/types";
import { choiceOfKey, choicesOf, isOnePress, readEntry, step } from "./entry";

function field(given: Partial<OutcomeField>): OutcomeField {
  return {
    name: "y",
    family: "normal",
    kind: "number",
    choices: null,
    low: null,
    high: null,
    integer: false,
    ...given,
  };
}

function choices(...labels: string[]): OutcomeField {
  const listed = labels.map((label) => ({ value: label, label }));
  return field({ kind: "choice", family: "categorical", choices: listed, integer: true });
}

const YES_NO = field({
  kind: "choice",
  family: "bernoulli",
  integer: true,
  choices: [
    { value: 0, label: "0" },
    { value: 1, label: "1" },
  ],
});

test("0 and 1 are no and yes, on their own keys, yes first", () => {
  expect(choicesOf(YES_NO)).toEqual([
    { value: 1, label: "yes", key: "1" },
    { value: 0, label: "no", key: "0" },
  ]);
  expect(choicesOf({ ...choices("wrong", "correct"), family: "bernoulli" }).map(({ key }) => key)).toEqual([
    "1",
    "2",
  ]);
});

test("labels of one letter or digit are their own keys, others are numbered, beyond ten there are none", () => {
  expect(choicesOf(choices("a", "B", "3")).map(({ key }) => key)).toEqual(["a", "b", "3"]);
  expect(choicesOf(choices("a", "A")).map(({ key }) => key)).toEqual(["1", "2"]);
  const ten = choicesOf(choices(..."zero one two three four five six seven eight nine".split(" ")));
  expect(ten.map(({ key }) => key).join("")).toBe("1234567890");
  expect(choicesOf(choices(...Array.from({ length: 11 }, (_, i) => `item ${i}`)))[0]?.key).toBeNull();
});

test("one press is enough for a single choice only", () => {
  expect(isOnePress([YES_NO])).toBe(true);
  expect(isOnePress([YES_NO, field({})])).toBe(false);
  expect(isOnePress([field({ kind: "count" })])).toBe(false);
});

test.each([
  ["0.5", 0.5],
  [" -3 ", -3],
  ["−3", -3],
  ["1e-3", 0.001],
  [".5", 0.5],
])("the number %j is read", (text, value) => {
  expect(readEntry(field({}), text)).toEqual({ isGood: true, value });
});

test.each([
  ["", "Enter a number."],
  ["0,5", "Write 0.5 with a point."],
  ["7 ms", "“7 ms” is no number."],
  ["1e999", "“1e999” is no number."],
  ["Infinity", "“Infinity” is no number."],
  ["-0.1", "It is at least 0."],
  ["1.1", "It is at most 1."],
])("the number %j is refused", (text, error) => {
  expect(readEntry(field({ low: 0, high: 1 }), text)).toEqual({ isGood: false, error });
});

test("a count is a whole number from 0", () => {
  const count = field({ kind: "count", family: "binomial", integer: true, low: 0, high: 50 });
  expect(readEntry(count, "50")).toEqual({ isGood: true, value: 50 });
  expect(readEntry(count, "51")).toEqual({ isGood: false, error: "It is at most 50." });
  expect(readEntry(count, "2.5")).toEqual({ isGood: false, error: "Enter a whole number." });
  expect(readEntry({ ...count, low: null }, "-1")).toEqual({ isGood: false, error: "It is at least 0." });
  expect(readEntry(count, "")).toEqual({ isGood: false, error: "Enter how many." });
});

test("a choice is sent as the value that it stands for", () => {
  expect(readEntry(YES_NO, "1")).toEqual({ isGood: true, value: 1 });
  expect(readEntry(YES_NO, "2")).toEqual({ isGood: false, error: "Choose one of them." });
});

test("the stepper stays within its ends and begins at the lowest", () => {
  const count = field({ kind: "count", integer: true, low: 0, high: 3 });
  expect(step(count, "", 1)).toBe("0");
  expect(step(count, "2", 1)).toBe("3");
  expect(step(count, "3", 1)).toBe("3");
  expect(step(count, "0", -1)).toBe("0");
  expect(step({ ...count, high: null }, "3", 1)).toBe("4");
});

test("keys mean a choice unless they are repeated, modified or typed into a field", () => {
  const shown = choicesOf(YES_NO);
  const press = (init: KeyboardEventInit, target: HTMLElement = document.body) => {
    const event = new KeyboardEvent("keydown", init);
    Object.defineProperty(event, "target", { value: target });
    return choiceOfKey(shown, event)?.value;
  };
  expect(press({ key: "1" })).toBe(1);
  expect(press({ key: "0" })).toBe(0);
  expect(press({ key: "2" })).toBeUndefined();
  expect(press({ key: "1", repeat: true })).toBeUndefined();
  expect(press({ key: "1", ctrlKey: true })).toBeUndefined();
  expect(press({ key: "1" }, document.createElement("input"))).toBeUndefined();
});

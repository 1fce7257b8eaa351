import { expect, it } from "vitest";
import { readNumber } from "./numbers";

it.each([
  ["1.5", 1.5],
  [" -2 ", -2],
  ["−2", -2],
  ["+.5", 0.5],
  ["3.", 3],
  ["1e-3", 0.001],
  ["", "Type a number, or skip the item."],
  ["1,5", "Write it with a point and without commas: 1.5 or 1000."],
  ["12 mm", "“12 mm” is not a number."],
  ["0x10", "“0x10” is not a number."],
  ["Infinity", "“Infinity” is not a number."],
  ["1e39", "That is more than can be kept: at most 3.4e38."],
])("%s → %s", (text, expected) => expect(readNumber(text)).toBe(expected));

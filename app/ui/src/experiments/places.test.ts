import { expect, test } from "vitest";
import { parseWithPlaces } from "./places";

const TEXT = `{
  "name": "a/b",
  "parameters": {"theta": {"dist": "normal", "loc": 7}},
  "stop": {"any": [
    {"max_trials": 30},
    {"sd": {"a/b~": 0.5}}
  ]},
  "outcome": {"y": {"logit": "theta - zi"}}
}`;

function find(pointer: string, column?: number) {
  const parsed = parseWithPlaces(TEXT);
  if (!parsed.isGood) throw new Error(parsed.message);
  const { line, column: at, offset } = parsed.find(pointer, column);
  return [line, at, TEXT.slice(offset, offset + 2)];
}

test("a pointer is found where its value begins", () => {
  expect(find("/parameters/theta/loc")).toEqual([3, 53, "7}"]);
  expect(find("/stop/any/1")).toEqual([6, 5, '{"']);
});

test("names with / and ~ are found by their escapes", () => {
  expect(find("/stop/any/1/sd/a~1b~0")).toEqual([6, 21, "0."]);
});

test("a column inside an expression is counted behind the quote", () => {
  expect(find("/outcome/y/logit", 9)).toEqual([8, 39, "zi"]);
});

test("what is missing is marked at what should hold it", () => {
  expect(find("/parameters/theta/scale/unit")).toEqual([3, 27, '{"']);
  expect(find("/designs")).toEqual([1, 1, "{\n"]);
});

test.each([
  ['{"a": 1,}', 1, 9, "a name in double quotes is expected here"],
  ['{"a": 1\n "b": 2}', 2, 2, "a comma or } is expected here"],
  ["[1, 2", 1, 6, "the text ends too early"],
  ["{'a': 1}", 1, 2, "a name in double quotes is expected here"],
  ['{"a": 01}', 1, 7, 'a value is expected here: a number, "text", {…} or […]'],
  ['{"a": 1} 2', 1, 10, "the text should end here"],
  ["", 1, 1, "the text ends too early"],
])("a mistake in %j has its place", (text, line, column, message) => {
  const parsed = parseWithPlaces(text);
  expect(parsed).toMatchObject({ isGood: false, message, place: { line, column } });
});

test("what JSON.parse takes is taken", () => {
  for (const text of ["[]", "{}", " null ", "-1.5e-3", '"\\u00e9\\n"', '{"":[{"a":[]}]}']) {
    expect(parseWithPlaces(text)).toMatchObject({ isGood: true, value: JSON.parse(text) });
  }
});

test("a text nested beyond reason is refused, not followed to the end of the stack", () => {
  expect(parseWithPlaces("[".repeat(100_000))).toMatchObject({
    isGood: false,
    message: "this is nested too deeply",
  });
});

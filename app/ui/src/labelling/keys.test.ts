import { describe, expect, it } from "vitest";
import { commandOf, findClasses, isForElement, isTooSoon, keysOf, needsFinding, type Press } from "./keys";

const press = (key: string, changes: Partial<Press> = {}): Press => ({
  key,
  code: "",
  repeat: false,
  isComposing: false,
  ctrlKey: false,
  metaKey: false,
  altKey: false,
  shiftKey: false,
  ...changes,
});

describe("keysOf", () => {
  it("takes classes that are one letter or digit as their own keys", () => {
    expect(keysOf(["0", "1", "2", "9"])).toEqual(["0", "1", "2", "9"]);
    expect(keysOf(["N", "y"])).toEqual(["n", "y"]);
  });

  it("gives others 1 … 9 0, then a … z", () => {
    const classes = Array.from({ length: 38 }, (_, i) => `class ${i}`);
    const keys = keysOf(classes);
    expect(keys.slice(0, 12)).toEqual(["1", "2", "3", "4", "5", "6", "7", "8", "9", "0", "a", "b"]);
    expect(keys.slice(35)).toEqual(["z", null, null]);
    expect([needsFinding(classes.slice(0, 36)), needsFinding(classes)]).toEqual([false, true]);
  });

  it("never gives one key to two classes", () => {
    expect(keysOf(["a", "A"])).toEqual(["1", "2"]);
    expect(keysOf(["я", "ж"])).toEqual(["1", "2"]);
  });
});

describe("commandOf", () => {
  const keys = keysOf(["cat", "dog", "bird"]);
  it.each([
    [press("1"), { kind: "class", index: 0 }],
    [press("3"), { kind: "class", index: 2 }],
    [press("4"), null],
    [press(" "), { kind: "skip" }],
    [press("Backspace"), { kind: "undo" }],
    [press("z", { ctrlKey: true }), { kind: "undo" }],
    [press("z", { metaKey: true }), { kind: "undo" }],
    [press("ArrowLeft"), { kind: "back" }],
    [press("ArrowRight", { shiftKey: true }), { kind: "forward", isSelecting: true }],
    [press("Enter"), { kind: "confirm" }],
    [press("."), { kind: "grid" }],
    [press("?", { shiftKey: true }), { kind: "help" }],
    [press("/", { shiftKey: true }), { kind: "find" }],
    [press("Escape"), { kind: "leave" }],
    [press("1", { repeat: true }), null],
    [press("1", { isComposing: true }), null],
    [press("1", { ctrlKey: true }), null],
    [press("1", { altKey: true }), null],
    [press("1", { metaKey: true }), null],
    [press("!", { shiftKey: true, code: "Digit1" }), null],
    [press(" ", { shiftKey: true }), null],
    [press("Backspace", { ctrlKey: true }), null],
    [press("Tab"), null],
  ])("%o → %o", (pressed, expected) => expect(commandOf(pressed, keys)).toEqual(expected));

  it("finds keys by their place where the keyboard writes something else there", () => {
    expect(commandOf(press("&", { code: "Digit1" }), keys)).toEqual({ kind: "class", index: 0 });
    expect(commandOf(press("ф", { code: "KeyA" }), keysOf(["a", "b"]))).toEqual({ kind: "class", index: 0 });
    expect(commandOf(press("q", { code: "KeyA" }), keysOf(["a", "b"]))).toBeNull();
  });

  it("takes capital letters of a locked keyboard", () => {
    expect(commandOf(press("B"), keysOf(["a", "b"]))).toEqual({ kind: "class", index: 1 });
  });
});

describe("isForElement", () => {
  const inside = (html: string, selector: string) => {
    document.body.innerHTML = html;
    return document.querySelector(selector);
  };
  it("leaves inputs and dialogs alone, and buttons what presses them", () => {
    expect(isForElement(inside("<input>", "input"), press("1"))).toBe(true);
    expect(isForElement(inside("<dialog><p></p></dialog>", "p"), press("1"))).toBe(true);
    const button = inside("<button><span>x</span></button>", "span");
    expect([" ", "Enter", "1", "Backspace"].map((key) => isForElement(button, press(key)))).toEqual([
      true,
      true,
      false,
      false,
    ]);
    expect(isForElement(document.body, press("1"))).toBe(false);
  });
});

describe("isTooSoon", () => {
  it("ignores presses within 120 ms of an item that came by itself, or by the same key", () => {
    expect(isTooSoon("1", 1119, { at: 1000, by: null })).toBe(true);
    expect(isTooSoon("1", 1120, { at: 1000, by: null })).toBe(false);
    expect(isTooSoon("1", 1060, { at: 1000, by: "1" })).toBe(true);
    expect(isTooSoon("2", 1060, { at: 1000, by: "1" })).toBe(false);
  });
});

describe("findClasses", () => {
  it("puts the same name first, then beginnings, then what has it inside", () => {
    const classes = ["wildcat", "category", "cat", "dog", "Cattle"];
    expect(findClasses(classes, "CAT").map((i) => classes[i])).toEqual([
      "cat",
      "category",
      "Cattle",
      "wildcat",
    ]);
    expect(findClasses(classes, "", 2)).toEqual([0, 1]);
    expect(findClasses(classes, "fish")).toEqual([]);
  });
});

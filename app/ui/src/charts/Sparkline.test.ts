import { expect, test } from "vitest";
import { placed } from "./Sparkline";

test("the least lies below left and the greatest above right", () => {
  const at = placed(
    [
      { x: 20, y: 1 },
      { x: 40, y: null },
      { x: 60, y: 2 },
      { x: 100, y: 3 },
    ],
    96,
    28,
  );
  expect(at).toEqual([
    [3, 25],
    [48, 14],
    [93, 3],
  ]);
});

test("one point, or equal ones, lie in the middle", () => {
  expect(placed([{ x: 20, y: 0.5 }], 96, 28)).toEqual([[48, 14]]);
});

import { expect, it } from "vitest";
import { givenAtMost, howMany, needsFeatures, pictureShelf, toRenew } from "./prefetch";
import { started, type State } from "./reducer";

const holding = (n: number, changes: Partial<State> = {}): State => ({
  ...started(0),
  items: Array.from({ length: n }, (_, row) => ({ row, key: "", payload: null, x: null })),
  ...changes,
});
const display = { shape: null, range: null, columns: null, unit: null, instructions: null };

it("asks for eight when four are left, and for those that were not sent, which come first", () => {
  expect([holding(5), holding(4), holding(0)].map((state) => howMany(state, 3))).toEqual([0, 11, 11]);
});

it("asks no more of a service that gave less than it was asked for", () => {
  expect(howMany(holding(2, { isDry: true }), 0)).toBe(0);
});

it("asks for more where a grid shows them", () => {
  expect(howMany(holding(12, { grid: { cursor: 0, selected: [] } }), 0)).toBe(24);
});

it("renews all that it holds", () => {
  expect([toRenew(holding(3), 2), toRenew(holding(20), 2)]).toEqual([10, 22]);
});

it("knows that of wide rows fewer come", () => {
  const photo = { display: null, input: { shape: [3, 224, 224] } };
  const digit = { display: null, input: { shape: [64] } };
  expect([givenAtMost(8, photo, true), givenAtMost(8, photo, false), givenAtMost(8, digit, true)]).toEqual([
    1, 8, 8,
  ]);
});

it("asks for features unless texts are shown", () => {
  expect(needsFeatures({ display: { ...display, kind: "text" }, input: { shape: [3] } })).toBe(false);
  expect(needsFeatures({ display: null, input: { shape: [3] } })).toBe(true);
});

it("loads pictures once, before they are shown, and lets go of those that are gone", () => {
  const loaded: string[] = [];
  const prepare = pictureShelf({ display: null, input: { shape: [1] } }, (address) => loaded.push(address));
  const item = (row: number) => ({ row, key: "", payload: `data:image/png;base64,${row}`, x: null });
  prepare([item(1), item(2)]);
  prepare([item(2), item(3)]);
  prepare([item(1)]);
  expect(loaded.map((address) => address.at(-1))).toEqual(["1", "2", "3", "1"]);
});

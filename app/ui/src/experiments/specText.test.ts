import { expect, test } from "vitest";
import { EXAMPLE, specText } from "./specText";

test("a spec has a line a key, and what is short stays on it", () => {
  expect(specText({ name: "a", designs: { xi: { type: "integer", low: 1 } }, targets: [] })).toBe(
    '{\n  "name": "a",\n  "designs": {"xi": {"type": "integer", "low": 1}},\n  "targets": []\n}',
  );
});

test("long lists are wrapped, and everything is read back as it was", () => {
  const spec = {
    ...EXAMPLE,
    designs: { x: { type: "list", values: Array.from({ length: 61 }, (_, i) => i / 10) } },
  };
  const text = specText(spec);
  expect(JSON.parse(text)).toEqual(spec);
  expect(Math.max(...text.split("\n").map((line) => line.length))).toBeLessThanOrEqual(97);
});

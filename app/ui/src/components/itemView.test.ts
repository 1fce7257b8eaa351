import { describe, expect, it } from "vitest";
import { gistOf, pictureAddress, viewOf, type Showing, type View } from "./itemView";

const plain = {
  kind: "auto",
  shape: null,
  range: null,
  columns: null,
  unit: null,
  instructions: null,
} as const;
const showing = (changes: object = {}, shape = [4]): Showing => ({
  display: { ...plain, ...changes },
  input: { shape },
});
const tableOf = (view: View) => (view.kind === "table" ? view.cells : view.kind);

describe("viewOf", () => {
  it("draws features as pixels where the project says of what shape", () => {
    const view = viewOf({ key: "a", x: [0, 1, 2, 3] }, showing({ kind: "image", shape: [2, 2] }));
    expect(view.kind === "pixels" && [view.picture.height, view.picture.width]).toEqual([2, 2]);
  });

  it("takes the shape of rows that are images already", () => {
    const view = viewOf({ key: "a", x: [0, 1, 2, 3] }, showing({ kind: "image" }, [1, 2, 2]));
    expect(view.kind === "pixels" && [view.picture.height, view.picture.width]).toEqual([2, 2]);
  });

  it("shows text as text, however much it looks like HTML", () => {
    const text = "<img src=x onerror=alert(1)>";
    expect(viewOf({ key: "a", payload: text, x: [1] }, showing())).toEqual({ kind: "text", text, cells: [] });
    expect(viewOf({ key: "a", payload: { text, by: "ada" } }, showing())).toEqual({
      kind: "text",
      text,
      cells: [["by", "ada"]],
    });
  });

  it("shows an object as a table, its figures as they were written", () => {
    const payload = { age: 31.25, member: true, gap: null, tags: ["a", "b"] };
    expect(tableOf(viewOf({ key: "a", payload }, showing()))).toEqual([
      ["age", "31.25"],
      ["member", "true"],
      ["gap", "–"],
      ["tags", '["a","b"]'],
    ]);
  });

  it("names the features of a row, and counts those that it leaves out", () => {
    const names = { kind: "table", columns: ["alcohol", "ash", "hue", "flavour"] };
    expect(tableOf(viewOf({ key: "a", x: [13.2, 2.36, 1.04, 3] }, showing(names)))).toEqual([
      ["alcohol", "13.2"],
      ["ash", "2.36"],
      ["hue", "1.04"],
      ["flavour", "3"],
    ]);
    expect(tableOf(viewOf({ key: "a", x: [1, 2, 3, 4], payload: { id: 7 } }, showing(names)))).toHaveLength(
      4,
    );
    expect(tableOf(viewOf({ key: "a", x: [1], payload: { id: 7 } }, showing({ kind: "table" })))).toEqual([
      ["id", "7"],
    ]);
    const wide = viewOf({ key: "a", x: Array<number>(300).fill(1) }, showing());
    expect(wide.kind === "table" && [wide.cells.length, wide.nMore, wide.cells[199]]).toEqual([
      200,
      100,
      ["feature 200", "1"],
    ]);
  });

  it("shows pictures that come with the data or from this service, with what else is known of them", () => {
    const address = "data:image/png;base64,AAAA";
    expect(viewOf({ key: "a", payload: address }, showing())).toEqual({
      kind: "picture",
      address,
      cells: [],
    });
    expect(viewOf({ key: "a", payload: { image: "/assets/a.png", site: "B" } }, showing())).toEqual({
      kind: "picture",
      address: `${location.origin}/assets/a.png`,
      cells: [["site", "B"]],
    });
    expect(viewOf({ key: "a", payload: { image: "https://elsewhere.example/a.png" } }, showing())).toEqual({
      kind: "table",
      cells: [["image", "https://elsewhere.example/a.png"]],
      nMore: 0,
    });
  });

  it("says so where there is nothing to show", () => {
    expect(viewOf({ key: "a", payload: null, x: null }, showing())).toEqual({ kind: "nothing" });
    expect(viewOf({ key: "a" }, { display: null, input: { shape: [4] } })).toEqual({ kind: "nothing" });
  });
});

describe("pictureAddress", () => {
  const origin = "http://lab:8000";
  it.each([
    ["/assets/a.png", "http://lab:8000/assets/a.png"],
    ["http://lab:8000/a.png", "http://lab:8000/a.png"],
    ["http://lab:8001/a.png", null],
    ["//elsewhere.example/a.png", null],
    ["javascript:alert(1)", null],
    ["data:text/html,<p>", null],
    ["data:image/svg+xml,<svg/>", "data:image/svg+xml,<svg/>"],
  ])("%s → %s", (text, expected) => expect(pictureAddress(text, origin)).toBe(expected));
});

describe("gistOf", () => {
  it("is a line of the text or of the first values, and of pictures nothing", () => {
    expect(gistOf(viewOf({ key: "a", payload: "x".repeat(500) }, showing()))).toHaveLength(120);
    expect(gistOf(viewOf({ key: "a", x: [0.25, -3, 12.5] }, showing()))).toBe("0.25 · −3 · 12.5");
    expect(gistOf(viewOf({ key: "a", x: [0, 1, 2, 3] }, showing({ kind: "image", shape: [2, 2] })))).toBe("");
  });
});

import { describe, expect, test } from "vitest";
import type { FileInfo } from "../../api/types";
import { EMPTY, withRole, type Draft } from "./draft";

const column = (name: string, kind: "number" | "text", n_distinct: number) => ({
  name,
  kind,
  n_distinct,
  n_missing: 0,
  examples: [],
});

const draft: Draft = {
  ...EMPTY,
  found: {
    columns: [column("price", "number", 30), column("digit", "number", 10), column("kind", "text", 3)],
  } as unknown as FileInfo,
};

describe("a column that is taken for the label", () => {
  test("asks for a number where its numbers are many, else for a class", () => {
    const priced = withRole(draft, "price", "label");
    expect(priced.kind).toBe("regression");
    expect(withRole(priced, "digit", "label").kind).toBe("classification");
    expect(withRole(draft, "kind", "label").kind).toBe("classification");
  });

  test("leaves the task alone where classes were named, and any other role does", () => {
    expect(withRole({ ...draft, classes: "a\nb" }, "price", "label").kind).toBe("classification");
    expect(withRole(draft, "price", "feature").kind).toBe("classification");
  });
});

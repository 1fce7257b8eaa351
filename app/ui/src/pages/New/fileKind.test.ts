import { describe, expect, test } from "vitest";
import { kindOf, refusalOf, titleOf } from "./fileKind";

describe("the kind of a file", () => {
  test.each([
    ["iris.csv", "csv", "text/csv", true],
    ["IRIS.CSV", "csv", "text/csv", true],
    ["rows.v2.ndjson", "ndjson", "application/x-ndjson", true],
    ["rows.jsonl", "ndjson", "application/x-ndjson", true],
    ["t.parquet", "parquet", "application/vnd.apache.parquet", false],
    ["t.feather", "arrow", "application/vnd.apache.arrow.file", false],
    ["t.arrows", "arrow", "application/vnd.apache.arrow.stream", false],
    ["x.npy", "npy", "application/x-npy", false],
  ])("%s is %s", (name, format, contentType, isLines) => {
    expect(kindOf(name)).toEqual({ format, contentType, isLines });
  });

  test.each(["photo.png", "csv", "table.xlsx", "noending", ""])("%s is none", (name) => {
    expect(kindOf(name)).toBeUndefined();
  });

  test("a refusal says what to do", () => {
    expect(refusalOf("table.xlsx")).toContain("Save the sheet as CSV");
    expect(refusalOf("a.npz")).toContain("numpy.save");
    expect(refusalOf("cat.png")).toContain("“cat.png”");
  });

  test("a project is called like its file", () => {
    expect(titleOf("iris_2.tar.csv")).toBe("iris 2.tar");
    expect(titleOf("plain")).toBe("plain");
  });
});

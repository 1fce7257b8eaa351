import { afterEach, expect, test, vi } from "vitest";
import { readRows } from "./rows";

afterEach(() => vi.unstubAllGlobals());

test("rows that one answer has no room for come in the following ones, in order", async () => {
  const asked: string[] = [];
  const pages = [
    { items: [{ row: 7 }, { row: 3 }], next_cursor: "two" },
    { items: [{ row: 5 }], next_cursor: null },
  ];
  vi.stubGlobal("fetch", (address: string) => {
    asked.push(address);
    return Promise.resolve(new Response(JSON.stringify(pages[asked.length - 1])));
  });
  const found = await readRows("p", [7, 3, 5], new AbortController().signal);
  expect(found.map(({ row }) => row)).toEqual([7, 3, 5]);
  expect(asked).toEqual([
    "/v1/pools/p/items?rows=7%2C3%2C5&features=true",
    "/v1/pools/p/items?rows=7%2C3%2C5&features=true&cursor=two",
  ]);
});

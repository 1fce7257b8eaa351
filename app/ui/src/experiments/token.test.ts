import { beforeEach, expect, test } from "vitest";
import { takeToken } from "./token";

beforeEach(() => {
  sessionStorage.clear();
  history.replaceState(null, "", "/run/s1");
});

test("the token leaves the address and stays with the tab", () => {
  history.replaceState(null, "", "/run/s1?x=1#token=bs_abc");
  expect(takeToken("s1")).toBe("bs_abc");
  expect(location.hash).toBe("");
  expect(location.search).toBe("?x=1");
  expect(takeToken("s1")).toBe("bs_abc");
});

test("each session has its own, and a newer link wins", () => {
  sessionStorage.setItem("bensemble.token.s1", "bs_old");
  expect(takeToken("s2")).toBeNull();
  history.replaceState(null, "", "/run/s1#token=bs_new");
  expect(takeToken("s1")).toBe("bs_new");
});

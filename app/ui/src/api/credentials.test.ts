import { afterEach, expect, test } from "vitest";
import { currentKey, keyIn, refuse, signIn, signOut, takeKeyFromAddress } from "./credentials";

afterEach(signOut);

test("the key is found in what was pasted", () => {
  expect(keyIn("  bk_1 ")).toBe("bk_1");
  expect(keyIn(" http://127.0.0.1:8000/#key=bk_1 ")).toBe("bk_1");
});

test("a key in the address is taken and erased", () => {
  location.hash = "#key=bk_2";
  takeKeyFromAddress();
  expect(currentKey()).toBe("bk_2");
  expect(location.hash).toBe("");
  expect(sessionStorage.getItem("bensemble.key")).toBe("bk_2");
});

test("a refusal of an older key does not touch the newer one, signing out forgets it", () => {
  signIn("bk_3");
  refuse("bk_2");
  expect(currentKey()).toBe("bk_3");
  signOut();
  expect([currentKey(), sessionStorage.getItem("bensemble.key")]).toEqual([null, null]);
});

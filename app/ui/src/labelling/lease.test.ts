import { beforeEach, describe, expect, it } from "vitest";
import { FakeClock, FakeStorage } from "./fakes";
import { LAPSE_MS, openLease } from "./lease";

let clock: FakeClock;
let storage: FakeStorage;
let changes: string[];

const tab = (name: string, isLabelling = true) =>
  openLease({ storage, clock, name: "r.ada", tab: name, isLabelling, onChange: () => changes.push(name) });

beforeEach(() => {
  clock = new FakeClock();
  storage = new FakeStorage();
  changes = [];
});

describe("two tabs", () => {
  it("the first has it, as long as it renews", async () => {
    const [first, second] = [tab("first"), tab("second")];
    await clock.pass(60_000);
    expect([first.isMine(), second.isMine()]).toEqual([true, false]);
    expect(changes).toEqual(["first"]);
  });

  it("the second takes it over when asked to, and the first lets go", async () => {
    const [first, second] = [tab("first"), tab("second")];
    expect(second.take(true)).toBe(true);
    expect(first.isMine()).toBe(false);
    await clock.pass(60_000);
    expect([first.isMine(), second.isMine()]).toEqual([false, true]);
    expect(changes).toEqual(["first", "second", "first"]);
  });

  it("the second has it at once when the first is left", async () => {
    const [first, second] = [tab("first"), tab("second")];
    first.release();
    await clock.pass(2000);
    expect([first.isMine(), second.isMine()]).toEqual([false, true]);
  });

  it("one that no longer renews loses it after 6 s", async () => {
    storage.setItem(
      "bensemble.lease.r.ada",
      JSON.stringify({ tab: "gone", at: clock.now(), isLabelling: true }),
    );
    const second = tab("second");
    await clock.pass(LAPSE_MS - 1000);
    expect(second.isMine()).toBe(false);
    await clock.pass(1000);
    expect(second.isMine()).toBe(true);
  });

  it("a tab that slept does not think that it still has it", async () => {
    const first = tab("first");
    clock.sleep(LAPSE_MS);
    expect(first.isMine()).toBe(false);
    const second = tab("second");
    expect(second.isMine()).toBe(true);
    await clock.pass(10_000);
    expect([first.isMine(), second.isMine()]).toEqual([false, true]);
  });

  it("one that labels goes before one that only sends", () => {
    const sending = tab("sending", false);
    expect(sending.isMine()).toBe(true);
    const labelling = tab("labelling");
    expect([sending.isMine(), labelling.isMine()]).toEqual([false, true]);
    expect(tab("another", false).isMine()).toBe(false);
  });
});

it("other rounds, and other annotators, have leases of their own", () => {
  const mine = tab("first");
  const other = openLease({ storage, clock, name: "r.grace", tab: "second", isLabelling: true });
  expect([mine.isMine(), other.isMine()]).toEqual([true, true]);
});

it("a tab whose storage takes nothing labels by itself", () => {
  storage.isFull = true;
  expect(tab("alone").isMine()).toBe(true);
});

import { beforeEach, describe, expect, it } from "vitest";
import { Problem, Unreachable } from "../api/problem";
import { FakeClock, FakeStorage } from "./fakes";
import {
  emptyQueue,
  forget,
  freeze,
  hold,
  openQueue,
  park,
  pruneQueues,
  remember,
  say,
  storedQueues,
  unsay,
  unsent,
  unsentLabels,
  type Batch,
  type Queue,
} from "./queue";
import type { Entry, Saying } from "./saying";
import { startSender, type Sender } from "./sender";

const place = { projectId: "p", poolId: "pool", roundId: "r", annotator: "ada" };
const label = (row: number, value: string, id = `${row}=${value}`): Entry => ({
  id,
  row,
  key: `digit-${row}`,
  saying: { kind: "label", value },
  leadTime: 1.5,
  replaced: null,
});
const retract = (row: number): Entry => ({ ...label(row, ""), id: `${row}!`, saying: { kind: "retract" } });

/** The service as far as labels go: it takes a request once a key, and all of its labels or none. */
class FakeService {
  events: [number, Saying][] = [];
  requests: { key: string; to: string; rows: number[] }[] = [];
  /** What the next requests meet; left out, they are taken. */
  fate: ("lost" | "answer lost" | Problem)[] = [];
  isOpen = true;
  isDown = false;
  private answered = new Set<string>();

  post = async (batch: Batch): Promise<{ n: number }> => {
    await Promise.resolve();
    this.requests.push({ key: batch.key, to: batch.to, rows: batch.entries.map(({ row }) => row) });
    const fate = this.isDown ? "lost" : this.fate.shift();
    if (fate === "lost") throw new Unreachable(new Error("refused"));
    if (fate instanceof Problem) throw fate;
    if (batch.to === "round" && !this.isOpen && !this.answered.has(batch.key)) {
      throw new Problem(409, { detail: "this round is complete" });
    }
    if (!this.answered.has(batch.key)) {
      this.answered.add(batch.key);
      this.events.push(...batch.entries.map(({ row, saying }): [number, Saying] => [row, saying]));
    }
    if (fate === "answer lost") throw new Unreachable(new Error("reset"));
    return { n: batch.entries.length };
  };

  get rows(): number[] {
    return this.events.map(([row]) => row);
  }
}

let clock: FakeClock;
let storage: FakeStorage;
let service: FakeService;
let queue: Queue;
let sender: Sender;
let keys: number;

/** As a page that is loaded: with whatever the last one left. */
function load(isHolder = () => true): void {
  queue = openQueue(storage, place, clock.now);
  sender = startSender({
    queue,
    clock,
    post: service.post,
    isHolder,
    newKey: () => `key ${(keys += 1)}`,
  });
  sender.kick();
}

function said(...entries: Entry[]): void {
  for (const entry of entries) {
    queue.change((kept) => say(kept, entry));
    sender.kick();
  }
}

beforeEach(() => {
  clock = new FakeClock();
  storage = new FakeStorage();
  service = new FakeService();
  keys = 0;
  load();
});

describe("sending", () => {
  it("sends each label once, in order, what came meanwhile together", async () => {
    said(label(4, "1"), label(2, "7"), label(9, "3"));
    await clock.pass(0);
    expect(service.requests).toEqual([
      { key: "key 1", to: "round", rows: [4] },
      { key: "key 2", to: "round", rows: [2, 9] },
    ]);
    expect(service.events).toEqual([
      [4, { kind: "label", value: "1" }],
      [2, { kind: "label", value: "7" }],
      [9, { kind: "label", value: "3" }],
    ]);
    expect(unsent(queue.read())).toEqual([]);
    expect(sender.state()).toEqual({ kind: "idle" });
  });

  it("sends at most fifty at once", async () => {
    service.isDown = true;
    said(...Array.from({ length: 120 }, (_, i) => label(i, "1")));
    await clock.pass(0);
    service.isDown = false;
    await clock.pass(60_000);
    expect(service.requests.slice(-3).map(({ rows }) => rows.length)).toEqual([50, 50, 19]);
    expect(service.rows).toEqual(Array.from({ length: 120 }, (_, i) => i));
  });

  it("is in the storage before it is sent", () => {
    service.isDown = true;
    said(label(4, "1"));
    expect(unsent(storedQueues(storage)[0] ?? emptyQueue(place)).map(({ row }) => row)).toEqual([4]);
  });

  it("waits 1, 2, 4 … 30 s while the service is away, and loses nothing", async () => {
    service.isDown = true;
    said(label(1, "a"));
    await clock.pass(0);
    const waits: number[] = [];
    for (let i = 0; i < 7; i++) {
      const state = sender.state();
      waits.push(state.kind === "waiting" ? (state.until - clock.now()) / 1000 : NaN);
      await clock.pass((waits[i] ?? 0) * 1000);
    }
    expect(waits).toEqual([1, 2, 4, 8, 16, 30, 30]);
    const before = service.requests.length;
    said(label(2, "b"));
    await clock.pass(0);
    expect(service.requests.length).toBe(before); // another label is no reason to hurry
    service.isDown = false;
    sender.retry(); // the browser is online again
    await clock.pass(0);
    expect(service.rows).toEqual([1, 2]);
    expect(unsent(queue.read())).toEqual([]);
  });

  it("sends the same batch under the same key, so that a lost answer doubles nothing", async () => {
    service.fate = ["answer lost", "lost"];
    said(label(1, "a"), label(2, "b"));
    await clock.pass(5000);
    expect(service.requests.map(({ key, rows }) => [key, rows])).toEqual([
      ["key 1", [1]],
      ["key 1", [1]],
      ["key 1", [1]],
      ["key 2", [2]],
    ]);
    expect(service.rows).toEqual([1, 2]);
  });

  it("goes on after a reload, with what was under way under its old key", async () => {
    service.fate = ["answer lost"];
    said(label(1, "a"));
    await clock.pass(0);
    said(label(2, "b"), label(3, "c"));
    sender.stop();
    load();
    await clock.pass(0);
    expect(service.requests.map(({ key, rows }) => [key, rows])).toEqual([
      ["key 1", [1]],
      ["key 1", [1]],
      ["key 2", [2, 3]],
    ]);
    expect(service.rows).toEqual([1, 2, 3]);
  });

  it("sends what a round that has ended refuses to its project, under a new key", async () => {
    let hasEnded = 0;
    sender.stop();
    sender = startSender({
      queue,
      clock,
      post: service.post,
      isHolder: () => true,
      newKey: () => `key ${(keys += 1)}`,
      onEnded: () => (hasEnded += 1),
    });
    service.isOpen = false;
    said(label(1, "a"));
    await clock.pass(0);
    said(label(2, "b"));
    await clock.pass(0);
    expect(service.requests).toEqual([
      { key: "key 1", to: "round", rows: [1] },
      { key: "key 2", to: "project", rows: [1] },
      { key: "key 3", to: "project", rows: [2] },
    ]);
    expect([service.rows, hasEnded]).toEqual([[1, 2], 1]);
  });

  it("parks by the pointer, sends one by one where there is none, and drops what was corrected", async () => {
    service.isDown = true;
    said(label(0, "z"));
    await clock.pass(0);
    said(label(1, "a"), label(2, "x"), label(3, "c"));
    service.isDown = false;
    const named = new Problem(422, {
      detail: "no",
      errors: [{ pointer: "/labels/1/value", detail: "unknown 'x'" }],
    });
    const unnamed = new Problem(422, { detail: "something is wrong" });
    const post = service.post;
    service.post = (batch) => {
      if (batch.entries.length === 3) return Promise.reject(named);
      return post(batch);
    };
    sender.stop();
    load();
    await clock.pass(0);
    expect(service.rows).toEqual([0, 1, 3]);
    expect(queue.read().refused).toEqual([{ entry: label(2, "x"), detail: "unknown 'x'" }]);

    said(label(2, "b")); // corrected
    await clock.pass(0);
    expect([service.rows, queue.read().refused]).toEqual([[0, 1, 3, 2], []]);

    service.post = (batch) => {
      const isBad = batch.entries.some(({ row }) => row === 6);
      return isBad ? Promise.reject(unnamed) : post(batch);
    };
    sender.stop();
    service.isDown = true;
    load();
    said(label(5, "a"));
    await clock.pass(0);
    said(label(6, "a"), label(7, "a"));
    service.isDown = false;
    await clock.pass(5000);
    expect(service.rows).toEqual([0, 1, 3, 2, 5, 7]);
    expect(queue.read().refused.map(({ entry, detail }) => [entry.row, detail])).toEqual([
      [6, "something is wrong"],
    ]);
  });

  it("waits for somebody to sign in, and goes on then", async () => {
    service.fate = [new Problem(401, { detail: "unknown key" })];
    said(label(1, "a"));
    await clock.pass(0);
    expect(sender.state()).toEqual({ kind: "signed-out" });
    said(label(2, "b"));
    await clock.pass(60_000);
    expect(service.rows).toEqual([]);
    sender.retry();
    await clock.pass(0);
    expect(service.rows).toEqual([1, 2]);
  });

  it("waits as long as it is told to, even if the network comes back", async () => {
    service.fate = [new Problem(429, { detail: "too many requests" }, 7)];
    said(label(1, "a"));
    await clock.pass(0);
    expect(sender.state()).toEqual({ kind: "waiting", until: clock.now() + 7000, why: "busy" });
    sender.retry();
    await clock.pass(6999);
    expect(service.requests).toHaveLength(1);
    await clock.pass(1);
    expect(service.rows).toEqual([1]);
  });

  it("says what the service says of anything else, and tries again when asked to", async () => {
    service.fate = [new Problem(403, { detail: "the key may not label" })];
    said(label(1, "a"));
    await clock.pass(60_000);
    expect(sender.state()).toEqual({ kind: "stuck", detail: "the key may not label" });
    expect(unsent(queue.read())).toHaveLength(1);
    sender.retry();
    await clock.pass(0);
    expect(service.rows).toEqual([1]);
  });

  it("sends what is left when the tab is closed, and nothing of it twice on the next visit", async () => {
    said(label(1, "a"), label(2, "b"), label(1, "c"));
    sender.flush(); // the first is under way: of its row the order counts, so that one waits
    sender.stop();
    await clock.pass(0);
    expect(service.rows.toSorted()).toEqual([1, 2]);
    load();
    await clock.pass(0);
    expect(service.events).toEqual([
      [1, { kind: "label", value: "a" }],
      [2, { kind: "label", value: "b" }],
      [1, { kind: "label", value: "c" }],
    ]);
  });

  it("sends nothing in a tab that has not the lease", async () => {
    let isHolder = false;
    sender.stop();
    load(() => isHolder);
    said(label(1, "a"));
    await clock.pass(60_000);
    expect(service.requests).toEqual([]);
    isHolder = true;
    sender.kick();
    await clock.pass(0);
    expect(service.rows).toEqual([1]);
  });
});

describe("the last label", () => {
  it("is held for 5 s, also over a reload, and sent then", async () => {
    queue.change((kept) => hold(kept, label(1, "a"), clock.now() + 5000));
    sender.kick();
    await clock.pass(3000);
    sender.stop();
    load();
    await clock.pass(1999);
    expect(service.rows).toEqual([]);
    await clock.pass(1);
    expect(service.rows).toEqual([1]);
  });

  it("is sent at once by a visit after that", async () => {
    queue.change((kept) => hold(kept, label(1, "a"), clock.now() + 5000));
    sender.stop();
    clock.sleep(3600_000);
    load();
    await clock.pass(0);
    expect(service.rows).toEqual([1]);
  });

  it("is gone when it is undone", async () => {
    queue.change((kept) => hold(kept, label(1, "a"), clock.now() + 5000));
    sender.kick();
    queue.change((kept) => unsay(kept, "1=a", retract(1)));
    await clock.pass(60_000);
    expect([service.requests, unsent(queue.read())]).toEqual([[], []]);
  });
});

describe("unsaying", () => {
  const sayings = (kept: ReturnType<Queue["read"]>) =>
    unsent(kept).map(({ row, saying }) => [row, saying.kind]);

  it("drops what was not sent", () => {
    const kept = say(say(emptyQueue(place), label(1, "a")), label(2, "b"));
    expect(sayings(unsay(kept, "1=a", retract(1)))).toEqual([[2, "label"]]);
  });

  it("takes back what was sent, or is under way", () => {
    const underWay = freeze(say(emptyQueue(place), label(1, "a")), () => "k");
    expect(sayings(unsay(underWay, "1=a", retract(1)))).toEqual([
      [1, "label"],
      [1, "retract"],
    ]);
    expect(sayings(unsay(emptyQueue(place), "1=a", retract(1)))).toEqual([[1, "retract"]]);
  });

  it("says again what a correction had replaced", () => {
    const corrected = say(say(emptyQueue(place), label(1, "a")), label(1, "b"));
    expect(unsent(corrected).map(({ id }) => id)).toEqual(["1=b"]);
    expect(unsent(unsay(corrected, "1=b", label(1, "a", "new"))).map(({ id }) => id)).toEqual(["1=a"]);
  });

  it("takes a refused one off the list", () => {
    const kept = park(
      freeze(say(emptyQueue(place), label(1, "a")), () => "k"),
      "k",
      0,
      "no",
      "k2",
    );
    expect(kept.refused).toHaveLength(1);
    const undone = unsay(kept, "1=a", retract(1));
    expect([undone.refused, unsent(undone)]).toEqual([[], []]);
  });
});

describe("what is kept", () => {
  it("never mixes two annotators, or two rounds", () => {
    const grace = openQueue(storage, { ...place, annotator: "grace" }, clock.now);
    grace.change((kept) => say(kept, label(1, "g")));
    queue.change((kept) => say(kept, label(1, "a")));
    const other = openQueue(storage, { ...place, roundId: "r2" }, clock.now);
    expect([unsent(grace.read())[0]?.id, unsent(queue.read())[0]?.id, unsent(other.read())]).toEqual([
      "1=g",
      "1=a",
      [],
    ]);
    expect(
      storedQueues(storage)
        .map((kept) => kept.place.annotator)
        .toSorted(),
    ).toEqual(["ada", "grace"]);
  });

  it("is seen by another tab at once", () => {
    const other = openQueue(storage, place, clock.now);
    queue.change((kept) => say(kept, label(1, "a")));
    expect(unsent(other.read())).toHaveLength(1);
    other.change((kept) => say(kept, label(2, "b")));
    expect(unsent(queue.read())).toHaveLength(2);
  });

  it("stays in the tab, and says so, where the browser keeps nothing", () => {
    storage.isFull = true;
    queue.change((kept) => say(kept, label(1, "a")));
    expect([unsent(queue.read()).length, queue.isUnsafe()]).toEqual([1, true]);
    storage.isFull = false;
    queue.change((kept) => say(kept, label(2, "b")));
    expect([unsent(queue.read()).length, queue.isUnsafe()]).toEqual([2, false]);
    expect(unsent(storedQueues(storage)[0] ?? emptyQueue(place))).toHaveLength(2);
  });

  it("starts anew where something else wrote there", () => {
    storage.setItem("bensemble.queue.r.ada", "{]");
    expect(openQueue(storage, place, clock.now).read()).toEqual(emptyQueue(place));
  });

  it("remembers the last fifty, a row once", () => {
    const recent = (row: number, entryId = `${row}`) =>
      ({ entryId, row, key: "", saying: { kind: "skip" }, before: null, group: entryId }) as const;
    let kept = emptyQueue(place);
    for (let row = 0; row < 52; row++) kept = remember(kept, recent(row));
    expect([kept.recent.length, kept.recent[0]?.row]).toEqual([50, 2]);
    kept = remember(kept, recent(5, "again"));
    expect(kept.recent.slice(-2).map(({ row }) => row)).toEqual([51, 5]);
    expect(kept.recent.filter(({ row }) => row === 5)).toHaveLength(1);
    expect(forget(kept, "again").recent).toHaveLength(49);
  });

  it("is counted over all rounds and annotators, what was refused too", () => {
    queue.change((kept) => say(kept, label(1, "a")));
    const grace = openQueue(storage, { ...place, annotator: "grace" }, clock.now);
    grace.change((kept) => hold(kept, label(1, "g"), 0));
    const other = openQueue(storage, { ...place, roundId: "r2" }, clock.now);
    other.change((kept) =>
      park(
        freeze(say(kept, label(1, "x")), () => "k"),
        "k",
        0,
        "no",
        "k2",
      ),
    );
    expect(unsentLabels(storage)).toBe(3);
  });

  it("is thrown away a month after the round, unless something waits", () => {
    const month = 31 * 24 * 3600 * 1000;
    queue.change((kept) => ({ ...kept, isEnded: true }));
    const other = openQueue(storage, { ...place, roundId: "r2" }, clock.now);
    other.change((kept) => say(kept, label(1, "a")));
    pruneQueues(storage, clock.now() + month);
    expect(storedQueues(storage).map((kept) => kept.place.roundId)).toEqual(["r2"]);
  });
});

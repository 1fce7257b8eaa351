import { beforeEach, describe, expect, it } from "vitest";
import { Problem, Unreachable } from "../api/problem";
import type { Project, Round } from "../api/types";
import { FakeClock, FakeStorage, settled } from "./fakes";
import { sendLeftovers, type Waiting } from "./leftovers";
import { unsent, type Batch, type Place } from "./queue";
import type { Requests } from "./requests";
import { startLabelling, type Labelling } from "./session";

const EXPIRES = 600;

/** A round of the service: what is open, who holds it, and what was said. */
class FakeRound implements Requests {
  history: { row: number; annotator: string; said: unknown }[] = [];
  holds = new Map<number, { annotator: string; until: number }>();
  asked: number[] = [];
  released: number[][] = [];
  isDown = false;
  key401: string | null = null;
  private answered = new Set<string>();

  constructor(
    readonly clock: FakeClock,
    readonly n: number,
  ) {}

  private answer(row: number): unknown {
    const last = this.history.findLast((said) => said.row === row)?.said;
    return last === "retract" ? undefined : last;
  }

  get open(): number[] {
    return Array.from({ length: this.n }, (_, row) => row).filter((row) => this.answer(row) === undefined);
  }

  private isComplete = false;

  next = async ({ annotator }: Place, count: number) => {
    this.asked.push(count);
    await this.arrive();
    const now = this.clock.now();
    const holder = (row: number) => {
      const held = this.holds.get(row);
      return held !== undefined && held.until > now ? held.annotator : null;
    };
    const open = this.isComplete ? [] : this.open;
    const own = open.filter((row) => this.holds.get(row)?.annotator === annotator && holder(row) !== null);
    const fresh = open.filter((row) => holder(row) === null);
    const rows = [...own, ...fresh].slice(0, count);
    for (const row of rows) this.holds.set(row, { annotator, until: now + EXPIRES * 1000 });
    const others = open.filter((row) => !rows.includes(row)).map((row) => this.holds.get(row)?.until ?? 0);
    return {
      items: rows.map((row) => ({ rank: row, row, key: `k${row}`, payload: null, x: [row], expires_at: "" })),
      n_left: open.length,
      free_at: rows.length < count && others.length > 0 ? new Date(Math.min(...others)).toISOString() : null,
      expires_in: EXPIRES,
      clockAhead: 0,
    };
  };

  post = async ({ key, to, entries }: Batch, { annotator }: Place) => {
    await this.arrive();
    if (this.answered.has(key)) return {};
    if (to === "round" && this.isComplete) throw new Problem(409, { detail: "this round is complete" });
    this.answered.add(key);
    for (const { row, saying } of entries) {
      this.history.push({ row, annotator, said: saying.kind === "label" ? saying.value : saying.kind });
    }
    if (this.open.length === 0) this.isComplete = true;
    return {};
  };

  release = async (_: Place, rows: number[]) => {
    this.released.push(rows);
    await this.arrive();
    for (const row of rows) this.holds.delete(row);
  };

  items = async (_: Place, rows: number[]) => {
    await this.arrive();
    return rows.map((row) => ({ row, key: `k${row}`, payload: null, x: [row] }));
  };

  round = async () => {
    await this.arrive();
    return this.view;
  };

  get view(): Round {
    return {
      id: "r",
      project_id: "p",
      pool_id: "pool",
      number: 4,
      overlap: 1,
      retrain: true,
      status: this.isComplete ? "complete" : "open",
      n_items: this.n,
      n_done: this.n - this.open.length,
    } as Round;
  }

  private async arrive(): Promise<void> {
    await Promise.resolve();
    if (this.isDown) throw new Unreachable(new Error("down"));
  }

  /** Who said what, in order. */
  get said(): [number, unknown][] {
    return this.history.map(({ row, said }) => [row, said]);
  }
}

const project = {
  id: "p",
  task: { kind: "classification", classes: ["a", "b"] },
  input: { shape: [1] },
  display: null,
} as unknown as Project;

let clock: FakeClock;
let storage: FakeStorage;
let service: FakeRound;
let ids: number;

function tab(name = "tab", annotator = "ada"): Labelling {
  const labelling = startLabelling({
    project,
    round: service.view,
    annotator,
    requests: service,
    storage,
    clock,
    tab: name,
    newId: () => `id ${(ids += 1)}`,
  });
  labelling.enter();
  return labelling;
}

const say = (labelling: Labelling, value: string) => labelling.answer({ kind: "label", value });
const rows = (labelling: Labelling) => labelling.snapshot().state.items.map(({ row }) => row);

function start(n: number): void {
  clock = new FakeClock();
  storage = new FakeStorage();
  service = new FakeRound(clock, n);
  ids = 0;
}

beforeEach(() => start(20));

describe("labelling", () => {
  it("holds eight, and asks for more when four are left, without waiting for any", async () => {
    const ada = tab();
    await settled();
    expect([rows(ada), service.asked]).toEqual([[0, 1, 2, 3, 4, 5, 6, 7], [8]]);
    for (const value of ["a", "b", "a"]) say(ada, value);
    await settled();
    expect(service.asked).toEqual([8]);
    say(ada, "b");
    expect(rows(ada)).toEqual([4, 5, 6, 7]);
    await settled();
    expect(rows(ada).slice(0, 8)).toEqual([4, 5, 6, 7, 8, 9, 10, 11]);
    expect(service.said).toEqual([
      [0, "a"],
      [1, "b"],
      [2, "a"],
      [3, "b"],
    ]);
    expect(ada.snapshot().state.left).toBe(16);
  });

  it("shows nothing twice that was answered while the service is slow", async () => {
    const ada = tab();
    await settled();
    for (let i = 0; i < 8; i++) say(ada, "a"); // faster than any answer
    expect(rows(ada)).toEqual([]);
    await settled();
    await clock.pass(0);
    expect(rows(ada).slice(0, 5)).toEqual([8, 9, 10, 11, 12]);
    expect(service.said.map(([row]) => row)).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
  });

  it("is in the storage before the screen moves", async () => {
    const ada = tab();
    await settled();
    const seen: number[] = [];
    ada.subscribe(() => {
      const { kept, state } = ada.snapshot();
      if (state.items[0]?.row === 1) seen.push(kept.recent.length);
    });
    say(ada, "a");
    expect(seen[0]).toBe(1);
  });

  it("goes on while the service is away, and with what was said before a reload", async () => {
    const ada = tab();
    await settled();
    service.isDown = true;
    for (let i = 0; i < 5; i++) say(ada, "a");
    await clock.pass(10_000);
    expect([rows(ada), service.said]).toEqual([[5, 6, 7], []]);
    expect(ada.snapshot().trouble).toBeInstanceOf(Unreachable);
    ada.leave();
    const again = tab("tab");
    await clock.pass(5000);
    expect(unsent(again.snapshot().kept)).toHaveLength(5);
    service.isDown = false;
    again.retry();
    await clock.pass(1000);
    expect(service.said.map(([row]) => row)).toEqual([0, 1, 2, 3, 4]);
    expect(again.snapshot().trouble).toBeNull();
    expect(rows(again).slice(0, 3)).toEqual([5, 6, 7]);
    expect(again.snapshot().state.known[4]).toMatchObject({ row: 4, x: [4] });
  });

  it("gives two annotators different items", async () => {
    const [ada, grace] = [tab("one", "ada"), tab("two", "grace")];
    await settled();
    expect([rows(ada), rows(grace)]).toEqual([
      [0, 1, 2, 3, 4, 5, 6, 7],
      [8, 9, 10, 11, 12, 13, 14, 15],
    ]);
    say(ada, "a");
    say(grace, "b");
    await settled();
    expect(service.history).toEqual([
      { row: 0, annotator: "ada", said: "a" },
      { row: 8, annotator: "grace", said: "b" },
    ]);
  });

  it("gives back what was not answered when somebody leaves", async () => {
    const ada = tab("one", "ada");
    await settled();
    say(ada, "a");
    ada.leave();
    expect(service.released).toEqual([[1, 2, 3, 4, 5, 6, 7]]);
    await settled();
    const grace = tab("two", "grace");
    await settled();
    expect(rows(grace)).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
    expect(service.said).toEqual([[0, "a"]]);
  });
});

describe("undoing", () => {
  it("drops what was not sent", async () => {
    const ada = tab();
    await settled();
    service.isDown = true;
    say(ada, "a");
    await settled();
    say(ada, "b");
    ada.undo();
    expect([rows(ada)[0], ada.snapshot().state.old[1]]).toEqual([1, { kind: "label", value: "b" }]);
    service.isDown = false;
    await clock.pass(2000);
    expect(service.said).toEqual([[0, "a"]]);
  });

  it("takes back what is under way once it has arrived", async () => {
    const ada = tab();
    await settled();
    say(ada, "a");
    ada.undo();
    await settled();
    expect(service.said).toEqual([
      [0, "a"],
      [0, "retract"],
    ]);
    expect(rows(ada)[0]).toBe(0);
    say(ada, "b");
    await settled();
    expect(service.said.at(-1)).toEqual([0, "b"]);
  });

  it("takes back what was sent, one after the other, and counts it as left again", async () => {
    const ada = tab();
    await settled();
    say(ada, "a");
    say(ada, "b");
    await settled();
    expect(ada.snapshot().state.left).toBe(18);
    ada.undo();
    ada.undo();
    await settled();
    expect(service.said.slice(2)).toEqual([
      [1, "retract"],
      [0, "retract"],
    ]);
    expect([rows(ada).slice(0, 3), ada.snapshot().state.left]).toEqual([[0, 1, 2], 20]);
    ada.undo(); // there is nothing left to undo
    await settled();
    expect(service.said).toHaveLength(4);
  });

  it("says again what a correction had changed", async () => {
    const ada = tab();
    await settled();
    say(ada, "a");
    await settled();
    ada.look(0);
    say(ada, "b");
    await settled();
    expect(rows(ada)[0]).toBe(1);
    ada.undo();
    await settled();
    expect(service.said).toEqual([
      [0, "a"],
      [0, "b"],
      [0, "a"],
    ]);
    ada.undo();
    await settled();
    expect([service.said.at(-1), rows(ada)[0]]).toEqual([[0, "retract"], 0]);
  });

  it("sends nothing where a correction says the same", async () => {
    const ada = tab();
    await settled();
    say(ada, "a");
    await settled();
    ada.look(0);
    say(ada, "a");
    await settled();
    expect([service.said, ada.snapshot().state.lookingAt]).toEqual([[[0, "a"]], null]);
  });

  it("looks back and forward through what was said", async () => {
    const ada = tab();
    await settled();
    for (const value of ["a", "b", "a"]) say(ada, value);
    const looking = () => ada.snapshot().state.lookingAt;
    const seen = [-1, -1, -1, -1, 1, 1, 1, 1].map((by) => (ada.turn(by as -1 | 1), looking()));
    expect(seen).toEqual([2, 1, 0, 0, 1, 2, null, null]);
  });

  it("undoes what was said together, together", async () => {
    const ada = tab();
    await settled();
    ada.grid(true);
    await settled();
    ada.move(1, true);
    ada.move(1, true);
    say(ada, "b");
    await settled();
    expect(service.said).toEqual([
      [0, "b"],
      [1, "b"],
      [2, "b"],
    ]);
    ada.undo();
    await settled();
    expect(service.open).toHaveLength(20);
    expect(rows(ada).slice(0, 4)).toEqual([0, 1, 2, 3]);
  });
});

describe("the last label", () => {
  beforeEach(() => start(3));

  it("waits 5 s before it starts a training, and tells of the end then", async () => {
    const ada = tab();
    await settled();
    for (const value of ["a", "b", "a"]) say(ada, value);
    await clock.pass(4999);
    expect([service.said.length, ada.snapshot().kept.held?.entry.row]).toEqual([2, 2]);
    expect(ada.snapshot().round.status).toBe("open");
    await clock.pass(1);
    expect(service.said.length).toBe(3);
    expect(ada.snapshot().round.status).toBe("complete");
  });

  it("is sent at once on Enter, and never on Backspace", async () => {
    const ada = tab();
    await settled();
    for (const value of ["a", "b", "a"]) say(ada, value);
    ada.undo();
    await clock.pass(60_000);
    expect([service.said.length, rows(ada)]).toEqual([2, [2]]);
    say(ada, "b");
    ada.confirm();
    await settled();
    expect(service.said.at(-1)).toEqual([2, "b"]);
    expect(ada.snapshot().round.status).toBe("complete");
  });

  it("waits on over a reload, and is not shown as open", async () => {
    const ada = tab();
    await settled();
    for (const value of ["a", "b", "a"]) say(ada, value);
    await clock.pass(2000);
    ada.leave();
    const again = tab();
    await clock.pass(2000);
    expect([rows(again), service.said.length, again.snapshot().kept.held !== null]).toEqual([[], 2, true]);
    await clock.pass(1000);
    expect(service.said.length).toBe(3);
  });

  it("can be corrected after the end, in the project", async () => {
    const ada = tab();
    await settled();
    for (const value of ["a", "b", "a"]) say(ada, value);
    ada.confirm();
    await settled();
    ada.look(1);
    say(ada, "a");
    await settled();
    expect(service.said.at(-1)).toEqual([1, "a"]);
  });
});

describe("time", () => {
  it("renews the holds at 80 % of their time", async () => {
    const ada = tab();
    await settled();
    await clock.pass(479_999);
    expect(service.asked).toEqual([8]);
    await clock.pass(1);
    expect(service.asked).toEqual([8, 8]);
    expect(service.holds.get(0)?.until).toBe(clock.now() + EXPIRES * 1000);
    expect(rows(ada)).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
  });

  it("drops what went to others while the machine slept, and says how many", async () => {
    start(5);
    const ada = tab("one", "ada");
    await settled();
    clock.sleep(700_000);
    for (const row of [1, 3]) service.holds.set(row, { annotator: "grace", until: clock.now() + 600_000 });
    ada.wake();
    await settled();
    expect([rows(ada), ada.snapshot().state.nLost]).toEqual([[0, 2, 4], 2]);
  });

  it("says till when others hold the rest, and takes it then", async () => {
    start(3);
    for (const row of [0, 1, 2]) service.holds.set(row, { annotator: "grace", until: clock.now() + 90_000 });
    const ada = tab("one", "ada");
    await settled();
    const { state } = ada.snapshot();
    expect([rows(ada), state.left, state.freeAt]).toEqual([[], 3, clock.now() + 90_000]);
    await clock.pass(92_000);
    expect(rows(ada)).toEqual([0, 1, 2]);
  });
});

describe("two tabs of one annotator", () => {
  it("one labels, the other says so and can take over", async () => {
    const first = tab("first");
    await settled();
    const second = tab("second");
    await settled();
    expect([first.snapshot().isElsewhere, second.snapshot().isElsewhere]).toEqual([false, true]);
    expect(rows(second)).toEqual([]);
    say(first, "a");
    await settled();
    second.takeOver();
    await settled();
    expect([first.snapshot().isElsewhere, second.snapshot().isElsewhere]).toEqual([true, false]);
    expect(rows(second)[0]).toBe(1);
    say(first, "b"); // too late: it shows that the other one labels
    say(second, "a");
    await clock.pass(5000);
    expect(service.said).toEqual([
      [0, "a"],
      [1, "a"],
    ]);
  });

  it("what one could not send the other sends, once", async () => {
    const first = tab("first");
    await settled();
    service.isDown = true;
    say(first, "a");
    await settled();
    const second = tab("second");
    second.takeOver();
    service.isDown = false;
    second.retry();
    await clock.pass(60_000);
    expect(service.said).toEqual([[0, "a"]]);
    expect(unsent(first.snapshot().kept)).toEqual([]);
  });
});

describe("what was refused", () => {
  it("is listed, kept out of sight, and can be corrected or dropped", async () => {
    const ada = tab();
    await settled();
    const { post } = service;
    service.post = (batch, place) => {
      const index = batch.entries.findIndex(({ saying }) => saying.kind === "label" && saying.value === "x");
      const errors = [{ pointer: `/labels/${index}/value`, detail: "unknown class 'x'" }];
      return index < 0 ? post(batch, place) : Promise.reject(new Problem(422, { detail: "no", errors }));
    };
    ada.leave();
    const again = tab();
    await settled();
    for (const value of ["x", "x", "a", "b", "a"]) say(again, value);
    await settled();
    await settled();
    const refused = () => again.snapshot().kept.refused.map(({ entry, detail }) => [entry.row, detail]);
    expect(refused()).toEqual([
      [0, "unknown class 'x'"],
      [1, "unknown class 'x'"],
    ]);
    expect(rows(again)).not.toContain(0);
    again.look(0);
    say(again, "b");
    again.dropRefused(again.snapshot().kept.refused[0]?.entry.id ?? "");
    await settled();
    expect(refused()).toEqual([]);
    expect(service.said.find(([row]) => row === 0)).toEqual([0, "b"]);
    expect(rows(again)).toContain(1); // nothing was said of it after all
  });
});

describe("what earlier visits left", () => {
  it("is sent from any page, if it is this annotator's", async () => {
    const [ada, grace] = [tab("one", "ada"), tab("two", "grace")];
    await settled();
    service.isDown = true;
    say(ada, "a");
    say(grace, "b");
    say(grace, "b");
    await settled();
    ada.leave();
    grace.leave();
    await clock.pass(1000);
    const looks: Waiting[] = [];
    const left = sendLeftovers({
      annotator: "ada",
      requests: service,
      storage,
      clock,
      tab: "three",
      newId: () => `id ${(ids += 1)}`,
      onLook: (waiting) => looks.push(waiting),
    });
    await settled();
    await clock.pass(3000);
    expect(looks.at(-1)).toEqual({ nOwn: 1, others: [{ annotator: "grace", n: 2 }] });
    service.isDown = false;
    left.retry();
    await settled();
    expect(service.history).toEqual([{ row: 0, annotator: "ada", said: "a" }]);
    expect(looks.at(-1)?.nOwn).toBe(0);
    left.stop();
  });

  it("is left to the tab that labels", async () => {
    const ada = tab("one", "ada");
    await settled();
    service.isDown = true;
    say(ada, "a");
    await settled();
    const looks: Waiting[] = [];
    const left = sendLeftovers({
      annotator: "ada",
      requests: service,
      storage,
      clock,
      tab: "one, rest",
      newId: () => `id ${(ids += 1)}`,
      onLook: (waiting) => looks.push(waiting),
    });
    await clock.pass(5000);
    expect(looks.at(-1)).toEqual({ nOwn: 0, others: [] });
    service.isDown = false;
    await clock.pass(30_000);
    expect(service.said).toEqual([[0, "a"]]);
    left.stop();
  });
});

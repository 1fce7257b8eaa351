import { describe, expect, it } from "vitest";
import { reduce, started, targets, type Action, type Handed, type State, type Work } from "./reducer";

const work = (row: number): Work => ({ row, key: `k${row}`, payload: null, x: [row] });
const handed = (rows: number[], changes: Partial<Handed> = {}): Handed => ({
  kind: "handed",
  items: rows.map(work),
  nLeft: rows.length,
  freeAt: null,
  answered: new Set(),
  unsure: new Set(),
  refused: new Set(),
  isWhole: false,
  now: 5000,
  ...changes,
});
const after = (...actions: Action[]): State => actions.reduce(reduce, started(0));
const answered = (...rows: number[]): Action => ({
  kind: "answered",
  rows,
  by: "1",
  isDone: true,
  now: 7000,
});
const rowsOf = ({ items }: State) => items.map(({ row }) => row);

describe("items", () => {
  it("are shown in the order in which they were handed out, each once", () => {
    const state = after(handed([5, 3, 8]), handed([5, 3, 8, 1, 2]));
    expect([rowsOf(state), targets(state)]).toEqual([[5, 3, 8, 1, 2], [5]]);
  });

  it("that were answered here are not shown again, though the service does not know yet", () => {
    const state = after(
      handed([5, 3, 8], { nLeft: 20 }),
      answered(5),
      handed([5, 3, 8, 1], { nLeft: 20, answered: new Set([5]) }),
    );
    expect([rowsOf(state), state.left]).toEqual([[3, 8, 1], 19]);
  });

  it("that were refused stay out of sight, and still count as left", () => {
    const state = after(handed([5, 3], { nLeft: 2, refused: new Set([5]) }));
    expect([rowsOf(state), state.left]).toEqual([[3], 2]);
  });

  it("that went to others are counted, where the service had no more to give", () => {
    const partly = after(handed([1, 2, 3]), handed([2], { isWhole: false }));
    expect([rowsOf(partly), partly.nLost]).toEqual([[1, 2, 3], 0]);
    const wholly = after(handed([1, 2, 3]), handed([2], { isWhole: true }));
    expect([rowsOf(wholly), wholly.nLost, wholly.isDry]).toEqual([[2], 2, true]);
    expect(reduce(wholly, { kind: "read" }).nLost).toBe(0);
  });

  it("that came back are kept while the service has not heard of it", () => {
    const back: Action = {
      kind: "returned",
      row: 1,
      key: "k1",
      old: { kind: "skip" },
      isDone: true,
      now: 8000,
    };
    const state = after(
      handed([1, 2]),
      answered(1),
      back,
      handed([2], { isWhole: true, nLeft: 1, unsure: new Set([1]) }),
    );
    expect([rowsOf(state), state.nLost, state.left]).toEqual([[1, 2], 0, 2]);
  });

  it("are shown anew only when the first is another one", () => {
    const first = after(handed([1, 2], { now: 5000 }));
    expect(first.shown).toEqual({ at: 5000, by: null });
    expect(reduce(first, handed([1, 2, 3], { now: 6000 })).shown.at).toBe(5000);
    expect(reduce(first, answered(1)).shown).toEqual({ at: 7000, by: "1" });
  });
});

describe("answers", () => {
  it("move the screen on, and count down", () => {
    const state = after(handed([1, 2, 3], { nLeft: 12 }), answered(1));
    expect([rowsOf(state), state.left, state.known[1]]).toEqual([[2, 3], 11, work(1)]);
  });

  it("count nothing down where others answer the same items", () => {
    const state = after(handed([1, 2], { nLeft: 12 }), {
      kind: "answered",
      rows: [1],
      by: null,
      isDone: false,
      now: 1,
    });
    expect(state.left).toBe(12);
  });

  it("come back with what was said, first in line", () => {
    const state = after(handed([1, 2, 3], { nLeft: 3 }), answered(1), answered(2), {
      kind: "returned",
      row: 2,
      key: "k2",
      old: { kind: "label", value: "cat" },
      isDone: true,
      now: 8000,
    });
    expect([rowsOf(state), state.left, state.old[2]]).toEqual([[2, 3], 2, { kind: "label", value: "cat" }]);
    expect(state.items[0]).toEqual(work(2));
    expect(reduce(state, answered(2)).old).toEqual({});
  });

  it("are corrected by looking at them again", () => {
    const looking = after(handed([1, 2, 3], { nLeft: 3 }), answered(1), {
      kind: "looked",
      row: 1,
      now: 8000,
    });
    expect(targets(looking)).toEqual([1]);
    const corrected = reduce(looking, answered(1));
    expect([targets(corrected), rowsOf(corrected), corrected.left]).toEqual([[2], [2, 3], 2]);
  });
});

describe("the grid", () => {
  const grid = after(handed([1, 2, 3, 4, 5]), { kind: "gridded", isOn: true, now: 9 });
  const moved = (by: number, isSelecting = false): Action => ({ kind: "moved", by, isSelecting });

  it("answers the item under the cursor", () => {
    expect(targets(grid)).toEqual([1]);
    expect(targets(reduce(grid, moved(1)))).toEqual([2]);
    expect(targets(reduce(grid, moved(-1)))).toEqual([1]);
    expect(targets(reduce(grid, moved(99)))).toEqual([5]);
  });

  it("answers what was selected, together", () => {
    const selected = [moved(1), moved(1, true), moved(1, true)].reduce(reduce, grid);
    expect(targets(selected)).toEqual([2, 3, 4]);
    const gone = reduce(selected, answered(2, 3, 4));
    expect([rowsOf(gone), gone.grid]).toEqual([[1, 5], { cursor: 1, selected: [] }]);
    expect(targets(reduce(selected, moved(1)))).toEqual([5]);
  });

  it("is selected in by clicking, too", () => {
    const two = [1, 4].reduce((state, row) => reduce(state, { kind: "selected", row }), grid);
    expect(targets(two)).toEqual([1, 4]);
    expect(targets(reduce(two, { kind: "selected", row: 1 }))).toEqual([4]);
  });
});

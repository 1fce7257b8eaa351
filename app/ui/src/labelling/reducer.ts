/** What is on the screen while labelling, as a pure function of what happened. What was said is the queue's to know. */
import type { NextItem } from "../api/types";
import type { Showing } from "./keys";
import type { Saying } from "./saying";

/** An item as it is shown. */
export type Work = Pick<NextItem, "row" | "key" | "payload" | "x">;

export interface State {
  /** To be answered, the first is shown. */
  items: readonly Work[];
  /** Answered ones, by row: they are shown again in the strip, or when they come back. */
  known: Readonly<Record<number, Work>>;
  /** Items of the round that still need an answer, from anybody; null before the first answer of the service. */
  left: number | null;
  /** When others' items may be free, by this machine's clock. */
  freeAt: number | null;
  /** There is no more to be had now: the service gave less than it was asked for. */
  isDry: boolean;
  /** The row that is looked at again; null: the first of `items`. */
  lookingAt: number | null;
  /** What had been said of items that came back. */
  old: Readonly<Record<number, Saying>>;
  /** Of the grid: null where one item is shown. */
  grid: { cursor: number; selected: readonly number[] } | null;
  shown: Showing;
  /** Items that went to others while nobody looked. */
  nLost: number;
}

export interface Handed {
  kind: "handed";
  items: readonly Work[];
  /** Open items of the round, as the service counts them. */
  nLeft: number;
  freeAt: number | null;
  /** Rows that were answered here and that the service did not know of. */
  answered: ReadonlySet<number>;
  /** Rows about which something is under way: what the service says of them may be old. */
  unsure: ReadonlySet<number>;
  /** Rows that are kept out of sight: those that were refused. */
  refused: ReadonlySet<number>;
  /** The service had no more to give, so that what it left out is no longer this annotator's. */
  isWhole: boolean;
  now: number;
}

export type Action =
  | Handed
  | { kind: "known"; items: readonly Work[] }
  | {
      kind: "answered";
      rows: readonly number[];
      /** The key that did it, if one did. */
      by: string | null;
      /** Whether the service needs nobody else's answer to these. */
      isDone: boolean;
      now: number;
    }
  /** An answer was taken back. */
  | { kind: "returned"; row: number; key: string; old: Saying; isDone: boolean; now: number }
  | { kind: "looked"; row: number | null; now: number }
  | { kind: "gridded"; isOn: boolean; now: number }
  | { kind: "moved"; by: number; isSelecting: boolean }
  | { kind: "selected"; row: number }
  | { kind: "left" }
  | { kind: "read" };

export function started(now: number): State {
  return {
    items: [],
    known: {},
    left: null,
    freeAt: null,
    isDry: false,
    lookingAt: null,
    old: {},
    grid: null,
    shown: { at: now, by: null },
    nLost: 0,
  };
}

export function reduce(state: State, action: Action): State {
  switch (action.kind) {
    case "handed":
      return handed(state, action);
    case "known":
      return { ...state, known: { ...byRow(action.items), ...state.known } };
    case "answered":
      return answered(state, action);
    case "returned": {
      const work = state.known[action.row] ?? bare(action.row, action.key);
      return shownAnew(
        {
          ...state,
          items: [work, ...state.items.filter(({ row }) => row !== action.row)],
          left: state.left === null || !action.isDone ? state.left : state.left + 1,
          old: { ...state.old, [action.row]: action.old },
          lookingAt: null,
          grid: state.grid === null ? null : { cursor: action.row, selected: [] },
        },
        action.now,
      );
    }
    case "looked": {
      const isFirst = action.row === null || state.items[0]?.row === action.row;
      return shownAnew({ ...state, lookingAt: isFirst ? null : action.row }, action.now);
    }
    case "gridded": {
      const grid = action.isOn ? { cursor: state.items[0]?.row ?? -1, selected: [] } : null;
      return shownAnew({ ...state, grid, lookingAt: null }, action.now);
    }
    case "moved":
      return state.grid === null ? state : { ...state, grid: moved(state, state.grid, action) };
    case "selected":
      return state.grid === null ? state : { ...state, grid: toggled(state.grid, action.row) };
    case "left":
      return { ...state, items: [], isDry: false, lookingAt: null };
    case "read":
      return { ...state, nLost: 0 };
  }
}

/** The rows that the next answer is about. */
export function targets(state: State): number[] {
  if (state.lookingAt !== null) return [state.lookingAt];
  if (state.grid === null) return state.items[0] === undefined ? [] : [state.items[0].row];
  const { selected, cursor } = state.grid;
  const wanted = selected.length > 0 ? selected : [cursor];
  return state.items.map(({ row }) => row).filter((row) => wanted.includes(row));
}

function handed(state: State, action: Handed): State {
  const given = new Set(action.items.map(({ row }) => row));
  // Where the service gave less than it was asked for, whatever it left out has gone to somebody else.
  const isKept = ({ row }: Work) => !action.isWhole || given.has(row) || action.unsure.has(row);
  const kept = state.items.filter(isKept);
  const have = new Set(kept.map(({ row }) => row));
  const isNew = ({ row }: Work) => !have.has(row) && !action.answered.has(row) && !action.refused.has(row);
  const items = [...kept, ...action.items.filter(isNew)];
  const nAnswered = action.items.filter(({ row }) => action.answered.has(row)).length;
  const nBack = kept.filter(({ row }) => action.unsure.has(row) && !given.has(row)).length;
  const next: State = {
    ...state,
    items,
    left: Math.max(0, action.nLeft - nAnswered + nBack),
    freeAt: action.freeAt,
    isDry: action.isWhole,
    nLost: state.nLost + state.items.length - kept.length,
  };
  return gridOn(items[0]?.row === state.items[0]?.row ? next : shownAnew(next, action.now));
}

function answered(state: State, { rows, by, isDone, now }: Extract<Action, { kind: "answered" }>): State {
  const gone = state.items.filter(({ row }) => rows.includes(row));
  const next: State = {
    ...state,
    items: state.items.filter(({ row }) => !rows.includes(row)),
    known: { ...state.known, ...byRow(gone) },
    left: state.left === null || !isDone ? state.left : Math.max(0, state.left - gone.length),
    old: Object.fromEntries(Object.entries(state.old).filter(([row]) => !rows.includes(Number(row)))),
    lookingAt: null,
    shown: { at: now, by },
  };
  return gridOn(next);
}

function shownAnew(state: State, now: number): State {
  return { ...state, shown: { at: now, by: null } };
}

/** The cursor of the grid stands on an item that is there. */
function gridOn(state: State): State {
  if (state.grid === null) return state;
  const rows = state.items.map(({ row }) => row);
  const { cursor, selected } = state.grid;
  return {
    ...state,
    grid: {
      cursor: rows.includes(cursor) ? cursor : (rows[0] ?? -1),
      selected: selected.filter((row) => rows.includes(row)),
    },
  };
}

function moved(
  { items }: State,
  { cursor, selected }: NonNullable<State["grid"]>,
  { by, isSelecting }: { by: number; isSelecting: boolean },
): State["grid"] {
  const from = items.findIndex(({ row }) => row === cursor);
  const to = Math.min(items.length - 1, Math.max(0, from + by));
  const passed = items.slice(Math.min(from, to), Math.max(from, to) + 1).map(({ row }) => row);
  return {
    cursor: items[to]?.row ?? cursor,
    selected: isSelecting ? [...new Set([...selected, ...passed])] : [],
  };
}

function toggled({ selected }: NonNullable<State["grid"]>, row: number): State["grid"] {
  const isOn = selected.includes(row);
  return { cursor: row, selected: isOn ? selected.filter((other) => other !== row) : [...selected, row] };
}

function byRow(items: readonly Work[]): Record<number, Work> {
  return Object.fromEntries(items.map((item) => [item.row, item]));
}

function bare(row: number, key: string): Work {
  return { row, key, payload: null, x: null };
}

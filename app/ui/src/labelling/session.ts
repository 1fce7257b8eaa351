/**
 * Somebody labels a round: what is on the screen, what is kept, who sends. React only draws it, since keys come faster
 * than it does: every press meets the state as it is.
 */
import { Problem } from "../api/problem";
import type { Project, Round } from "../api/types";
import type { Clock } from "./clock";
import { openLease, type Lease } from "./lease";
import { givenAtMost, howMany, needsFeatures, toRenew } from "./prefetch";
import {
  drop,
  forget,
  hold,
  letGo,
  openQueue,
  remember,
  say,
  unsay,
  unsent,
  type Kept,
  type Place,
  type Recent,
} from "./queue";
import { perMinute } from "./rate";
import { reduce, started, targets, type Action, type State, type Work } from "./reducer";
import type { Requests } from "./requests";
import { isSame, type Entry, type Saying } from "./saying";
import { startSender, type Sender, type Sending } from "./sender";

export const HOLD_MS = 5000;
/** Of the time for which items are held, when they are asked for again. */
const RENEW_AT = 0.8;
const LONGEST_WAIT = 30;

export interface Snapshot {
  state: State;
  kept: Kept;
  sending: Sending;
  round: Round;
  /** Another tab of this annotator labels this round. */
  isElsewhere: boolean;
  /** The browser keeps nothing: what is said lives as long as the tab. */
  isUnsafe: boolean;
  /** Why no items come; null where they do. */
  trouble: unknown;
  isAsking: boolean;
  rate: number | null;
}

interface Options {
  project: Project;
  round: Round;
  annotator: string;
  requests: Requests;
  storage: Storage;
  clock: Clock;
  /** Names this tab. */
  tab: string;
  newId: () => string;
  /** Items that will be shown soon. */
  prepare?: (items: readonly Work[]) => void;
}

export interface Labelling {
  snapshot: () => Snapshot;
  subscribe: (listener: () => void) => () => void;
  /** Begins, or begins again after `leave`. */
  enter: () => void;
  /** Others get what was not answered; what was said is sent. */
  leave: () => void;
  answer: (saying: Saying, by?: string | null) => void;
  undo: () => void;
  /** One of the last ten; null: the item that is to be answered. */
  look: (row: number | null) => void;
  /** One back, one forward. */
  turn: (by: -1 | 1) => void;
  grid: (isOn: boolean) => void;
  move: (by: number, isSelecting: boolean) => void;
  select: (row: number) => void;
  /** The last label need not wait any longer. */
  confirm: () => void;
  dropRefused: (entryId: string) => void;
  /** Tries now: the network is back, somebody has signed in, or wants to. */
  retry: () => void;
  /** Asks for items: others may have given some back. */
  ask: () => void;
  takeOver: () => void;
  /** The tab is looked at again, or another one has written. */
  wake: () => void;
  /** The round was heard of. */
  hear: (round: Round) => void;
  readLost: () => void;
}

export function startLabelling({
  project,
  round: given,
  annotator,
  requests,
  storage,
  clock,
  tab,
  newId,
  prepare,
}: Options): Labelling {
  const place: Place = { projectId: project.id, poolId: given.pool_id, roundId: given.id, annotator };
  const queue = openQueue(storage, place, clock.now);
  const features = needsFeatures(project);
  const listeners = new Set<() => void>();
  const times: number[] = [];
  let round = given;
  let state = started(clock.now());
  let lease: Lease | null = null;
  let sender: Sender | null = null;
  let trouble: unknown = null;
  let failures = 0;
  /** Rows that were answered since items were asked for, or not sent before: the service may not know. Null: not asked. */
  let pending: Set<number> | null = null;
  let isWanted = false;
  let expiresAt = Infinity;
  let renewAt = Infinity;
  let cancelTimer: () => void = () => undefined;
  let cancelRetry: () => void = () => undefined;
  let current: Snapshot | null = null;

  queue.subscribe(tell);

  function tell(): void {
    current = null;
    for (const listener of listeners) listener();
  }

  function dispatch(action: Action): void {
    state = reduce(state, action);
    prepare?.(state.items);
    tell();
  }

  function isOpen(): boolean {
    return round.status === "open" && !queue.read().isEnded;
  }

  function nAnswered(): number {
    return unsent(queue.read()).filter(({ saying }) => saying.kind !== "retract").length;
  }

  /** Asks for items where some are needed. */
  function fill(): void {
    if (pending === null && howMany(state, nAnswered()) > 0) ask();
  }

  function ask(): void {
    if (pending !== null) {
      isWanted = true; // what made it necessary may have come after the request that is under way
      return;
    }
    if (lease?.isMine() !== true || !isOpen()) return;
    void askNow();
  }

  async function askNow(): Promise<void> {
    const count = toRenew(state, nAnswered());
    const mine = lease;
    const askedAt = clock.now();
    let hasCome = false;
    pending = new Set(unsent(queue.read()).map(({ row }) => row));
    isWanted = false;
    cancelRetry();
    tell();
    try {
      const next = await requests.next(place, count, features);
      if (mine !== lease) return; // left meanwhile, and others have them
      const { recent, refused } = queue.read();
      const answered = new Set(recent.map(({ row }) => row).filter((row) => pending?.has(row)));
      failures = 0;
      trouble = null;
      renewAt = askedAt + RENEW_AT * 1000 * next.expires_in;
      expiresAt = askedAt + 1000 * next.expires_in;
      dispatch({
        kind: "handed",
        items: next.items,
        nLeft: next.n_left,
        freeAt: next.free_at === null ? null : Date.parse(next.free_at) - next.clockAhead,
        answered,
        unsure: pending ?? new Set(),
        refused: new Set(refused.map(({ entry }) => entry.row)),
        isWhole: next.items.length < givenAtMost(count, project, features),
        now: clock.now(),
      });
      if (next.items.length === 0 && next.n_left === 0) await lookAtRound();
      plan();
      hasCome = true;
    } catch (error) {
      if (mine !== lease) return;
      trouble = error;
      if (error instanceof Problem && error.status < 500 && error.status !== 429 && error.status !== 408) {
        if (error.status === 409 || error.status === 404) await lookAtRound().catch(() => undefined);
      } else {
        failures += 1;
        const asked = error instanceof Problem ? error.retryAfter : null;
        cancelRetry = clock.after(1000 * (asked ?? Math.min(LONGEST_WAIT, 2 ** (failures - 1))), ask);
      }
    } finally {
      if (mine === lease) {
        pending = null;
        if (isWanted) ask();
        else if (hasCome) fill();
      }
      tell();
    }
  }

  async function lookAtRound(): Promise<void> {
    hear(await requests.round(place));
  }

  function hear(heard: Round): void {
    if (heard.id !== round.id) return;
    const wasOpen = round.status === "open";
    round = heard;
    if (heard.status === "complete" || heard.status === "closed") {
      queue.change((kept) => (kept.isEnded ? kept : { ...kept, isEnded: true }));
    }
    tell();
    if (heard.status === "open" && (!wasOpen || state.items.length === 0)) ask();
  }

  /** Renews the holds before they lapse; and when others' may have lapsed, asks for these. */
  function plan(): void {
    cancelTimer();
    const { freeAt, items } = state;
    const due =
      items.length > 0 ? renewAt : freeAt === null ? Infinity : Math.max(freeAt, clock.now()) + 1000;
    if (due < Infinity) cancelTimer = clock.after(Math.max(0, due - clock.now()), ask);
  }

  function look(row: number | null): void {
    dispatch({ kind: "looked", row, now: clock.now() });
  }

  /** True where this tab may speak; else it shows that another one does. */
  function mayAnswer(): boolean {
    return lease?.take() === true;
  }

  function entryOf(row: number, key: string, saying: Saying, leadTime: number | null): Entry {
    return { id: newId(), row, key, saying, leadTime, replaced: null };
  }

  function answer(saying: Saying, by: string | null = null): void {
    const rows = targets(state);
    if (rows.length === 0 || !mayAnswer()) return;
    const now = clock.now();
    const before = queue.read();
    const isCorrection = state.lookingAt !== null;
    const leadTime = isCorrection
      ? null
      : Math.max(0, Math.round((now - state.shown.at) / rows.length) / 1000);
    const group = newId();
    const isLast = !isCorrection && isOpen() && state.left !== null && state.left - rows.length <= 0;
    const isNews = (row: number) => !isSame(recentOf(before, row)?.saying, saying) || isRefused(before, row);
    const changed = isCorrection ? rows.filter(isNews) : rows;
    // Written before the screen moves: from here on nothing is lost.
    queue.change((kept) =>
      changed.reduce((known, row, i) => {
        const entry = entryOf(row, keyOf(known, row), saying, leadTime);
        const said = { entryId: entry.id, row, key: entry.key, saying, before: recentOf(known, row), group };
        const isHeld = isLast && i === changed.length - 1;
        return remember(isHeld ? hold(letGo(known), entry, now + HOLD_MS) : say(known, entry), said);
      }, kept),
    );
    for (const row of rows) pending?.add(row);
    if (!isCorrection) times.push(now);
    times.splice(0, times.length - 100);
    dispatch({ kind: "answered", rows, by, isDone: isDoneByOne(), now });
    sender?.kick();
    fill();
  }

  /** Where several annotators answer every item, one of them cannot say how many are left. */
  function isDoneByOne(): boolean {
    return round.overlap === 1;
  }

  function keyOf(kept: Kept, row: number): string {
    const known = state.items.find((item) => item.row === row) ?? state.known[row];
    return known?.key ?? recentOf(kept, row)?.key ?? String(row);
  }

  function undo(): void {
    const last = queue.read().recent.at(-1);
    if (last === undefined || !mayAnswer()) return;
    const group = queue.read().recent.filter((recent) => recent.group === last.group);
    for (const recent of group.toReversed()) undoOne(recent);
    sender?.kick();
  }

  function undoOne({ entryId, row, key, saying, before }: Recent): void {
    const instead = entryOf(row, key, before?.saying ?? { kind: "retract" }, null);
    const after = queue.change((kept) => forget(unsay(kept, entryId, instead), entryId));
    pending?.add(row);
    if (before !== null) {
      const isSaidAgain = unsent(after).some(({ id }) => id === instead.id);
      queue.change((kept) => remember(kept, isSaidAgain ? { ...before, entryId: instead.id } : before));
      look(null);
      return;
    }
    dispatch({ kind: "returned", row, key, old: saying, isDone: isDoneByOne(), now: clock.now() });
  }

  function turn(by: -1 | 1): void {
    const rows = queue.read().recent.map(({ row }) => row);
    const at = state.lookingAt === null ? rows.length : rows.indexOf(state.lookingAt);
    const to = Math.min(rows.length, Math.max(0, at + by));
    if (to !== at) look(rows[to] ?? null);
  }

  /** After a reload only rows and keys of the last answers are known: what they look like is asked for. */
  async function lookUpRecent(): Promise<void> {
    const { recent, refused } = queue.read();
    const wanted = [...recent.slice(-10), ...refused.map(({ entry }) => entry)].map(({ row }) => row);
    const rows = [...new Set(wanted)].filter((row) => state.known[row] === undefined);
    if (rows.length === 0) return;
    try {
      dispatch({ kind: "known", items: await requests.items(place, rows, features) });
    } catch {
      // The strip shows their keys, till it is tried again.
    }
  }

  /** Items whose hold may have lapsed while the machine slept are asked for before they are answered. */
  function wake(): void {
    queue.refresh();
    lease?.take();
    if (clock.now() >= renewAt || clock.now() >= expiresAt) ask();
    sender?.kick();
  }

  function onLease(): void {
    tell();
    if (lease?.isMine() === true) {
      queue.refresh();
      sender?.kick();
      fill();
    }
  }

  return {
    snapshot() {
      current ??= {
        state,
        kept: queue.read(),
        sending: sender?.state() ?? { kind: "idle" },
        round,
        isElsewhere: lease !== null && !lease.isMine(),
        isUnsafe: queue.isUnsafe(),
        trouble,
        isAsking: pending !== null,
        rate: perMinute(times, clock.now()),
      };
      return current;
    },
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    enter() {
      if (lease !== null) return;
      sender = startSender({
        queue,
        clock,
        post: requests.post,
        isHolder: () => lease?.isMine() === true,
        newKey: newId,
        onAccepted: () => {
          fill();
          // Of a round's end the last answer is the first to know.
          if (state.items.length > 0 || nAnswered() > 0) return;
          if (state.left === 0) void heardOfEnd();
          else ask();
        },
        onEnded: () => void heardOfEnd(),
      });
      sender.subscribe(tell);
      pending = null;
      lease = openLease({
        storage,
        clock,
        name: `${place.roundId}.${annotator}`,
        tab,
        isLabelling: true,
        onChange: () => onLease(),
      });
      onLease();
      void lookUpRecent();
    },
    leave() {
      if (lease === null) return;
      const isMine = lease.isMine();
      const rows = state.items.map(({ row }) => row);
      if (isMine) {
        sender?.flush();
        if (rows.length > 0 && isOpen()) {
          // Nobody waits for ten minutes because somebody went home; where it fails, that is what happens.
          requests.release(place, rows).catch(() => undefined);
        }
      }
      sender?.stop();
      lease.release();
      cancelTimer();
      cancelRetry();
      lease = null;
      sender = null;
      pending = null;
      dispatch({ kind: "left" });
    },
    answer,
    undo,
    look,
    turn,
    grid(isOn) {
      dispatch({ kind: "gridded", isOn, now: clock.now() });
      fill();
    },
    move: (by, isSelecting) => dispatch({ kind: "moved", by, isSelecting }),
    select: (row) => dispatch({ kind: "selected", row }),
    confirm() {
      if (!mayAnswer()) return;
      queue.change(letGo);
      sender?.kick();
    },
    dropRefused(entryId) {
      if (!mayAnswer()) return;
      queue.change((kept) => forget(drop(kept, entryId), entryId));
      ask();
    },
    retry() {
      sender?.retry();
      ask();
      void lookUpRecent();
    },
    ask,
    takeOver() {
      lease?.take(true);
      ask();
    },
    wake,
    hear,
    readLost: () => dispatch({ kind: "read" }),
  };

  async function heardOfEnd(): Promise<void> {
    await lookAtRound().catch(() => undefined); // heard of by the stream, else when items are asked for again
  }
}

function recentOf(kept: Kept, row: number): Recent | null {
  return kept.recent.find((recent) => recent.row === row) ?? null;
}

function isRefused(kept: Kept, row: number): boolean {
  return kept.refused.some(({ entry }) => entry.row === row);
}

/**
 * What was said and is not yet known to be saved, kept in localStorage: a label is there before the screen moves on.
 *
 * One record a round and annotator, so that labels of two people at one machine never mix; the storage itself belongs
 * to this service's address. Every change reads the record, changes it and writes it, without waiting in between:
 * several tabs may look at it, and the last word is what is stored.
 */
import type { Entry, Saying } from "./saying";

export interface Place {
  projectId: string;
  poolId: string;
  roundId: string;
  annotator: string;
}

/** Sent as it stands, again and again under the same key, until the service has answered. */
export interface Batch {
  key: string;
  /** A round that has ended takes no labels: then they go to its project. */
  to: "round" | "project";
  entries: Entry[];
}

export interface Refused {
  entry: Entry;
  detail: string;
}

/** One of the last that were answered. */
export interface Recent {
  entryId: string;
  row: number;
  key: string;
  saying: Saying;
  /** What this one corrected: null where nothing had been said. */
  before: Recent | null;
  /** Those that were said together are undone together. */
  group: string;
}

export interface Kept {
  place: Place;
  waiting: Entry[];
  batches: Batch[];
  refused: Refused[];
  /** The round's last label, which starts a training: it can be undone till then. */
  held: { entry: Entry; until: number } | null;
  /** Oldest first. */
  recent: Recent[];
  isEnded: boolean;
  changedAt: number;
}

export const MOST_AT_ONCE = 50;
/** Ten are shown; more can be undone. */
export const MOST_RECENT = 50;
const PREFIX = "bensemble.queue.";

export function emptyQueue(place: Place): Kept {
  return {
    place,
    waiting: [],
    batches: [],
    refused: [],
    held: null,
    recent: [],
    isEnded: false,
    changedAt: 0,
  };
}

/** Entries that the service may not have, in the order in which they were said. */
export function unsent(kept: Kept): Entry[] {
  const held = kept.held === null ? [] : [kept.held.entry];
  return [...kept.batches.flatMap(({ entries }) => entries), ...kept.waiting, ...held];
}

export function say(kept: Kept, entry: Entry): Kept {
  const held = kept.held?.entry.row === entry.row ? kept.held.entry : null;
  const replaced = kept.waiting.find(({ row }) => row === entry.row) ?? held;
  return {
    ...kept,
    waiting: [...kept.waiting.filter(({ row }) => row !== entry.row), { ...entry, replaced }],
    held: held === null ? kept.held : null,
    refused: kept.refused.filter((other) => other.entry.row !== entry.row),
  };
}

export function hold(kept: Kept, entry: Entry, until: number): Kept {
  return { ...kept, held: { entry, until } };
}

export function letGo(kept: Kept): Kept {
  return kept.held === null ? kept : say({ ...kept, held: null }, kept.held.entry);
}

/**
 * Unsays an entry: one that was not sent is dropped, and what it had replaced is back; of one that was sent, or may
 * have been, the service is told `instead`.
 */
export function unsay(kept: Kept, id: string, instead: Entry): Kept {
  if (kept.held?.entry.id === id) return { ...kept, held: null };
  const refused = kept.refused.filter(({ entry }) => entry.id !== id);
  if (refused.length < kept.refused.length) return { ...kept, refused };
  const dropped = kept.waiting.find((entry) => entry.id === id);
  if (dropped === undefined) return say(kept, instead);
  const waiting = kept.waiting.flatMap((entry) =>
    entry !== dropped ? [entry] : dropped.replaced === null ? [] : [dropped.replaced],
  );
  return { ...kept, waiting };
}

export function drop(kept: Kept, id: string): Kept {
  return { ...kept, refused: kept.refused.filter(({ entry }) => entry.id !== id) };
}

export function remember(kept: Kept, recent: Recent): Kept {
  const others = kept.recent.filter(({ row }) => row !== recent.row);
  return { ...kept, recent: [...others, recent].slice(-MOST_RECENT) };
}

export function forget(kept: Kept, entryId: string): Kept {
  return { ...kept, recent: kept.recent.filter((other) => other.entryId !== entryId) };
}

/** The first that wait become a batch, but for rows of batches under way: of one row the order counts. */
export function freeze(kept: Kept, newKey: () => string, most = MOST_AT_ONCE): Kept {
  const underWay = new Set(kept.batches.flatMap(({ entries }) => entries.map(({ row }) => row)));
  const entries = kept.waiting.filter(({ row }) => !underWay.has(row)).slice(0, most);
  if (entries.length === 0) return kept;
  const batch: Batch = { key: newKey(), to: kept.isEnded ? "project" : "round", entries };
  return {
    ...kept,
    waiting: kept.waiting.filter((entry) => !entries.includes(entry)),
    batches: [...kept.batches, batch],
  };
}

export function accept(kept: Kept, key: string): Kept {
  return { ...kept, batches: kept.batches.filter((batch) => batch.key !== key) };
}

/** The round has ended: the same entries are sent to its project, as another request. */
export function redirect(kept: Kept, key: string, newKey: string): Kept {
  return {
    ...kept,
    isEnded: true,
    batches: kept.batches.map((batch) =>
      batch.key === key ? { ...batch, key: newKey, to: "project" } : batch,
    ),
  };
}

/** One entry is refused, and with it nothing was taken: the others are sent again without it. */
export function park(kept: Kept, key: string, index: number, detail: string, newKey: string): Kept {
  const entry = kept.batches.find((batch) => batch.key === key)?.entries[index];
  if (entry === undefined) return kept;
  // Whoever has said something newer of the row since has no need to hear of it.
  const isOver = kept.waiting.some(({ row }) => row === entry.row);
  const batches = kept.batches.map((batch) =>
    batch.key === key
      ? { ...batch, key: newKey, entries: batch.entries.filter((other) => other !== entry) }
      : batch,
  );
  return {
    ...kept,
    batches: batches.filter(({ entries }) => entries.length > 0),
    refused: isOver ? kept.refused : [...kept.refused, { entry, detail }],
  };
}

/** Refused without a word about which: sent one by one, it shows. */
export function split(kept: Kept, key: string, newKey: () => string): Kept {
  const batches = kept.batches.flatMap((batch) =>
    batch.key === key
      ? batch.entries.map((entry) => ({ ...batch, key: newKey(), entries: [entry] }))
      : [batch],
  );
  return { ...kept, batches };
}

export interface Queue {
  read: () => Kept;
  change: (how: (kept: Kept) => Kept) => Kept;
  subscribe: (listener: () => void) => () => void;
  /** Another tab may have changed it. */
  refresh: () => void;
  /** The browser keeps nothing (any more): what is said lives as long as the tab. */
  isUnsafe: () => boolean;
}

/** Every queue of this machine, whoever's. */
export function storedQueues(storage: Storage): Kept[] {
  const names = Array.from({ length: storage.length }, (_, i) => storage.key(i) ?? "");
  return names
    .filter((name) => name.startsWith(PREFIX))
    .map((name) => parsed(storage.getItem(name)))
    .filter((kept) => kept !== null);
}

/** Labels that this browser has and the service has not, whoever's. */
export function unsentLabels(storage: Storage): number {
  return storedQueues(storage).reduce((n, kept) => n + unsent(kept).length + kept.refused.length, 0);
}

export function queueName({ roundId, annotator }: Place): string {
  return `${PREFIX}${roundId}.${annotator}`;
}

export function openQueue(storage: Storage, place: Place, now: () => number): Queue {
  const name = queueName(place);
  const listeners = new Set<() => void>();
  let text = storage.getItem(name);
  let kept = { ...(parsed(text) ?? emptyQueue(place)), place };
  let isUnsafe = false;

  function read(): Kept {
    if (isUnsafe) return kept;
    const stored = storage.getItem(name);
    if (stored !== text) {
      text = stored;
      kept = { ...(parsed(stored) ?? emptyQueue(place)), place };
    }
    return kept;
  }

  function tell(): void {
    for (const listener of listeners) listener();
  }

  return {
    read,
    change(how) {
      const before = read();
      const after = how(before);
      if (after === before) return before;
      kept = { ...after, changedAt: now() };
      const written = JSON.stringify(kept);
      try {
        storage.setItem(name, written);
        text = written;
        isUnsafe = false;
      } catch {
        isUnsafe = true; // full, or forbidden: shown beside the labels
      }
      tell();
      return kept;
    },
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    refresh() {
      const before = kept;
      if (read() !== before) tell();
    },
    isUnsafe: () => isUnsafe,
  };
}

const MONTH = 30 * 24 * 3600 * 1000;

/** Rounds that are long over and have nothing left to send take no room. */
export function pruneQueues(storage: Storage, now: number): void {
  for (const kept of storedQueues(storage)) {
    const isDone = unsent(kept).length + kept.refused.length === 0;
    if (isDone && now - kept.changedAt > MONTH) storage.removeItem(queueName(kept.place));
  }
}

/** Null of what this page cannot have written. */
function parsed(text: string | null): Kept | null {
  if (text === null) return null;
  try {
    const found = JSON.parse(text) as Partial<Kept> | null;
    const lists = [found?.waiting, found?.batches, found?.refused, found?.recent];
    return lists.every(Array.isArray) && typeof found?.place === "object" ? (found as Kept) : null;
  } catch {
    return null;
  }
}

/**
 * Which of an annotator's tabs labels a round. Two would be given the same items, so one has the lease, renews it
 * every 2 s, and loses it when it has not for 6 s. `navigator.locks` would do, but http://lab-host has none.
 */
import type { Clock } from "./clock";

export const RENEW_MS = 2000;
export const LAPSE_MS = 6000;

interface Held {
  tab: string;
  at: number;
  /** A tab that labels goes before one that only sends what was left. */
  isLabelling: boolean;
}

interface Options {
  storage: Storage;
  clock: Clock;
  name: string;
  tab: string;
  isLabelling: boolean;
  /** Called when it is won or lost. */
  onChange?: () => void;
}

export interface Lease {
  isMine: () => boolean;
  /** Takes it where nobody has it, or from whoever has it: "Continue here". */
  take: (isForced?: boolean) => boolean;
  /** Another tab may have written: looks again. */
  look: () => void;
  release: () => void;
}

export function openLease({ storage, clock, name, tab, isLabelling, onChange }: Options): Lease {
  const key = `bensemble.lease.${name}`;
  let wasMine = false;
  let isReleased = false;
  let cancel: () => void = () => undefined;
  let isBlind = false;

  function held(): Held | null {
    try {
      return JSON.parse(storage.getItem(key) ?? "null") as Held | null;
    } catch {
      return null;
    }
  }

  function isMine(): boolean {
    const now = held();
    return !isReleased && (isBlind || (now?.tab === tab && isLive(now)));
  }

  function isLive({ at }: Held): boolean {
    const age = clock.now() - at;
    return age < LAPSE_MS && age > -LAPSE_MS; // a clock that was set back ends it too
  }

  function write(): void {
    try {
      storage.setItem(key, JSON.stringify({ tab, at: clock.now(), isLabelling } satisfies Held));
      isBlind = false;
    } catch {
      isBlind = true; // storage takes nothing: tabs cannot see each other, and the queue says that it keeps nothing
    }
  }

  function take(isForced = false): boolean {
    if (isReleased) return false;
    const now = held();
    const isFree = now === null || now.tab === tab || !isLive(now) || (isLabelling && !now.isLabelling);
    if (isFree || isForced) write();
    return look();
  }

  function look(): boolean {
    const mine = isMine();
    if (mine !== wasMine) {
      wasMine = mine;
      onChange?.();
    }
    return mine;
  }

  /** Renews what is its own, and takes what has lapsed: a tab that was closed hands over by itself. */
  function turn(): void {
    take();
    cancel = clock.after(RENEW_MS, turn);
  }
  turn();

  return {
    isMine,
    take,
    look,
    release() {
      cancel();
      if (isMine()) storage.removeItem(key);
      isReleased = true;
      wasMine = false;
    },
  };
}

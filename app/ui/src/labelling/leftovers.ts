/** Sends what earlier visits left, while somebody is anywhere on the page: of this annotator, and of any round. */
import type { Clock } from "./clock";
import { openLease, type Lease } from "./lease";
import { openQueue, pruneQueues, queueName, storedQueues, unsent, type Place } from "./queue";
import type { Requests } from "./requests";
import { startSender, type Sender } from "./sender";

const LOOK_MS = 3000;

interface Options {
  annotator: string;
  requests: Pick<Requests, "post">;
  storage: Storage;
  clock: Clock;
  tab: string;
  newId: () => string;
  /** Called after each look, with what waits. */
  onLook: (waiting: Waiting) => void;
}

export interface Waiting {
  /** Of this annotator, and not of a round that is being labelled in a tab. */
  nOwn: number;
  /** Of others, who labelled at this machine: these wait for them. */
  others: { annotator: string; n: number }[];
}

export function sendLeftovers({ annotator, requests, storage, clock, tab, newId, onLook }: Options) {
  const busy = new Map<string, { sender: Sender; lease: Lease }>();
  let cancel: () => void = () => undefined;
  pruneQueues(storage, clock.now());

  function look(): void {
    cancel();
    const left = storedQueues(storage).filter((kept) => unsent(kept).length > 0);
    const own = left.filter(({ place }) => place.annotator === annotator);
    const wanted = new Set(own.map(({ place }) => queueName(place)));
    for (const [name, { sender, lease }] of busy) {
      if (wanted.has(name)) continue;
      sender.stop();
      lease.release();
      busy.delete(name);
    }
    for (const { place } of own) if (!busy.has(queueName(place))) busy.set(queueName(place), start(place));
    const isHere = ({ place }: { place: Place }) => busy.get(queueName(place))?.lease.isMine() === true;
    const others = new Map<string, number>();
    for (const kept of left) {
      const { annotator: name } = kept.place;
      if (name !== annotator) others.set(name, (others.get(name) ?? 0) + unsent(kept).length);
    }
    onLook({
      nOwn: own.filter(isHere).reduce((n, kept) => n + unsent(kept).length, 0),
      others: [...others].map(([name, n]) => ({ annotator: name, n })),
    });
    cancel = clock.after(LOOK_MS, look);
  }

  function start(place: Place): { sender: Sender; lease: Lease } {
    const queue = openQueue(storage, place, clock.now);
    let sender: Sender | null = null;
    const lease = openLease({
      storage,
      clock,
      name: `${place.roundId}.${place.annotator}`,
      tab,
      isLabelling: false,
      onChange: () => sender?.kick(),
    });
    sender = startSender({
      queue,
      clock,
      post: requests.post,
      isHolder: () => lease.isMine(),
      newKey: newId,
      onAccepted: () => unsent(queue.read()).length === 0 && look(),
    });
    sender.kick();
    return { sender, lease };
  }

  look();
  return {
    /** Tries now. */
    retry() {
      for (const { sender } of busy.values()) sender.retry();
    },
    stop() {
      cancel();
      for (const { sender, lease } of busy.values()) {
        sender.stop();
        lease.release();
      }
      busy.clear();
    },
  };
}

/** Sends what a queue keeps: one batch at a time, in order, until the service has it or says why not. */
import { Problem } from "../api/problem";
import type { Clock } from "./clock";
import { accept, freeze, letGo, park, redirect, split, type Batch, type Place, type Queue } from "./queue";

/** Where it stands; what is unsent is the queue's to say. */
export type Sending =
  | { kind: "idle" }
  | { kind: "sending" }
  /** Asked again by itself, at `until`. */
  | { kind: "waiting"; until: number; why: "unreachable" | "busy" }
  /** Asked again when somebody has signed in. */
  | { kind: "signed-out" }
  /** Asked again when a person says so. */
  | { kind: "stuck"; detail: string };

interface Options<Answer> {
  queue: Queue;
  clock: Clock;
  /** Throws what `send` of the client throws. */
  post: (batch: Batch, place: Place) => Promise<Answer>;
  /** Of several tabs one sends. */
  isHolder: () => boolean;
  newKey: () => string;
  onAccepted?: (answer: Answer, batch: Batch) => void;
  onEnded?: () => void;
}

export interface Sender {
  state: () => Sending;
  subscribe: (listener: () => void) => () => void;
  /** There is something to send. Whoever waits goes on waiting. */
  kick: () => void;
  /** There is a reason to try now: the network is back, or somebody has signed in. */
  retry: () => void;
  /** The tab is closed: what can be sent without waiting for answers is. */
  flush: () => void;
  stop: () => void;
}

const LONGEST_WAIT = 30;

export function startSender<Answer>({
  queue,
  clock,
  post,
  isHolder,
  newKey,
  onAccepted,
  onEnded,
}: Options<Answer>): Sender {
  const listeners = new Set<() => void>();
  let state: Sending = { kind: "idle" };
  let failures = 0;
  let isRunning = false;
  let isStopped = false;
  let cancelWait: () => void = () => undefined;
  let cancelHold: () => void = () => undefined;

  function become(next: Sending): void {
    state = next;
    for (const listener of listeners) listener();
  }

  function waitFor(seconds: number, why: "unreachable" | "busy"): void {
    cancelWait();
    cancelWait = clock.after(seconds * 1000, go);
    become({ kind: "waiting", until: clock.now() + seconds * 1000, why });
  }

  /** A label that is held is let go by whoever sends, when it is due. */
  function watchHold(): void {
    cancelHold();
    const { held } = queue.read();
    if (held === null || isStopped) return;
    const left = held.until - clock.now();
    if (left > 0) cancelHold = clock.after(left, kick);
    else if (isHolder()) queue.change(letGo);
  }

  function go(): void {
    watchHold();
    if (!isRunning && !isStopped) void run();
  }

  function kick(): void {
    if (state.kind === "idle" || state.kind === "sending") go();
    else watchHold();
  }

  function retry(): void {
    // Who was asked to wait so long waits so long.
    if (state.kind !== "waiting" || state.why !== "busy") go();
  }

  async function run(): Promise<void> {
    isRunning = true;
    cancelWait();
    try {
      while (!isStopped && isHolder()) {
        const batch = queue.read().batches[0] ?? queue.change((kept) => freeze(kept, newKey)).batches[0];
        if (batch === undefined) return become({ kind: "idle" });
        become({ kind: "sending" });
        if (!(await sendOne(batch))) return;
      }
      become({ kind: "idle" });
    } finally {
      isRunning = false;
    }
  }

  /** Whether to go on with the next. */
  async function sendOne(batch: Batch): Promise<boolean> {
    try {
      const answer = await post(batch, queue.read().place);
      failures = 0;
      queue.change((kept) => accept(kept, batch.key));
      onAccepted?.(answer, batch);
      return true;
    } catch (error) {
      return isHandled(error, batch);
    }
  }

  function isHandled(error: unknown, batch: Batch): boolean {
    const status = error instanceof Problem ? error.status : 0;
    if (!(error instanceof Problem) || status >= 500 || status === 408) {
      failures += 1;
      waitFor(Math.min(LONGEST_WAIT, 2 ** (failures - 1)), "unreachable");
      return false;
    }
    failures = 0;
    if (status === 401) {
      become({ kind: "signed-out" });
      return false;
    }
    if (status === 429) {
      waitFor(error.retryAfter ?? LONGEST_WAIT, "busy");
      return false;
    }
    if (status === 409 && batch.to === "round") {
      queue.change((kept) => redirect(kept, batch.key, newKey()));
      onEnded?.();
      return true;
    }
    if (status === 422) {
      queue.change((kept) => withoutRefused(kept, error));
      return true;
    }
    become({ kind: "stuck", detail: error.detail });
    return false;

    function withoutRefused(kept: ReturnType<Queue["read"]>, problem: Problem) {
      const named = problem.errors.find(({ pointer }) => /^\/labels\/\d+(\/|$)/.test(pointer));
      const index = Number(named?.pointer.split("/")[2] ?? 0);
      if (named === undefined && batch.entries.length > 1) return split(kept, batch.key, newKey);
      return park(kept, batch.key, index, named?.detail ?? problem.detail, newKey());
    }
  }

  return {
    state: () => state,
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    kick,
    retry,
    flush() {
      if (!isHolder()) return;
      const before = queue.read();
      const underWay = isRunning ? before.batches[0]?.key : undefined;
      let kept = before;
      for (let n = Infinity; kept.waiting.length < n;) {
        n = kept.waiting.length;
        kept = queue.change((now) => freeze(now, newKey));
      }
      for (const batch of kept.batches) {
        // Answered or not, it is asked for again on the next visit, under the same key.
        if (batch.key !== underWay)
          post(batch, kept.place).then(
            () => queue.change((now) => accept(now, batch.key)),
            () => undefined,
          );
      }
    },
    stop() {
      isStopped = true;
      cancelWait();
      cancelHold();
    },
  };
}

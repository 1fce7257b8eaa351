/** One trial after another: what to run next, its outcome on its way to the service, and what that taught. */
import { useCallback, useEffect, useRef, useState } from "react";
import { api, newRequestKey } from "../api/client";
import { Problem, Unreachable } from "../api/problem";
import type { Job, Observation, ObservationIn, Proposal, ProposalIn, Session, Stop } from "../api/types";
import type { Value } from "../experiments/entry";
import { delayAfter, forget, keep, readKept, type Kept } from "../experiments/outbox";

/** Of the experimenter's page and of the participant's: both are given the same pending design. */
const CLIENT = "page";
const JOB_SECONDS = 1;

export interface Wish {
  fixed?: Record<string, Value>;
  excluded?: Record<string, Value>[];
}

/** Why an outcome is not recorded yet: it waits for the service, or somebody has to decide. */
export type Trouble =
  { kind: "waiting"; error: unknown; retryAt: number } | { kind: "refused"; error: unknown };

export interface TrialState {
  proposal: Proposal | null;
  /** The job that makes the proposal, where that takes long. */
  job: Job | null;
  stop: Stop | null;
  isAsking: boolean;
  /** Why there is no proposal. */
  problem: unknown;
  /** An outcome on its way. */
  kept: Kept | null;
  trouble: Trouble | null;
  /** The service's words about an outcome that cannot be one. */
  refusal: Problem | null;
  /** What the last outcome recorded here taught. */
  learnt: Observation | null;
  isUndoing: boolean;
}

const EMPTY: TrialState = {
  proposal: null,
  job: null,
  stop: null,
  isAsking: false,
  problem: undefined,
  kept: null,
  trouble: null,
  refusal: null,
  learnt: null,
  isUndoing: false,
};

interface Options {
  session: Session | undefined;
  /** Whether this visitor may ask for designs and record outcomes. */
  mayRun: boolean;
  token?: string;
  /** Outcomes name the revision that they were entered at: a change by others is then told, not passed over. */
  namesRevision?: boolean;
  /** Observations have changed: read what follows from them. */
  onChange: () => void;
}

export interface Trials extends TrialState {
  ask: (wish?: Wish) => Promise<void>;
  /** Instead of what is proposed, something else that fits the wish. */
  replace: (wish: Wish) => Promise<void>;
  record: (outcome: Record<string, Value>, design?: Record<string, Value>) => Promise<void>;
  undo: (n: number) => Promise<void>;
  /** Sends the outcome that waits now. */
  sendNow: () => void;
  /** Records a refused outcome as a trial of its own, whatever others did. */
  insist: () => Promise<void>;
  discard: () => void;
}

export function useTrial({ session, mayRun, token, namesRevision = false, onChange }: Options): Trials {
  const [state, setState] = useState<TrialState>(EMPTY);
  const change = useCallback(
    (part: Partial<TrialState>) => setState((before) => ({ ...before, ...part })),
    [],
  );
  const turn = useRef(0);
  const isSending = useRef(false);
  const wake = useRef<(() => void) | null>(null);
  const known = useRef<number | null>(null);
  const isGone = useRef(false);
  const sessionId = session?.id;
  const revision = session?.revision;
  const isOpen = session?.status === "open";

  const ask = useCallback(
    async (wish: Wish = {}): Promise<void> => {
      if (sessionId === undefined) return;
      const mine = (turn.current += 1);
      change({ isAsking: true, problem: undefined });
      try {
        for (;;) {
          const said = await api.post("/v1/sessions/{session_id}/proposals", {
            path: { session_id: sessionId },
            body: { client_id: CLIENT, ...wish } as ProposalIn,
            token,
          });
          if (mine !== turn.current || isGone.current) return;
          if (said === undefined) throw new Error("The service answered without a proposal.");
          if (!("job" in said)) {
            known.current = Math.max(known.current ?? 0, said.revision);
            change({ proposal: said, stop: said.stop, job: null, isAsking: false });
            return;
          }
          change({ job: said.job, proposal: null });
          await pause(JOB_SECONDS);
        }
      } catch (problem) {
        if (mine === turn.current && !isGone.current)
          change({ problem, job: null, proposal: null, isAsking: false });
      }
    },
    [sessionId, token, change],
  );

  const deliver = useCallback(
    async (entry: Kept): Promise<void> => {
      if (sessionId === undefined || isSending.current) return;
      isSending.current = true;
      change({ kept: entry, trouble: null, refusal: null });
      try {
        for (let failures = 1; !isGone.current; failures += 1) {
          try {
            const answer = await api.post("/v1/sessions/{session_id}/observations", {
              path: { session_id: sessionId },
              query: { next: true },
              body: entry.body,
              headers: { "Idempotency-Key": entry.key },
              token,
            });
            forget(sessionId, entry.key);
            if (isGone.current) return;
            known.current = answer.revision;
            turn.current += 1;
            change({
              kept: null,
              trouble: null,
              learnt: answer,
              stop: answer.stop,
              proposal: answer.next,
              job: answer.next_job,
              isAsking: false,
              problem: answer.next_problem === null ? undefined : new Error(answer.next_problem),
            });
            onChange();
            if (answer.next === null && answer.next_problem === null) void ask();
            return;
          } catch (error) {
            if (error instanceof Problem && error.status === 422) {
              forget(sessionId, entry.key);
              change({ kept: null, refusal: error });
              return;
            }
            if (!isPassing(error)) {
              change({ trouble: { kind: "refused", error } });
              onChange();
              return;
            }
            const seconds = delayAfter(failures, error instanceof Problem ? error.retryAfter : null);
            change({ trouble: { kind: "waiting", error, retryAt: Date.now() + 1000 * seconds } });
            await pause(seconds, wake);
            if (readKept(sessionId)?.key !== entry.key) {
              // Discarded here, or sent by another tab.
              change({ kept: null, trouble: null });
              onChange();
              return;
            }
          }
        }
      } finally {
        isSending.current = false;
      }
    },
    [sessionId, token, change, onChange, ask],
  );

  useEffect(() => {
    isGone.current = false;
    const rouse = () => wake.current?.();
    window.addEventListener("online", rouse);
    return () => {
      isGone.current = true;
      window.removeEventListener("online", rouse);
      rouse();
    };
  }, []);

  // What an earlier visit could not send comes first; then, at every revision made by others, what is next.
  useEffect(() => {
    if (sessionId === undefined || revision === undefined || !mayRun || !isOpen) return;
    const left = readKept(sessionId);
    if (left !== null) {
      void deliver(left);
      return;
    }
    if (known.current !== null && revision <= known.current) return;
    known.current = revision;
    void ask();
  }, [sessionId, revision, mayRun, isOpen, deliver, ask]);

  async function record(outcome: Record<string, Value>, design?: Record<string, Value>): Promise<void> {
    const { proposal } = state;
    if (sessionId === undefined || isSending.current || (proposal === null && design === undefined)) return;
    const waiting = readKept(sessionId);
    if (waiting !== null) return deliver(waiting); // another tab's: one after the other
    const body: ObservationIn = { outcome, client_id: CLIENT };
    if (proposal !== null) body.proposal_id = proposal.id;
    if (design !== undefined) body.design = design;
    if (namesRevision && typeof known.current === "number") body.revision = known.current;
    const entry = { key: newRequestKey(), body, design: design ?? proposal?.design ?? {} };
    keep(sessionId, entry);
    await deliver(entry);
  }

  async function replace(wish: Wish): Promise<void> {
    try {
      await abandon("another design was asked for");
    } catch (problem) {
      change({ problem });
      return;
    }
    await ask(wish);
  }

  /** The design that waits was chosen with the outcome that is taken back: another is asked for. */
  async function undo(n: number): Promise<void> {
    if (sessionId === undefined || isSending.current || state.isUndoing) return;
    change({ isUndoing: true, problem: undefined });
    try {
      await api.delete("/v1/sessions/{session_id}/observations/{n}", {
        path: { session_id: sessionId, n },
        token,
      });
      await abandon("an outcome was taken back");
      change({ learnt: null });
      await ask();
    } catch (problem) {
      change({ problem });
    } finally {
      change({ isUndoing: false });
      onChange();
    }
  }

  async function abandon(reason: string): Promise<void> {
    const { proposal } = state;
    if (proposal === null) return;
    await api.post("/v1/proposals/{proposal_id}/abandon", {
      path: { proposal_id: proposal.id },
      body: { reason },
      token,
    });
    change({ proposal: null });
  }

  async function insist(): Promise<void> {
    const { kept } = state;
    if (sessionId === undefined || kept === null || isSending.current) return;
    const body = { outcome: kept.body.outcome, design: kept.design as never, client_id: CLIENT };
    const entry: Kept = { key: newRequestKey(), body, design: kept.design };
    keep(sessionId, entry);
    await deliver(entry);
  }

  function discard(): void {
    if (sessionId === undefined || state.kept === null) return;
    forget(sessionId, state.kept.key);
    change({ kept: null, trouble: null });
    wake.current?.();
    void ask();
  }

  return { ...state, ask, replace, record, undo, insist, discard, sendNow: () => wake.current?.() };
}

/** Whether the same request may succeed later: no answer, a failure of the service, or too many requests. */
function isPassing(error: unknown): boolean {
  if (error instanceof Problem) return error.status >= 500 || error.status === 429 || error.status === 408;
  return error instanceof Unreachable;
}

function pause(seconds: number, wake?: { current: (() => void) | null }): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(done, 1000 * seconds);
    if (wake !== undefined) wake.current = done;
    function done(): void {
      clearTimeout(timer);
      if (wake !== undefined) wake.current = null;
      resolve();
    }
  });
}

/** What a session knows: its trials, the posterior and, for comparison, what was believed before the first trial. */
import { useEffect, useRef } from "react";
import { allItems, api } from "../api/client";
import type { Posterior, Trial } from "../api/types";
import { useResource, type Resource } from "./useResource";

interface Knowledge {
  trials: Resource<Trial[]>;
  posterior: Resource<Posterior>;
  prior: Resource<Posterior>;
}

/** Read anew at every `revision`; until it is there, what was known stays. */
export function useKnowledge(sessionId: string, revision: number): Knowledge {
  const path = { session_id: sessionId };
  const address = `/v1/sessions/${sessionId}`;
  const trials = useResource(`${address}/trials`, (signal) =>
    allItems((cursor) =>
      api.get("/v1/sessions/{session_id}/trials", { path, query: { cursor, limit: 200 }, signal }),
    ),
  );
  const posterior = useResource(`${address}/posterior`, (signal) =>
    api.get("/v1/sessions/{session_id}/posterior", { path, query: { form: "marginals" }, signal }),
  );
  const prior = useResource(`${address}/posterior?after=0`, (signal) =>
    api.get("/v1/sessions/{session_id}/posterior", { path, query: { form: "marginals", after: 0 }, signal }),
  );
  const read = useRef(revision);
  const { reload: readTrials } = trials;
  const { reload: readPosterior } = posterior;
  useEffect(() => {
    if (revision === read.current) return;
    read.current = revision;
    readTrials();
    readPosterior();
  }, [revision, readTrials, readPosterior]);
  return { trials, posterior, prior };
}

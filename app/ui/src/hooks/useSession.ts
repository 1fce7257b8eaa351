/** A session with its form, and whether others have changed it: it is looked at every few seconds while it is seen. */
import { useEffect } from "react";
import { api } from "../api/client";
import type { Session } from "../api/types";
import { useResource, type Resource } from "./useResource";

const LOOK_SECONDS = 3;

interface Options {
  /** A participant's, in place of the tab's key. */
  token?: string;
  /** Whether to look for changes by others. */
  isWatched?: boolean;
}

export function useSession(sessionId: string, { token, isWatched = false }: Options = {}): Resource<Session> {
  const found = useResource(`/v1/sessions/${sessionId} ${token ?? ""}`, (signal) =>
    api.get("/v1/sessions/{session_id}", { path: { session_id: sessionId }, signal, token }),
  );
  const { reload } = found;
  useEffect(() => {
    if (!isWatched) return;
    const timer = setInterval(() => {
      if (!document.hidden) reload();
    }, LOOK_SECONDS * 1000);
    return () => clearInterval(timer);
  }, [isWatched, reload]);
  return found;
}

/** Labelling a round, tied to this tab: what the browser tells of the network, the screen and other tabs. */
import { useEffect, useMemo, useSyncExternalStore } from "react";
import { newRequestKey } from "../api/client";
import { useCredentials } from "../api/credentials";
import type { Project, Round } from "../api/types";
import { useEvents } from "../hooks/useEvents";
import { browserClock } from "./clock";
import { pictureShelf } from "./prefetch";
import { requests } from "./requests";
import { startLabelling, type Labelling, type Snapshot } from "./session";
import { TAB } from "./tab";

/** `project` and `round` as they were read first: what changes of the round later is heard. */
export function useLabelling(
  project: Project,
  round: Round,
  annotator: string,
): { labelling: Labelling; now: Snapshot } {
  const labelling = useMemo(
    () =>
      startLabelling({
        project,
        round,
        annotator,
        requests,
        storage: localStorage,
        clock: browserClock,
        tab: TAB,
        newId: newRequestKey,
        prepare: pictureShelf(project),
      }),
    // eslint-disable-next-line react-hooks/exhaustive-deps -- another reading of the same round begins nothing anew
    [project.id, round.id, annotator],
  );
  const now = useSyncExternalStore(labelling.subscribe, labelling.snapshot);
  const { key, isRefused } = useCredentials();

  useEffect(() => {
    labelling.enter();
    const leave = () => labelling.leave();
    const enter = () => labelling.enter();
    const look = () => {
      if (!document.hidden) labelling.wake();
    };
    const listeners: [EventTarget, string, () => void][] = [
      [window, "pagehide", leave],
      [window, "pageshow", enter], // also of a page that the browser had put aside
      [window, "online", labelling.retry],
      [window, "storage", labelling.wake],
      [window, "focus", look],
      [document, "visibilitychange", look],
    ];
    for (const [target, event, listener] of listeners) target.addEventListener(event, listener);
    return () => {
      for (const [target, event, listener] of listeners) target.removeEventListener(event, listener);
      labelling.leave();
    };
  }, [labelling]);

  useEffect(() => {
    if (!isRefused) labelling.retry();
  }, [labelling, key, isRefused]);

  useEvents((news) => {
    if (news.event === "round") labelling.hear(news.data);
    if (news.event === "ready") labelling.retry();
  });
  return { labelling, now };
}

/** What happens in the service, told to this tab by one stream (`GET /v1/events`), closed while the tab is hidden. */
import { createContext, useContext, useEffect, useRef, useState, type ReactNode } from "react";
import { send } from "../api/client";
import { follow } from "../api/stream";
import type { Ensemble, Job, Round } from "../api/types";

export type News =
  | { event: "job"; data: Job }
  | { event: "round"; data: Round }
  | { event: "ensemble"; data: Ensemble }
  | { event: "labels"; data: { project_id: string; last_seq: number; n_labelled: number } }
  | { event: "problem"; data: { detail: string } }
  /** The stream is open (again): what was missed is not told, so read anew. */
  | { event: "ready"; data: object };

type Listener = (news: News) => void;
interface Channel {
  subscribe: (listener: Listener) => () => void;
  isOpen: boolean;
}

const EventsContext = createContext<Channel>({ subscribe: () => () => undefined, isOpen: false });

export function EventsProvider({ credential, children }: { credential: string; children: ReactNode }) {
  const [isOpen, setOpen] = useState(false);
  const [isVisible, setVisible] = useState(!document.hidden);
  const [listeners] = useState(() => new Set<Listener>());

  useEffect(() => {
    const look = () => setVisible(!document.hidden);
    document.addEventListener("visibilitychange", look);
    return () => document.removeEventListener("visibilitychange", look);
  }, []);

  useEffect(() => {
    if (!isVisible) return;
    return follow({
      open: (signal) => send("/v1/events", { signal }),
      onMessage: ({ event, data }) => {
        const news = { event, data: JSON.parse(data) } as News;
        for (const listener of listeners) listener(news);
      },
      onState: setOpen,
    });
  }, [credential, isVisible, listeners]);

  const [subscribe] = useState(() => (listener: Listener) => {
    listeners.add(listener);
    return () => {
      listeners.delete(listener);
    };
  });
  return <EventsContext value={{ subscribe, isOpen }}>{children}</EventsContext>;
}

/** Calls `listener` for whatever is told; the newest one given is called. */
export function useEvents(listener: Listener): void {
  const { subscribe } = useContext(EventsContext);
  const newest = useRef(listener);
  useEffect(() => {
    newest.current = listener;
  });
  useEffect(() => subscribe((news) => newest.current(news)), [subscribe]);
}

/** Whether the stream is open; while it is not, the page says that figures may be old. */
export function useIsLive(): boolean {
  return useContext(EventsContext).isOpen;
}

/** Reads a resource anew when something is told that concerns it, at most once a pause: labels come in bursts. */
import { useEffect, useRef } from "react";
import { useEvents, type News } from "./useEvents";

export function useReloadOn(reload: () => void, concerns: (news: News) => boolean, pauseMs = 400): void {
  const timer = useRef<ReturnType<typeof setTimeout> | null>(null);
  useEffect(
    () => () => {
      if (timer.current !== null) clearTimeout(timer.current);
      timer.current = null;
    },
    [],
  );
  useEvents((news) => {
    // After a pause of the stream nobody knows what was missed.
    if (timer.current !== null || !(news.event === "ready" || concerns(news))) return;
    timer.current = setTimeout(() => {
      timer.current = null;
      reload();
    }, pauseMs);
  });
}

/** A version of this project has been trained, or has failed to be. */
export function isVersionNews(news: News, projectId: string): boolean {
  return news.event === "ensemble" && news.data.project_id === projectId;
}

export function isLabelNews(news: News, projectId: string): boolean {
  return news.event === "labels" && news.data.project_id === projectId;
}

export function isRoundNews(news: News, projectId: string): boolean {
  return news.event === "round" && news.data.project_id === projectId;
}

/** A job of this project has ended. */
export function isEndNews(news: News, projectId: string, kind?: string): boolean {
  if (news.event !== "job" || news.data.project_id !== projectId) return false;
  const { status } = news.data;
  return status !== "queued" && status !== "running" && (kind === undefined || news.data.kind === kind);
}

/** Coming to another page: the keyboard and screen readers start at its content, the title is its heading, and going
 * back finds the place where one was. */
import { useEffect, useRef, type RefObject } from "react";

export function useArrival(location: string, main: RefObject<HTMLElement | null>): void {
  useTitle(main);
  useFocus(location, main);
  useScroll(location);
}

/** A page has one first heading, and it names the page: whenever it changes, the title follows. */
function useTitle(main: RefObject<HTMLElement | null>): void {
  useEffect(() => {
    const element = main.current;
    if (element === null) return;
    const name = () => {
      const heading = element.querySelector("h1")?.textContent?.trim() ?? "";
      const title = heading === "" ? "Bensemble" : `${heading} · Bensemble`;
      if (document.title !== title) document.title = title;
    };
    const observer = new MutationObserver(name);
    observer.observe(element, { childList: true, subtree: true, characterData: true });
    name();
    return () => observer.disconnect();
  }, [main]);
}

function useFocus(location: string, main: RefObject<HTMLElement | null>): void {
  const before = useRef(location);
  useEffect(() => {
    if (before.current === location) return;
    before.current = location;
    // A page that has taken the focus by itself keeps it.
    if (!main.current?.contains(document.activeElement)) main.current?.focus({ preventScroll: true });
  }, [location, main]);
}

const NAME = "bensemble.scroll";
const PATIENCE_MS = 3000;

/** The browser's own restoring comes before the page has its height: it waits for nothing that is still read. */
function useScroll(location: string): void {
  const isBack = useRef(true); // a reload is a return, too
  const here = useRef(location);

  useEffect(() => {
    history.scrollRestoration = "manual";
    const onBack = () => {
      isBack.current = true;
    };
    const remember = () => {
      const places = placesKnown();
      places[here.current] = Math.round(scrollY);
      sessionStorage.setItem(NAME, JSON.stringify(places));
    };
    let timer = 0;
    const soon = () => {
      clearTimeout(timer);
      timer = window.setTimeout(remember, 100);
    };
    addEventListener("popstate", onBack);
    addEventListener("scroll", soon, { passive: true });
    return () => {
      clearTimeout(timer);
      removeEventListener("popstate", onBack);
      removeEventListener("scroll", soon);
    };
  }, []);

  useEffect(() => {
    const target = isBack.current ? (placesKnown()[location] ?? 0) : 0;
    isBack.current = false;
    here.current = location;
    return scrollWhenHigh(target);
  }, [location]);
}

function placesKnown(): Record<string, number> {
  return JSON.parse(sessionStorage.getItem(NAME) ?? "{}") as Record<string, number>;
}

/** Waits till the page is high enough, or somebody scrolls. */
function scrollWhenHigh(target: number): () => void {
  scrollTo(0, target);
  if (target === 0 || scrollY >= target - 1) return () => undefined;
  const observer = new ResizeObserver(() => {
    scrollTo(0, target);
    if (scrollY >= target - 1) stop();
  });
  const timer = setTimeout(stop, PATIENCE_MS);
  const signs = ["wheel", "touchmove", "keydown"] as const;
  for (const sign of signs) addEventListener(sign, stop, { passive: true });
  observer.observe(document.body);
  return stop;

  function stop(): void {
    observer.disconnect();
    clearTimeout(timer);
    for (const sign of signs) removeEventListener(sign, stop);
  }
}

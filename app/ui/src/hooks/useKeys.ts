/** Keys that answer, and the switch that turns them off (WCAG 2.1.4), remembered in this browser. */
import { useCallback, useEffect, useRef, useState } from "react";

const NAME = "bensemble.keys";
/** A key pressed right after something new was shown was meant for what was there before. */
const SETTLE_MILLISECONDS = 120;

export function useKeySwitch(): [boolean, (isOn: boolean) => void] {
  const [isOn, setOn] = useState(() => localStorage.getItem(NAME) !== "off");
  const set = useCallback((wanted: boolean) => {
    localStorage.setItem(NAME, wanted ? "on" : "off");
    setOn(wanted);
  }, []);
  return [isOn, set];
}

/** `shown` names what is on the screen: when it changes, keys rest for a moment. */
export function useKeys(isOn: boolean, shown: string, onKey: (event: KeyboardEvent) => void): void {
  const newest = useRef(onKey);
  const since = useRef(0);
  useEffect(() => {
    newest.current = onKey;
  });
  useEffect(() => {
    since.current = performance.now();
  }, [shown]);
  useEffect(() => {
    if (!isOn) return;
    const listen = (event: KeyboardEvent) => {
      if (performance.now() - since.current >= SETTLE_MILLISECONDS) newest.current(event);
    };
    window.addEventListener("keydown", listen);
    return () => window.removeEventListener("keydown", listen);
  }, [isOn]);
}

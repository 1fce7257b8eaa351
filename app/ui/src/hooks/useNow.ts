/** The time, anew every so many milliseconds while something needs it. */
import { useEffect, useState } from "react";

export function useNow(isOn: boolean, every = 1000): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    if (!isOn) return;
    setNow(Date.now());
    const timer = setInterval(() => setNow(Date.now()), every);
    return () => clearInterval(timer);
  }, [isOn, every]);
  return now;
}

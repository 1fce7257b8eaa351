/** A value once it has stopped changing: a request for each letter that is typed would be many. */
import { useEffect, useState } from "react";

export function useSlow<T>(value: T, pauseMs: number): T {
  const [slow, setSlow] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSlow(value), pauseMs);
    return () => clearTimeout(timer);
  }, [value, pauseMs]);
  return slow;
}

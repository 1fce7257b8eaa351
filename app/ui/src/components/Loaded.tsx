/** Shows a resource: bars while it is read for the first time (after 150 ms), the problem where it could not be read. */
import { useEffect, useState, type ReactNode } from "react";
import type { Resource } from "../hooks/useResource";
import { Failure } from "./Notice";
import "./Loaded.css";

interface Props<T> {
  of: Resource<T>;
  /** How many bars stand for it. */
  lines?: number;
  children: (data: T) => ReactNode;
}

export function Loaded<T>({ of, lines = 3, children }: Props<T>) {
  if (of.data !== undefined) {
    return (
      <>
        {of.error !== undefined && <Failure error={of.error} onRetry={of.reload} />}
        {children(of.data)}
      </>
    );
  }
  if (of.error !== undefined) return <Failure error={of.error} onRetry={of.reload} />;
  return <Skeleton lines={lines} />;
}

export function Skeleton({ lines = 3 }: { lines?: number }) {
  const [isShown, setShown] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setShown(true), 150);
    return () => clearTimeout(timer);
  }, []);
  return (
    <div className="skeleton" role="status" aria-live="polite">
      {isShown && <span className="hidden">Loading…</span>}
      {isShown && Array.from({ length: lines }, (_, i) => <div key={i} className="bar" aria-hidden="true" />)}
    </div>
  );
}

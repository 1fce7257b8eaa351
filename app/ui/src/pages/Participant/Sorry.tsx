/** Why a participant cannot go on, and what to do. */
import type { ReactNode } from "react";

export function Sorry({ children }: { children: ReactNode }) {
  return (
    <div className="stack">
      <h1>Sorry</h1>
      <p role="alert">{children}</p>
    </div>
  );
}

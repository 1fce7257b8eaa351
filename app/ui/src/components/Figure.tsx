/** A number that answers a question, with what it is under it. */
import type { ReactNode } from "react";
import "./Figure.css";

export function Figure({ value, children }: { value: ReactNode; children: ReactNode }) {
  return (
    <div className="figure">
      <div className="value">{value}</div>
      <div className="quiet">{children}</div>
    </div>
  );
}

export function Figures({ children }: { children: ReactNode }) {
  return <div className="figures-row">{children}</div>;
}

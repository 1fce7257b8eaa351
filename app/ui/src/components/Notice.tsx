/** What went wrong, or should be known, in the service's own words, with a way on. */
import type { ReactNode } from "react";
import { sentence } from "../api/problem";
import { Button } from "./Button";
import "./Notice.css";

interface Props {
  kind?: "plain" | "good" | "warn" | "bad";
  children: ReactNode;
}

const WORDS = { plain: "", good: "Done: ", warn: "Note: ", bad: "Problem: " };

export function Notice({ kind = "plain", children }: Props) {
  return (
    <div className={`notice ${kind}`} role={kind === "bad" ? "alert" : "status"}>
      <span className="hidden">{WORDS[kind]}</span>
      {children}
    </div>
  );
}

export function Failure({ error, onRetry }: { error: unknown; onRetry?: () => void }) {
  return (
    <Notice kind="bad">
      <p>{sentence(error)}</p>
      {onRetry !== undefined && <Button onClick={onRetry}>Try again</Button>}
    </Notice>
  );
}

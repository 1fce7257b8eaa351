/** The first thing that a visitor without a key sees. */
import { useEffect } from "react";
import { Unreachable } from "../api/problem";
import { Mark } from "../components/Mark";
import { Failure, Notice } from "../components/Notice";
import { SignIn } from "../components/SignIn";
import "./Welcome.css";

interface Props {
  /** The key of this tab is no longer taken. */
  isRefused: boolean;
  /** Why it is not known who asks. */
  error: unknown;
}

export function Welcome({ isRefused, error }: Props) {
  useEffect(() => {
    document.title = "Sign in · Bensemble";
  }, []);
  return (
    <main className="page welcome stack">
      <p className="brand">
        <Mark /> Bensemble
      </p>
      <h1>What should we label, or measure, next?</h1>
      <p>
        Bensemble trains a Bayesian ensemble on what you know, ranks what you do not, and learns from every
        answer.
      </p>
      {isRefused && (
        <Notice kind="warn">
          <p>The key of this tab is no longer taken: it was revoked, has expired, or was cut short.</p>
        </Notice>
      )}
      {error instanceof Unreachable && <Failure error={error} onRetry={() => location.reload()} />}
      <SignIn />
      <p className="quiet">
        No key at hand? <code>bensemble key create --name me</code> prints one. What this page does, a script
        can do: <a href="/docs">the API</a>.
      </p>
    </main>
  );
}

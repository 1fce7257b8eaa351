/** The first thing that a visitor without a key sees. */
import { Mark } from "../components/Mark";
import { SignIn } from "../components/SignIn";
import "./Welcome.css";

export function Welcome() {
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
      <SignIn />
      <p className="quiet">
        No key at hand? <code>bensemble key create --name me</code> makes one. <a href="/docs">The API</a>{" "}
        needs one too.
      </p>
    </main>
  );
}

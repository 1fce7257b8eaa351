/** An outcome that is not recorded yet: where it is, and what can be done about it. */
import { useEffect, useState } from "react";
import { sentence } from "../api/problem";
import { assignments } from "../experiments/words";
import type { Trials } from "../hooks/useTrial";
import { Button } from "./Button";
import { Notice } from "./Notice";

export function Outgoing({ trial, isParticipant = false }: { trial: Trials; isParticipant?: boolean }) {
  const { kept, trouble } = trial;
  const seconds = useSecondsUntil(trouble?.kind === "waiting" ? trouble.retryAt : null);
  if (kept === null || trouble === null) return null;
  const what = isParticipant
    ? "Your answer"
    : `${assignments(kept.body.outcome)} at ${assignments(kept.design)}`;
  if (trouble.kind === "waiting") {
    return (
      <Notice kind="warn">
        <p>
          {what} is kept in this browser and not recorded yet. {sentence(trouble.error)}{" "}
          {seconds > 0 ? `Trying again in ${seconds} s.` : "Trying again…"}
        </p>
        <div className="row">
          <Button onClick={trial.sendNow}>Try now</Button>
          {!isParticipant && <Button onClick={trial.discard}>Discard it</Button>}
        </div>
      </Notice>
    );
  }
  return (
    <Notice kind="bad">
      <p>
        {what} was not recorded: {sentence(trouble.error)}
      </p>
      <div className="row">
        {!isParticipant && (
          <Button onClick={() => void trial.insist()}>Record it as a trial of its own</Button>
        )}
        <Button onClick={trial.discard}>{isParticipant ? "Go on" : "Discard it"}</Button>
      </div>
    </Notice>
  );
}

function useSecondsUntil(time: number | null): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    if (time === null) return;
    setNow(Date.now());
    const timer = setInterval(() => setNow(Date.now()), 500);
    return () => clearInterval(timer);
  }, [time]);
  return time === null ? 0 : Math.max(0, Math.ceil((time - now) / 1000));
}

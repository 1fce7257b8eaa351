/** One trial after another: what to do, the buttons to answer with, and thanks at the end. */
import { allItems, api } from "../../api/client";
import { Problem } from "../../api/problem";
import type { Session } from "../../api/types";
import { Button } from "../../components/Button";
import { Skeleton } from "../../components/Loaded";
import { Failure } from "../../components/Notice";
import { OutcomeEntry } from "../../components/OutcomeEntry";
import { Outgoing } from "../../components/Outgoing";
import { isOnePress } from "../../experiments/entry";
import { valueWords } from "../../experiments/words";
import { useKeySwitch } from "../../hooks/useKeys";
import { useResource } from "../../hooks/useResource";
import { useTrial } from "../../hooks/useTrial";
import { Sorry } from "./Sorry";

interface Props {
  session: Session;
  token: string;
  onChange: () => void;
}

export function Questions({ session, token, onChange }: Props) {
  const [hasKeys, setHasKeys] = useKeySwitch();
  const trial = useTrial({ session, mayRun: true, token, onChange });
  const last = useLast(session, token);
  const { proposal } = trial;
  const isBusy = trial.kept !== null || trial.isUndoing || trial.isAsking;
  const refused = [trial.problem, trial.trouble?.error].find(
    (error) => error instanceof Problem && (error.status === 401 || error.status === 403),
  );
  if (refused !== undefined) {
    return <Sorry>This link no longer works. Please ask whoever gave it to you for a new one.</Sorry>;
  }
  const undo = last !== undefined && last !== null && session.status === "open" && (
    <Button isBusy={isBusy} onClick={() => void trial.undo(last)}>
      Take my last answer back
    </Button>
  );
  if (session.status === "closed" || (trial.stop?.stop === true && trial.kept === null)) {
    return (
      <div className="stack">
        <h1>Thank you</h1>
        <p role="status">
          That was all:{" "}
          {session.n_observations === 1 ? "your answer is" : `your ${session.n_observations} answers are`}{" "}
          saved. You can close this page.
        </p>
        <div>{undo}</div>
      </div>
    );
  }
  return (
    <div className="stack question">
      <h1>Question {session.n_observations + 1}</h1>
      {session.form.instructions !== null && <p className="instructions">{session.form.instructions}</p>}
      <div aria-live="polite">
        {proposal !== null ? (
          <dl className="shown">
            {Object.entries(proposal.design).map(([name, value]) => (
              <div key={name}>
                <dt>{name}</dt>
                <dd>{valueWords(value)}</dd>
              </div>
            ))}
          </dl>
        ) : (
          trial.isAsking && (
            <>
              <Skeleton lines={2} />
              {trial.job !== null && (
                <p className="quiet">The next question is being chosen. This takes a moment.</p>
              )}
            </>
          )
        )}
      </div>
      {trial.problem !== undefined && <Failure error={trial.problem} onRetry={() => void trial.ask()} />}
      {proposal !== null && (
        <OutcomeEntry
          fields={session.form.outcomes}
          trial={proposal.id}
          isBusy={isBusy}
          hasKeys={hasKeys}
          onRecord={(outcome) => void trial.record(outcome)}
        />
      )}
      <Outgoing trial={trial} isParticipant />
      {trial.refusal !== null && <Failure error={trial.refusal} />}
      <div className="row foot">
        {undo}
        {isOnePress(session.form.outcomes) && (
          <label className="switch">
            <input type="checkbox" checked={hasKeys} onChange={(event) => setHasKeys(event.target.checked)} />
            Keys answer
          </label>
        )}
      </div>
    </div>
  );
}

/** The number of the last answer, which can be taken back; undefined until it is known, null where there is none. */
function useLast(session: Session, token: string): number | null | undefined {
  const trials = useResource(
    session.n_observations === 0 ? null : `/v1/sessions/${session.id}/trials ${session.revision}`,
    (signal) =>
      allItems((cursor) =>
        api.get("/v1/sessions/{session_id}/trials", {
          path: { session_id: session.id },
          query: { cursor, limit: 200 },
          signal,
          token,
        }),
      ),
  );
  return session.n_observations === 0 ? null : trials.data?.at(-1)?.n;
}

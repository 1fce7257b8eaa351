/** What stands in the item's place while there is none: the last label held, the end, a wait for others. */
import { useState } from "react";
import { Problem, sentence } from "../../api/problem";
import type { Project, Round } from "../../api/types";
import { Button, ButtonLink } from "../../components/Button";
import { Skeleton } from "../../components/Loaded";
import { clock, count, many } from "../../formats";
import { useNow } from "../../hooks/useNow";
import { unsent } from "../../labelling/queue";
import type { Labelling, Snapshot } from "../../labelling/session";
import { Ending } from "./Ending";

export type PauseKind = "loading" | "ranking" | "held" | "ended" | "saving" | "trouble" | "others";

/** Null while there is an item to answer. */
export function pauseOf({ state, kept, round, trouble }: Snapshot): PauseKind | null {
  if (state.items.length > 0) return null;
  if (kept.held !== null) return "held";
  if (round.status === "complete" || round.status === "closed") return "ended";
  if (round.status === "ranking") return "ranking";
  if (trouble !== null) return "trouble";
  if (state.left === null) return "loading";
  if (unsent(kept).length > 0) return "saving";
  return state.left > 0 && state.isDry ? "others" : "loading";
}

interface Props {
  pause: PauseKind;
  project: Project;
  round: Round;
  now: Snapshot;
  labelling: Labelling;
}

export function Pause({ pause, project, round, now, labelling }: Props) {
  switch (pause) {
    case "loading":
      return (
        <section className="stage" aria-label="The next item">
          <Skeleton lines={5} />
        </section>
      );
    case "held":
      return <Held now={now} round={round} labelling={labelling} />;
    case "ended":
      return <Ending project={project} round={round} nUnsent={unsent(now.kept).length} />;
    case "ranking":
      return (
        <section className="stage words">
          <h2>The items are being chosen</h2>
          <p>The pool is ranked; labelling starts here by itself when that is done.</p>
        </section>
      );
    case "saving":
      return (
        <section className="stage words">
          <h2>Saving</h2>
          <p>{many(unsent(now.kept).length, "label")} on the way; more items come after that.</p>
        </section>
      );
    case "trouble":
      return <Trouble error={now.trouble} now={now} onRetry={labelling.retry} projectId={project.id} />;
    case "others":
      return <Others now={now} project={project} onAsk={labelling.ask} />;
  }
}

function Held({ now, round, labelling }: { now: Snapshot; round: Round; labelling: Labelling }) {
  const time = useNow(true, 200);
  const seconds = Math.max(0, Math.ceil(((now.kept.held?.until ?? 0) - time) / 1000));
  const what = round.retrain && round.overlap === 1 ? "Training" : "Sent";
  return (
    <section className="stage words" aria-label="The last label">
      <h2>That was the last one</h2>
      <p>
        {what} in <span className="figures">{seconds} s</span>.
      </p>
      <div className="row">
        <Button onClick={labelling.undo}>
          Undo <kbd aria-hidden="true">Backspace</kbd>
        </Button>
        <Button kind="primary" onClick={labelling.confirm}>
          Now <kbd aria-hidden="true">Enter</kbd>
        </Button>
      </div>
    </section>
  );
}

interface TroubleProps {
  error: unknown;
  now: Snapshot;
  onRetry: () => void;
  projectId: string;
}

function Trouble({ error, now, onRetry, projectId }: TroubleProps) {
  const n = unsent(now.kept).length;
  return (
    <section className="stage words" role="alert">
      <h2>{error instanceof Problem ? "No items come" : "The service does not answer"}</h2>
      <p>
        {error instanceof Problem ? sentence(error) : "It is asked again by itself."}
        {n > 0 && ` ${many(n, "label")} kept in this browser, and sent when it is back.`}
      </p>
      <div className="row">
        <Button kind="primary" isBusy={now.isAsking} onClick={onRetry}>
          Try now
        </Button>
        <ButtonLink href={`/p/${projectId}`}>Back</ButtonLink>
      </div>
    </section>
  );
}

function Others({ now, project, onAsk }: { now: Snapshot; project: Project; onAsk: () => void }) {
  const [isWaiting, setWaiting] = useState(false);
  const { left, freeAt } = now.state;
  const n = left ?? 0;
  return (
    <section className="stage words" aria-label="Nothing to label now">
      <h2>
        {freeAt === null
          ? `${count(n)} ${n === 1 ? "waits" : "wait"} for other annotators`
          : `Others hold the last ${count(n)} till ${clock(new Date(freeAt).toISOString())}`}
      </h2>
      <p>
        {freeAt === null
          ? "You have answered all that were yours to answer."
          : "They are yours when others give them back, or have not answered by then."}
      </p>
      {isWaiting && <p role="status">Waiting. They appear here by themselves.</p>}
      <div className="row">
        <Button
          kind="primary"
          isBusy={now.isAsking}
          onClick={() => {
            setWaiting(true);
            onAsk();
          }}
        >
          Wait
        </Button>
        <ButtonLink href={`/p/${project.id}`}>Back</ButtonLink>
      </div>
    </section>
  );
}

/** A session at work: what to run next, what it would teach, what is known by now, and every trial so far. */
import { useState } from "react";
import { Link } from "wouter";
import { Loaded } from "../components/Loaded";
import type { Session } from "../api/types";
import { useExperiment } from "../hooks/useExperiment";
import { useKnowledge } from "../hooks/useKnowledge";
import { useForbidden } from "../hooks/useMe";
import { useSession } from "../hooks/useSession";
import { useTrial } from "../hooks/useTrial";
import { ago, many } from "../formats";
import { EigPanel } from "./Session/EigPanel";
import { Known } from "./Session/Known";
import { Narrowing } from "./Session/Narrowing";
import { Next } from "./Session/Next";
import { SessionActions } from "./Session/SessionActions";
import { TrialsTable } from "./Session/TrialsTable";
import "./Session.css";

export default function SessionPage({ sessionId }: { sessionId: string }) {
  const session = useSession(sessionId, { isWatched: true });
  return <Loaded of={session}>{(found) => <Running session={found} onChange={session.reload} />}</Loaded>;
}

function Running({ session, onChange }: { session: Session; onChange: () => void }) {
  const forbidden = useForbidden("label");
  const experiment = useExperiment(session.experiment_id);
  const { trials, posterior, prior } = useKnowledge(session.id, session.revision);
  const trial = useTrial({ session, mayRun: forbidden === undefined, namesRevision: true, onChange });
  const past = trials.data ?? NO_TRIALS;
  const last = past.at(-1);
  const [chosen, choose] = useState<string | null>(null);
  const names = Object.keys(posterior.data?.posterior ?? {});
  const targets = targetsOf(experiment.data?.spec) ?? names;
  const shown = chosen ?? targets[0] ?? "";
  return (
    <div className="stack session">
      <div className="between">
        <div className="stack tight">
          <h1>{session.name}</h1>
          <p className="quiet">
            {experiment.data !== undefined && (
              <>
                <Link href={`/e/${session.experiment_id}`}>{experiment.data.name}</Link> ·{" "}
              </>
            )}
            {many(session.n_observations, "trial")} · opened {ago(session.created_at)}
            {session.n_prior_observations > 0 &&
              ` · began with ${many(session.n_prior_observations, "observation")} of other sessions`}
            {session.status === "closed" && " · closed"}
          </p>
        </div>
        <SessionActions session={session} onChange={onChange} />
      </div>
      <Next
        session={session}
        trial={trial}
        spec={experiment.data?.spec}
        posterior={posterior.data}
        last={last}
        forbidden={forbidden}
      />
      <hr />
      <div className="columns">
        <EigPanel session={session} proposal={trial.proposal} past={past} />
        <Known posterior={posterior} prior={prior.data} targets={targets} shown={shown} onShow={choose} />
      </div>
      <hr />
      <div className="columns">
        <Narrowing name={shown} prior={prior.data} trials={past} />
        <TrialsTable
          session={session}
          trials={trials}
          onUndo={(n) => void trial.undo(n)}
          isBusy={trial.isUndoing || trial.kept !== null}
        />
      </div>
    </div>
  );
}

const NO_TRIALS: never[] = [];

function targetsOf(spec: Record<string, unknown> | undefined): string[] | undefined {
  return Array.isArray(spec?.targets) ? (spec.targets as string[]) : undefined;
}

/** The next trial: what to run, what it promises, where to enter what came out, and whether to stop. */
import { useState } from "react";
import type { Posterior, Session, Trial } from "../../api/types";
import { Button } from "../../components/Button";
import { CopyAsCurl } from "../../components/CopyAsCurl";
import { JobLine } from "../../components/JobLine";
import { Skeleton } from "../../components/Loaded";
import { Failure, Notice } from "../../components/Notice";
import { OutcomeEntry } from "../../components/OutcomeEntry";
import { Outgoing } from "../../components/Outgoing";
import type { Value } from "../../experiments/entry";
import { isBareKey } from "../../experiments/entry";
import { assignments, stopWords } from "../../experiments/words";
import { number } from "../../formats";
import { useKeys, useKeySwitch } from "../../hooks/useKeys";
import type { Trials } from "../../hooks/useTrial";
import { OtherDesign } from "./OtherDesign";

interface Props {
  session: Session;
  trial: Trials;
  spec: Record<string, unknown> | undefined;
  posterior: Posterior | undefined;
  last: Trial | undefined;
  forbidden: string | undefined;
}

export function Next({ session, trial, spec, posterior, last, forbidden }: Props) {
  const [hasKeys, setHasKeys] = useKeySwitch();
  const [own, setOwn] = useState<{ proposalId: string; design: Record<string, Value> } | null>(null);
  const [isOther, setOther] = useState(false);
  const [goesOn, setGoesOn] = useState(false);
  const { proposal } = trial;
  // A design of one's own is for this proposal: the next one counts again.
  const design = own !== null && own.proposalId === proposal?.id ? own.design : undefined;
  const isBusy = trial.kept !== null || trial.isUndoing || trial.isAsking;
  const isStopped = trial.stop?.stop === true && !goesOn && design === undefined;
  useKeys(hasKeys && session.status === "open" && !isBusy, `${proposal?.id}`, (event) => {
    if (event.key !== "Backspace" || !isBareKey(event) || last === undefined) return;
    event.preventDefault();
    void trial.undo(last.n);
  });

  if (session.status === "closed") {
    return <Notice>This session is closed: it can be read, and opened again, but takes no outcomes.</Notice>;
  }
  if (forbidden !== undefined) return <Notice>{forbidden} Here you can follow the session.</Notice>;
  const rules = stopWords(
    spec?.stop,
    posterior === undefined ? undefined : { n: session.n_observations, posterior: posterior.posterior },
  );
  return (
    <section className="next" aria-label="Next trial">
      <div aria-live="polite" className="stack">
        {isStopped && (
          <Notice kind="good">
            <div>
              <p>
                <strong>Enough is known: you can stop here.</strong>
              </p>
              <p>{trial.stop?.reasons.join("; ")}.</p>
            </div>
            {proposal !== null && <Button onClick={() => setGoesOn(true)}>Go on all the same</Button>}
          </Notice>
        )}
        {!isStopped && proposal !== null && (
          <div>
            <h2>{design === undefined ? "Next" : "Your own design"}</h2>
            <p className="design">{assignments(design ?? proposal.design)}</p>
            {design === undefined ? (
              <p className="quiet">
                gains <span className="figures">{number(proposal.eig)}</span>
                {proposal.se !== null && proposal.se >= 0.0005 && (
                  <span className="figures"> ± {number(2 * proposal.se, 2)}</span>
                )}{" "}
                nats
                {proposal.runner_up !== null &&
                  assignments(proposal.runner_up.design) !== assignments(proposal.design) &&
                  `, ahead of ${assignments(proposal.runner_up.design)} with ${number(proposal.runner_up.eig)}`}
                {proposal.chosen === "tie" && "; drawn among equals"}
                {proposal.chosen === "random" && "; drawn at random, as the spec asks"}
                {proposal.note !== null && `. ${proposal.note}`}
              </p>
            ) : (
              <p className="quiet">
                {assignments(proposal.design)} was proposed.{" "}
                <Button kind="link" onClick={() => setOwn(null)}>
                  Run that
                </Button>
              </p>
            )}
            {rules.length > 0 && <p className="quiet">{rules.join(" · ")}</p>}
            {trial.stop?.note && <p className="quiet">{trial.stop.note}</p>}
          </div>
        )}
        {trial.job !== null && proposal === null && (
          <JobLine job={trial.job} title="Looking for the next design" />
        )}
        {trial.job === null && proposal === null && trial.isAsking && <Skeleton lines={2} />}
        {trial.problem !== undefined && <Failure error={trial.problem} onRetry={() => void trial.ask()} />}
      </div>

      {!isStopped && proposal !== null && (
        <div className="answers">
          <OutcomeEntry
            fields={session.form.outcomes}
            trial={`${proposal.id} ${JSON.stringify(design ?? "")}`}
            isBusy={isBusy}
            hasKeys={hasKeys}
            onRecord={(outcome) => void trial.record(outcome, design)}
          />
          <div className="row">
            <Button aria-expanded={isOther} onClick={() => setOther(!isOther)} isBusy={isBusy}>
              Another design
            </Button>
            <Undo trial={trial} last={last} isBusy={isBusy} />
          </div>
        </div>
      )}
      {(isStopped || proposal === null) && (
        <div className="row">
          <Undo trial={trial} last={last} isBusy={isBusy} />
        </div>
      )}
      <Outgoing trial={trial} />
      {trial.refusal !== null && <Failure error={trial.refusal} />}
      <Warnings learnt={trial.learnt} last={last} />
      {isOther && !isStopped && proposal !== null && (
        <OtherDesign
          designs={session.form.designs}
          proposal={proposal}
          onOwn={(chosen) => {
            setOwn({ proposalId: proposal.id, design: chosen });
            setOther(false);
          }}
          onWish={(wish) => {
            setOther(false);
            void trial.replace(wish);
          }}
        />
      )}
      <div className="row">
        <label className="switch">
          <input type="checkbox" checked={hasKeys} onChange={(event) => setHasKeys(event.target.checked)} />
          Keys answer, Backspace undoes
        </label>
        {proposal !== null && (
          <CopyAsCurl
            method="POST"
            address={`/v1/sessions/${session.id}/observations?next=true`}
            body={{ proposal_id: proposal.id, outcome: exampleOf(session) }}
          />
        )}
      </div>
    </section>
  );
}

function Undo({ trial, last, isBusy }: { trial: Trials; last: Trial | undefined; isBusy: boolean }) {
  if (last === undefined) return null;
  return (
    <Button isBusy={isBusy} onClick={() => void trial.undo(last.n)}>
      Undo {assignments(last.outcome)} at {assignments(last.design)}
    </Button>
  );
}

function Warnings({ learnt, last }: { learnt: Trials["learnt"]; last: Trial | undefined }) {
  const warnings = learnt?.warnings ?? last?.warnings ?? [];
  if (warnings.length === 0) return null;
  return (
    <Notice kind="warn">
      <ul>
        {warnings.map((warning) => (
          <li key={warning}>{warning}</li>
        ))}
      </ul>
    </Notice>
  );
}

function exampleOf({ form }: Session): Record<string, unknown> {
  return Object.fromEntries(
    form.outcomes.map(({ name, choices, low }) => [name, choices?.at(-1)?.value ?? low ?? 1]),
  );
}

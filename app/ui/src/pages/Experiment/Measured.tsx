/** What is measured, in words and as JSON; the spec can be changed until a session has begun. */
import { useState } from "react";
import { useLocation } from "wouter";
import { api } from "../../api/client";
import type { Experiment, SessionItem } from "../../api/types";
import { Button } from "../../components/Button";
import { Failure } from "../../components/Notice";
import { SpecEditor } from "../../components/SpecEditor";
import { Understood } from "../../components/Understood";
import { writeDraft } from "../../experiments/draft";
import { specText } from "../../experiments/specText";
import { useForbidden } from "../../hooks/useMe";
import { useModel } from "../../hooks/useModel";

interface Props {
  experiment: Experiment;
  sessions: SessionItem[] | undefined;
  onChange: () => void;
}

export function Measured({ experiment, sessions, onChange }: Props) {
  const stored = specText(experiment.spec);
  const [text, setText] = useState<string | null>(null);
  const reading = useModel(text ?? stored);
  const [, go] = useLocation();
  const forbidden = useForbidden("write");
  const [error, setError] = useState<unknown>();
  const [isBusy, setBusy] = useState(false);
  const hasBegun = sessions?.some(
    ({ n_observations, n_pending, revision }) => n_observations + n_pending + revision > 0,
  );
  const notYet = reading.isReading || reading.mistakes.length > 0 ? "Mend what is marked first." : undefined;

  async function save(): Promise<void> {
    setBusy(true);
    setError(undefined);
    try {
      const spec = reading.spec as Record<string, never>;
      const name =
        typeof reading.spec?.name === "string" && reading.spec.name !== "" ? reading.spec.name : undefined;
      await api.patch("/v1/experiments/{experiment_id}", {
        path: { experiment_id: experiment.id },
        body: { spec, name },
      });
      setText(null);
      onChange();
    } catch (reason) {
      setError(reason);
    } finally {
      setBusy(false);
    }
  }

  function copy(): void {
    writeDraft(stored);
    go("/experiments");
  }

  return (
    <section className="stack" aria-labelledby="measured">
      <h2 id="measured">What is measured</h2>
      {reading.mistakes.length === 0 && (
        <Understood spec={reading.spec ?? experiment.spec} model={reading.model} />
      )}
      {reading.error !== undefined && text === null && <Failure error={reading.error} />}
      {text === null ? (
        <>
          <details>
            <summary>Show as JSON</summary>
            <pre tabIndex={0}>{stored}</pre>
          </details>
          <div className="row">
            {hasBegun === false && (
              <Button forbidden={forbidden} onClick={() => setText(stored)}>
                Change it
              </Button>
            )}
            <Button onClick={copy}>Start another from this</Button>
          </div>
          {hasBegun === true && (
            <p className="quiet">A session has begun: what is measured stays as it is.</p>
          )}
        </>
      ) : (
        <>
          <SpecEditor text={text} reading={reading} onChange={setText} />
          <div className="row">
            <Button kind="primary" forbidden={notYet} isBusy={isBusy} onClick={() => void save()}>
              Save
            </Button>
            <Button onClick={() => setText(null)}>Leave it as it was</Button>
          </div>
          {error !== undefined && <Failure error={error} />}
        </>
      )}
    </section>
  );
}

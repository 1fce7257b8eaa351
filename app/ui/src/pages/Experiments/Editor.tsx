/** A new experiment: its spec as text, what was understood of it beside it, and the button that makes it. */
import { useState } from "react";
import { useLocation } from "wouter";
import { api, newRequestKey } from "../../api/client";
import { Button } from "../../components/Button";
import { CopyAsCurl } from "../../components/CopyAsCurl";
import { Failure } from "../../components/Notice";
import { SpecEditor } from "../../components/SpecEditor";
import { Understood } from "../../components/Understood";
import { writeDraft } from "../../experiments/draft";
import { useForbidden, useMe } from "../../hooks/useMe";
import { useModel } from "../../hooks/useModel";

interface Props {
  text: string;
  onChange: (text: string) => void;
  onDiscard: () => void;
}

export function Editor({ text, onChange, onDiscard }: Props) {
  const [, go] = useLocation();
  const reading = useModel(text);
  const { name, project_ids } = useMe();
  const tooSmall = useForbidden("write");
  const isBound =
    project_ids === null ? undefined : `The key “${name}” is bound to projects and makes no experiments.`;
  const notYet = reading.isReading
    ? "The text is being read."
    : reading.mistakes.length > 0
      ? "Mend what is marked first."
      : undefined;
  const [error, setError] = useState<unknown>();
  const [isBusy, setBusy] = useState(false);

  async function save(): Promise<void> {
    setBusy(true);
    setError(undefined);
    try {
      const made = await api.post("/v1/experiments", {
        body: reading.spec as never,
        headers: { "Idempotency-Key": newRequestKey() },
      });
      writeDraft(null);
      go(`/e/${made.id}`);
    } catch (reason) {
      setError(reason);
      setBusy(false);
    }
  }

  return (
    <section className="editor" aria-label="A new experiment">
      <SpecEditor text={text} reading={reading} onChange={onChange} />
      <div className={reading.isReading ? "stack faded" : "stack"} aria-busy={reading.isReading}>
        <h2>Understood</h2>
        {reading.spec !== null && reading.mistakes.length === 0 && reading.model !== null ? (
          <Understood spec={reading.spec} model={reading.model} />
        ) : (
          <p className="quiet">
            {reading.isReading ? "Reading…" : "Nothing yet: see what is marked in the text."}
          </p>
        )}
      </div>
      <div className="row">
        <Button
          kind="primary"
          forbidden={tooSmall ?? isBound ?? notYet}
          isBusy={isBusy}
          onClick={() => void save()}
        >
          Create the experiment
        </Button>
        <Button onClick={onDiscard}>Discard</Button>
        {reading.model !== null && <CopyAsCurl method="POST" address="/v1/experiments" body={reading.spec} />}
        {error !== undefined && <Failure error={error} />}
      </div>
    </section>
  );
}

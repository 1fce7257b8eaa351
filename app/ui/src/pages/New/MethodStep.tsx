/** How it is measured and learnt: all of it has a default that does well, so that nothing need be chosen. */
import { Problem } from "../../api/problem";
import { Button } from "../../components/Button";
import { SelectField, TextField } from "../../components/Field";
import { Loaded } from "../../components/Loaded";
import { MethodForm } from "../../components/MethodForm";
import { Notice } from "../../components/Notice";
import { fittingMethods, type Methods } from "../../hooks/useMethods";
import type { Resource } from "../../hooks/useResource";
import { labelColumn, mistakesIn, type Draft } from "./draft";
import { ENDINGS, kindOf, refusalOf } from "./fileKind";
import { useState } from "react";

interface Props {
  draft: Draft;
  onChange: (draft: Draft) => void;
  evaluation: File | null;
  onEvaluation: (file: File | null) => void;
  methods: Resource<Methods>;
  problem: unknown;
  isTried: boolean;
  onMake: () => void;
  isBusy: boolean;
}

export function MethodStep(props: Props) {
  const { draft, onChange, methods, problem, isTried, onMake, isBusy } = props;
  const mistakes = isTried ? mistakesIn(draft, "method") : {};
  const at = (pointer: string) => (problem instanceof Problem ? problem.at(pointer) : undefined);
  const set = (change: Partial<Draft>) => onChange({ ...draft, ...change });
  return (
    <>
      <p>
        Nothing to choose here: the method is picked from your labels, and rows by what goes with the task.
        Each version says which, and why.
      </p>
      {!draft.isWithoutFile && <Measured {...props} holdoutError={mistakes.holdout ?? at("/holdout")} />}
      {!draft.isWithoutFile && (
        <>
          <TextField
            label="Items a round"
            inputMode="numeric"
            value={draft.k}
            error={mistakes.k}
            help="So many are labelled before it learns anew."
            onChange={(event) => set({ k: event.target.value })}
          />
          <label className="choice">
            <input
              type="checkbox"
              checked={draft.isGoingOn}
              onChange={(event) => set({ isGoingOn: event.target.checked })}
            />
            After each round, train anew and open the next
          </label>
        </>
      )}
      <details>
        <summary>More</summary>
        <Loaded of={methods}>
          {(known) => (
            <div className="stack more">
              <MethodForm
                label="Posterior"
                methods={known.posteriors}
                choice={draft.posterior}
                onChange={(posterior) => set({ posterior })}
                usual="auto: what predicts well from few labels, chosen from the labels."
                problem={problem}
                pointer="/posterior"
              />
              <MethodForm
                label="Model"
                methods={known.models}
                choice={draft.model}
                onChange={(model) => set({ model })}
                usual="Left to the posterior, which from few labels often does better without a network."
                problem={problem}
                pointer="/model"
              />
              <MethodForm
                label="Acquisition"
                methods={fittingMethods(known.acquisitions, draft)}
                choice={draft.acquisition}
                onChange={(acquisition) => set({ acquisition })}
                usual="How a row is scored: margin for classes, the spread of the members for numbers."
                problem={problem}
                pointer="/acquisition"
              />
              <MethodForm
                label="Selection"
                methods={fittingMethods(known.selections, draft)}
                choice={draft.selection}
                onChange={(selection) => set({ selection })}
                usual="How a round's rows are taken from the scores: what goes with the acquisition."
                problem={problem}
                pointer="/selection"
              />
              {draft.kind === "regression" && (
                <SelectField
                  label="Noise"
                  value={draft.noise}
                  onChange={(event) => set({ noise: event.target.value as Draft["noise"] })}
                  help="The same for all rows, or predicted for each."
                >
                  <option value="constant">constant</option>
                  <option value="by_row">by row</option>
                </SelectField>
              )}
            </div>
          )}
        </Loaded>
      </details>
      <div>
        <Button kind="primary" isBusy={isBusy} onClick={onMake}>
          Make the project
        </Button>
      </div>
    </>
  );
}

function Measured({
  draft,
  onChange,
  evaluation,
  onEvaluation,
  holdoutError,
}: Props & { holdoutError?: string }) {
  const [refused, setRefused] = useState<string>();
  const label = labelColumn(draft);

  function take(file: File | undefined): void {
    if (file === undefined) return;
    const isKnown = kindOf(file.name) !== undefined;
    setRefused(isKnown ? undefined : refusalOf(file.name));
    if (!isKnown) return;
    onEvaluation(file);
    onChange({ ...draft, evaluationName: file.name });
  }

  return (
    <fieldset className="stack">
      <legend>Measured on</legend>
      <div className="row">
        <label className="button plain file-button">
          {draft.evaluationName === "" ? "Choose a file with labels" : "Choose another"}
          <input
            type="file"
            className="hidden"
            aria-label="Choose a file to measure on"
            accept={ENDINGS.join(",")}
            onChange={(event) => {
              take(event.target.files?.[0]);
              event.target.value = "";
            }}
          />
        </label>
        {draft.evaluationName !== "" && (
          <>
            <span>{draft.evaluationName}</span>
            <Button
              kind="link"
              onClick={() => {
                onEvaluation(null);
                onChange({ ...draft, evaluationName: "" });
              }}
            >
              Leave it out
            </Button>
          </>
        )}
      </div>
      <p className="quiet small">
        Rows with labels, of the same columns, that are never learnt from: accuracy is measured on them. May
        be left out.
      </p>
      {refused !== undefined && (
        <Notice kind="bad">
          <p>{refused}</p>
        </Notice>
      )}
      {draft.evaluationName !== "" && evaluation === null && (
        <Notice kind="warn">
          <p>A reload lets go of files: choose {draft.evaluationName} again, or leave it out.</p>
        </Notice>
      )}
      {draft.evaluationName === "" && label !== undefined && (
        <TextField
          label="Kept back, in %"
          inputMode="decimal"
          value={draft.holdout}
          error={holdoutError}
          help="Of the labels that came with the file: measured on, not learnt from."
          onChange={(event) => onChange({ ...draft, holdout: event.target.value })}
        />
      )}
      {draft.evaluationName === "" && label === undefined && (
        <p className="quiet small">
          Without labels and without such a file nobody can say how good it is by now.
        </p>
      )}
    </fieldset>
  );
}

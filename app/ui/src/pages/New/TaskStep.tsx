/** What is asked of each row, and what annotators see of it. */
import { Problem } from "../../api/problem";
import { Button } from "../../components/Button";
import { Field, SelectField, TextField } from "../../components/Field";
import { classesOf, labelColumn, mistakesIn, nFeatures, squareOf, type Draft } from "./draft";

interface Props {
  draft: Draft;
  onChange: (draft: Draft) => void;
  onNext: () => void;
  isTried: boolean;
  problem: unknown;
}

export function TaskStep({ draft, onChange, onNext, isTried, problem }: Props) {
  const mistakes = isTried ? mistakesIn(draft, "task") : {};
  const at = (pointer: string) => (problem instanceof Problem ? problem.at(pointer) : undefined);
  const set = (change: Partial<Draft>) => onChange({ ...draft, ...change });
  const isClasses = draft.kind === "classification";
  const label = labelColumn(draft);
  return (
    <>
      <TextField
        label="Name"
        value={draft.name}
        maxLength={200}
        autoComplete="off"
        error={mistakes.name ?? at("/name")}
        onChange={(event) => set({ name: event.target.value })}
      />
      <fieldset>
        <legend>What is asked of a row</legend>
        <div className="choices">
          <label className="choice">
            <input
              type="radio"
              name="kind"
              checked={isClasses}
              onChange={() => set({ kind: "classification" })}
            />
            Which class it is
          </label>
          <label className="choice">
            <input
              type="radio"
              name="kind"
              checked={!isClasses}
              onChange={() => set({ kind: "regression" })}
            />
            Which number
          </label>
        </div>
      </fieldset>
      {isClasses ? (
        <Field
          label="Classes"
          help={`One a line. ${foundWords(draft, label)}`}
          error={mistakes.classes ?? classProblem(problem)}
        >
          {(ties) => (
            <textarea
              {...ties}
              rows={Math.min(10, Math.max(3, classesOf(draft).length + 1))}
              value={draft.classes}
              onChange={(event) => set({ classes: event.target.value })}
            />
          )}
        </Field>
      ) : (
        <div className="fields">
          <TextField
            label="Unit"
            value={draft.unit}
            maxLength={40}
            autoComplete="off"
            help="Written beside the number, such as mm. May be empty."
            error={at("/display/unit")}
            onChange={(event) => set({ unit: event.target.value })}
          />
          <TextField
            label="Numbers a row"
            value={draft.outputs}
            inputMode="numeric"
            help="1, unless several are measured at once."
            error={mistakes.outputs ?? at("/task/outputs")}
            onChange={(event) => set({ outputs: event.target.value })}
          />
        </div>
      )}
      <SelectField
        label="Annotators see"
        value={draft.shows}
        onChange={(event) => {
          const shows = event.target.value as Draft["shows"];
          set(shows === "image" ? { shows, ...imageGuess(draft) } : { shows });
        }}
        help={SHOWN[draft.shows]}
        error={at("/display/kind")}
      >
        <option value="auto">what fits best</option>
        <option value="image">an image</option>
        <option value="text">a text</option>
        <option value="table">a table of its features</option>
      </SelectField>
      {draft.shows === "image" && (
        <div className="fields">
          <TextField
            label="Pixels down"
            inputMode="numeric"
            value={draft.imageHeight}
            error={mistakes.imageHeight ?? at("/display/shape")}
            onChange={(event) => set({ imageHeight: event.target.value })}
          />
          <TextField
            label="Pixels across"
            inputMode="numeric"
            value={draft.imageWidth}
            onChange={(event) => set({ imageWidth: event.target.value })}
          />
          <label className="choice">
            <input
              type="checkbox"
              checked={draft.isColour}
              onChange={(event) => set({ isColour: event.target.checked })}
            />
            In colour: three numbers a pixel
          </label>
          <TextField
            label="Black is"
            value={draft.low}
            placeholder="the least"
            error={mistakes.low ?? at("/display/range")}
            onChange={(event) => set({ low: event.target.value })}
          />
          <TextField
            label="White is"
            value={draft.high}
            placeholder="the greatest"
            onChange={(event) => set({ high: event.target.value })}
          />
        </div>
      )}
      <Field
        label="Instructions"
        help="What annotators are asked to do, in plain text. May be empty."
        error={at("/display/instructions")}
      >
        {(ties) => (
          <textarea
            {...ties}
            rows={3}
            maxLength={2000}
            value={draft.instructions}
            onChange={(event) => set({ instructions: event.target.value })}
          />
        )}
      </Field>
      <div>
        <Button kind="primary" onClick={onNext}>
          Go on
        </Button>
      </div>
    </>
  );
}

const SHOWN: Record<Draft["shows"], string> = {
  auto: "The column that is shown to them, if there is one; else the features.",
  image: "Drawn from the features, or from an address in the column that is shown.",
  text: "From the column that is shown to them.",
  table: "Each feature with its name.",
};

function foundWords(draft: Draft, label: string | undefined): string {
  const isFromFile = draft.found?.suggested.task?.kind === "classification";
  if (isFromFile && label !== undefined)
    return draft.found?.n_rows === null
      ? `Found in the first part of “${label}”: add those that come later.`
      : `Found in the column “${label}”.`;
  return "All that there are, also those that nobody has seen yet.";
}

/** A class is marked by its place in the list, but there is one field for all. */
function classProblem(problem: unknown): string | undefined {
  if (!(problem instanceof Problem)) return undefined;
  return problem.errors.find(({ pointer }) => pointer.startsWith("/task"))?.detail;
}

function imageGuess(draft: Draft): Partial<Draft> {
  const square = squareOf(nFeatures(draft));
  if (draft.imageHeight !== "" || square === undefined) return {};
  const side = String(square.side);
  return { imageHeight: side, imageWidth: side, isColour: square.isColour };
}

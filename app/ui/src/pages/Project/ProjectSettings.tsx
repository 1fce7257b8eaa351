/** How the next versions are trained and the next items chosen, and how items are shown. */
import { useState } from "react";
import { api, type Asked } from "../../api/client";
import { Problem } from "../../api/problem";
import type { Project } from "../../api/types";
import { Button } from "../../components/Button";
import { CopyAsCurl } from "../../components/CopyAsCurl";
import { Field, SelectField, TextField } from "../../components/Field";
import { Loaded } from "../../components/Loaded";
import { MethodForm, specOf, type MethodChoice } from "../../components/MethodForm";
import { Failure, Notice } from "../../components/Notice";
import { useAction } from "../../hooks/useAction";
import { useForbidden } from "../../hooks/useMe";
import { fittingMethods, useMethods, type Method, type Methods } from "../../hooks/useMethods";
import { changedFields, choiceOf, displayOf, textsOfDisplay, type DisplayTexts } from "./settings";

/** Methods were made from the schemas that the service itself gave. */
type Change = Asked<"/v1/projects/{project_id}", "patch">["body"];

interface Props {
  project: Project;
  onChange: () => void;
}

export function ProjectSettings({ project, onChange }: Props) {
  const [isOpen, setOpen] = useState(false);
  return (
    <details className="folded" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Settings of this project</summary>
      {isOpen && <Opened project={project} onChange={onChange} />}
    </details>
  );
}

function Opened({ project, onChange }: Props) {
  const methods = useMethods();
  return (
    <Loaded of={methods}>
      {(known) => <Form key={project.id} project={project} methods={known} onChange={onChange} />}
    </Loaded>
  );
}

function Form({ project, methods, onChange }: Props & { methods: Methods }) {
  const [name, setName] = useState(project.name);
  const [posterior, setPosterior] = useState(() => choiceOf(methods.posteriors, project.posterior));
  const [acquisition, setAcquisition] = useState(() => choiceOf(methods.acquisitions, project.acquisition));
  const [selection, setSelection] = useState(() => choiceOf(methods.selections, project.selection));
  const [calibrate, setCalibrate] = useState(String(project.calibrate));
  const [display, setDisplay] = useState(() => textsOfDisplay(project.display));
  const forbidden = useForbidden("write");

  const specs = {
    posterior: specOf(methods.posteriors, posterior),
    acquisition: specOf(methods.acquisitions, acquisition),
    selection: specOf(methods.selections, selection),
  };
  const shown = displayOf(display);
  const isWrong = Object.values(specs).some((spec) => spec.isWrong) || shown.error !== undefined;
  const body = changedFields(project, {
    name,
    posterior: specs.posterior.spec ?? { name: "auto" },
    acquisition: specs.acquisition.spec ?? null,
    selection: specs.selection.spec ?? null,
    calibrate: calibrate === "folds" ? "folds" : calibrate === "true",
    display: shown.display,
  });
  const isSame = Object.keys(body).length === 0;
  const save = useAction(async () => {
    await api.patch("/v1/projects/{project_id}", { path: { project_id: project.id }, body: body as Change });
    onChange();
  });
  const method = (
    label: string,
    which: Record<string, Method>,
    choice: MethodChoice,
    change: (to: MethodChoice) => void,
    usual: string,
    pointer: string,
  ) => (
    <MethodForm
      label={label}
      methods={which}
      choice={choice}
      onChange={change}
      usual={usual}
      problem={save.error}
      pointer={pointer}
    />
  );
  return (
    <form
      className="stack"
      onSubmit={(event) => {
        event.preventDefault();
        if (!isWrong && !isSame && forbidden === undefined) void save.run();
      }}
    >
      <div className="fields">
        <TextField
          label="Name"
          value={name}
          onChange={(event) => setName(event.target.value)}
          error={save.error instanceof Problem ? save.error.at("/name") : undefined}
        />
        {method(
          "Posterior",
          methods.posteriors,
          posterior,
          setPosterior,
          "How uncertainty is represented: chosen from the labels.",
          "/posterior",
        )}
        {method(
          "Score",
          fittingMethods(methods.acquisitions, project.task),
          acquisition,
          setAcquisition,
          "How a row is scored: what goes with the task.",
          "/acquisition",
        )}
        {method(
          "Selection",
          fittingMethods(methods.selections, project.task),
          selection,
          setSelection,
          "How rows are taken by their scores: what goes with it.",
          "/selection",
        )}
        <SelectField
          label="Calibrate"
          value={calibrate}
          onChange={(event) => setCalibrate(event.target.value)}
          help="One scale on how sure forecasts are, learnt from rows that the training did not see."
        >
          <option value="true">yes, from rows held out</option>
          <option value="folds">yes, from five more trainings</option>
          <option value="false">no</option>
        </SelectField>
      </div>
      <h3>How items are shown</h3>
      <DisplayFields texts={display} onChange={setDisplay} task={project.task.kind} error={shown.error} />
      {save.error !== undefined && <Failure error={save.error} />}
      <div className="row">
        <Button
          kind="primary"
          type="submit"
          isBusy={save.isBusy}
          forbidden={
            forbidden ?? (isWrong ? "A field cannot be read." : isSame ? "Nothing is changed." : undefined)
          }
          onClick={() => undefined}
        >
          Save
        </Button>
        {!isSame && <CopyAsCurl method="PATCH" address={`/v1/projects/${project.id}`} body={body} />}
      </div>
      {isSame && !save.isBusy && save.error === undefined && (
        <p className="quiet small">As it is. Changes count from the next training and ranking on.</p>
      )}
    </form>
  );
}

interface DisplayProps {
  texts: DisplayTexts;
  onChange: (texts: DisplayTexts) => void;
  task: "classification" | "regression";
  error: string | undefined;
}

function DisplayFields({ texts, onChange, task, error }: DisplayProps) {
  const set = (name: keyof DisplayTexts) => (event: { target: { value: string } }) =>
    onChange({ ...texts, [name]: event.target.value });
  return (
    <>
      <div className="fields">
        <SelectField label="Shown as" value={texts.kind} onChange={set("kind")}>
          <option value="auto">what the payload looks like</option>
          <option value="image">a picture</option>
          <option value="text">a text</option>
          <option value="table">a table</option>
        </SelectField>
        {(texts.kind === "image" || texts.kind === "auto") && (
          <>
            <TextField
              label="Shape"
              value={texts.shape}
              onChange={set("shape")}
              placeholder="8, 8"
              help="Of pictures made of the features: height, width, and 3 for colours."
            />
            <TextField
              label="Range"
              value={texts.range}
              onChange={set("range")}
              placeholder="0, 16"
              help="The values shown as black and as white."
            />
          </>
        )}
        {(texts.kind === "table" || texts.kind === "auto") && (
          <TextField
            label="Columns"
            value={texts.columns}
            onChange={set("columns")}
            placeholder="age, sex, bmi"
            help="Names of the features, in their order."
          />
        )}
        {task === "regression" && (
          <TextField
            label="Unit"
            value={texts.unit}
            onChange={set("unit")}
            placeholder="mm"
            help="Of the numbers that are labelled."
          />
        )}
        <Field label="Instructions" help="What annotators are asked to do, in plain text.">
          {(ties) => (
            <textarea {...ties} rows={3} value={texts.instructions} onChange={set("instructions")} />
          )}
        </Field>
      </div>
      {error !== undefined && (
        <Notice kind="bad">
          <p>{error}</p>
        </Notice>
      )}
    </>
  );
}

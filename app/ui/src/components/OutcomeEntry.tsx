/** What came out of a trial: buttons for a choice, a stepper for a count, a field for a number. */
import { useState, type FormEvent } from "react";
import type { OutcomeField } from "../api/types";
import { choiceOfKey, choicesOf, isOnePress, readEntry, step, type Value } from "../experiments/entry";
import { useKeys } from "../hooks/useKeys";
import { Button } from "./Button";
import { Field } from "./Field";
import "./OutcomeEntry.css";

interface Props {
  fields: readonly OutcomeField[];
  /** What is being run: another one empties the fields. */
  trial: string;
  isBusy: boolean;
  forbidden?: string;
  hasKeys: boolean;
  onRecord: (outcome: Record<string, Value>) => void;
}

export function OutcomeEntry({ trial, ...props }: Props) {
  return isOnePress(props.fields) ? (
    <OneChoice trial={trial} {...props} />
  ) : (
    <SeveralFields key={trial} {...props} />
  );
}

function OneChoice({ fields, trial, isBusy, forbidden, hasKeys, onRecord }: Props) {
  const field = fields[0];
  const choices = field === undefined ? [] : choicesOf(field);
  const name = field?.name ?? "";
  const isOff = isBusy || forbidden !== undefined;
  useKeys(hasKeys && !isOff, trial, (event) => {
    const chosen = choiceOfKey(choices, event);
    if (chosen === undefined) return;
    event.preventDefault();
    onRecord({ [name]: chosen.value });
  });
  return (
    <div className="outcome-choices" role="group" aria-label={`Outcome ${name}`}>
      {choices.map(({ value, label, key }) => (
        <Button
          key={String(value)}
          isBusy={isBusy}
          forbidden={forbidden}
          aria-keyshortcuts={hasKeys && key !== null ? key : undefined}
          onClick={() => onRecord({ [name]: value })}
        >
          <span>{label}</span>
          {hasKeys && key !== null && <kbd aria-hidden="true">{key}</kbd>}
        </Button>
      ))}
    </div>
  );
}

function SeveralFields({ fields, isBusy, forbidden, onRecord }: Omit<Props, "trial">) {
  const [typed, setTyped] = useState<Record<string, string>>({});
  const [errors, setErrors] = useState<Record<string, string>>({});

  function set(name: string, text: string): void {
    setTyped((before) => ({ ...before, [name]: text }));
    setErrors((before) => Object.fromEntries(Object.entries(before).filter(([other]) => other !== name)));
  }

  function submit(event: FormEvent): void {
    event.preventDefault();
    if (isBusy || forbidden !== undefined) return;
    const outcome: Record<string, Value> = {};
    const found: Record<string, string> = {};
    for (const field of fields) {
      const entered = readEntry(field, typed[field.name] ?? "");
      if (entered.isGood) outcome[field.name] = entered.value;
      else found[field.name] = entered.error;
    }
    setErrors(found);
    if (Object.keys(found).length === 0) onRecord(outcome);
  }

  return (
    <form className="outcome-fields" onSubmit={submit} noValidate>
      {fields.map((field) => {
        const value = typed[field.name] ?? "";
        const error = errors[field.name];
        if (field.kind === "choice") {
          return <ChoiceField key={field.name} field={field} value={value} error={error} onChange={set} />;
        }
        return (
          <Field key={field.name} label={field.name} help={rangeWords(field)} error={error}>
            {(ties) => (
              <div className="stepper">
                {field.kind === "count" && (
                  <Button
                    aria-label={`${field.name}: one fewer`}
                    onClick={() => set(field.name, step(field, value, -1))}
                  >
                    −
                  </Button>
                )}
                <input
                  type="text"
                  inputMode={field.kind === "count" ? "numeric" : "decimal"}
                  autoComplete="off"
                  value={value}
                  onChange={(event) => set(field.name, event.target.value)}
                  {...ties}
                />
                {field.kind === "count" && (
                  <Button
                    aria-label={`${field.name}: one more`}
                    onClick={() => set(field.name, step(field, value, 1))}
                  >
                    +
                  </Button>
                )}
              </div>
            )}
          </Field>
        );
      })}
      <Button kind="primary" type="submit" isBusy={isBusy} forbidden={forbidden}>
        Record
      </Button>
    </form>
  );
}

interface ChoiceProps {
  field: OutcomeField;
  value: string;
  error?: string;
  onChange: (name: string, text: string) => void;
}

function ChoiceField({ field, value, error, onChange }: ChoiceProps) {
  return (
    <fieldset className="choice-field">
      <legend>{field.name}</legend>
      <div className="row">
        {choicesOf(field).map((choice) => (
          <label key={String(choice.value)} className="outcome-option">
            <input
              type="radio"
              name={field.name}
              checked={value === String(choice.value)}
              onChange={() => onChange(field.name, String(choice.value))}
            />
            {choice.label}
          </label>
        ))}
      </div>
      {error !== undefined && (
        <p className="bad help" role="alert">
          {error}
        </p>
      )}
    </fieldset>
  );
}

function rangeWords({ kind, low, high, integer }: OutcomeField): string {
  const what = kind === "count" || integer ? "a whole number" : "a number";
  const from = low ?? (kind === "count" ? 0 : null);
  if (from !== null && high !== null) return `${what} from ${from} to ${high}`;
  if (from !== null) return `${what} from ${from} on`;
  return high === null ? what : `${what} up to ${high}`;
}

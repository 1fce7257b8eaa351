/** A form made from a JSON schema: each field with its default and its sentence, the first few shown, the rest under More. */
import { Problem } from "../api/problem";
import { Field } from "./Field";
import {
  fallbackText,
  fieldsOf,
  readTexts,
  textOf,
  type JsonSchema,
  type SchemaField,
  type Texts,
} from "./schema";
import "./SchemaForm.css";

interface Props {
  schema: JsonSchema;
  texts: Texts;
  onChange: (texts: Texts) => void;
  /** What the service refused: its pointers mark the fields under `pointer`. */
  problem?: unknown;
  /** Where the values lie in the request's body, such as `/posterior`. */
  pointer?: string;
  /** How many fields stand open. */
  open?: number;
}

export function SchemaForm({ schema, texts, onChange, problem, pointer = "", open = 3 }: Props) {
  const fields = fieldsOf(schema);
  const { errors } = readTexts(fields, texts);
  const errorOf = (field: SchemaField) =>
    errors[field.name] ?? (problem instanceof Problem ? problem.at(`${pointer}/${field.name}`) : undefined);
  const show = (field: SchemaField) => (
    <SchemaInput
      key={field.name}
      field={field}
      text={textOf(field, texts)}
      error={errorOf(field)}
      onText={(text) => onChange({ ...texts, [field.name]: text })}
    />
  );
  const [first, rest] = [fields.slice(0, open), fields.slice(open)];
  const isMarked = rest.some((field) => errorOf(field) !== undefined);
  return (
    <div className="schema-form">
      {first.length > 0 && <div className="fields">{first.map(show)}</div>}
      {rest.length > 0 && (
        <details open={isMarked || undefined}>
          <summary>More ({rest.length})</summary>
          <div className="fields">{rest.map(show)}</div>
        </details>
      )}
    </div>
  );
}

interface InputProps {
  field: SchemaField;
  text: string;
  error: string | undefined;
  onText: (text: string) => void;
}

function SchemaInput({ field, text, error, onText }: InputProps) {
  const { kind, label, isOptional } = field;
  if (kind === "boolean") {
    return (
      <Field label={label} help={field.help === "" ? undefined : field.help} error={error}>
        {(ties) => (
          <input
            type="checkbox"
            {...ties}
            checked={text === "true"}
            onChange={(event) => onText(String(event.target.checked))}
          />
        )}
      </Field>
    );
  }
  return (
    <Field label={label} help={helpWith(field)} error={error}>
      {(ties) =>
        kind === "choice" ? (
          <select {...ties} value={text} onChange={(event) => onText(event.target.value)}>
            {isOptional && <option value="">left to the method</option>}
            {field.choices.map((choice) => (
              <option key={choice} value={choice}>
                {choice}
              </option>
            ))}
          </select>
        ) : (
          <input
            type="text"
            {...ties}
            inputMode={kind === "integer" ? "numeric" : undefined}
            autoComplete="off"
            spellCheck={false}
            value={text}
            placeholder={isOptional ? "none" : fallbackText(field)}
            onChange={(event) => onText(event.target.value)}
          />
        )
      }
    </Field>
  );
}

function helpWith(field: SchemaField): string | undefined {
  const usual = fallbackText(field);
  const parts = [
    field.help,
    field.words.length > 0 ? `Or ${field.words.join(", ")}.` : "",
    field.kind === "list" ? "Numbers with commas between." : "",
    usual !== "" ? `Default ${usual}.` : field.isOptional ? "Default none." : "",
  ].filter((part) => part !== "");
  return parts.length > 0 ? parts.join(" ") : undefined;
}

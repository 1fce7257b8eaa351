/** A labelled input with a sentence about it and, where the service refused it, its words. */
import { useId, type InputHTMLAttributes, type ReactNode, type SelectHTMLAttributes } from "react";
import "./Field.css";

interface Common {
  label: string;
  help?: ReactNode;
  error?: string;
}

interface Described {
  id: string;
  "aria-describedby": string | undefined;
  "aria-invalid": true | undefined;
}

/** For any control: `children` is given the ids that tie it to its label, help and error. */
export function Field({
  label,
  help,
  error,
  children,
}: Common & { children: (ties: Described) => ReactNode }) {
  const id = useId();
  const described = [help !== undefined && `${id}-help`, error !== undefined && `${id}-error`].filter(
    Boolean,
  );
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      {children({
        id,
        "aria-describedby": described.length > 0 ? described.join(" ") : undefined,
        "aria-invalid": error !== undefined ? true : undefined,
      })}
      {help !== undefined && (
        <p id={`${id}-help`} className="quiet help">
          {help}
        </p>
      )}
      {error !== undefined && (
        <p id={`${id}-error`} className="bad help" role="alert">
          {error}
        </p>
      )}
    </div>
  );
}

export function TextField({ label, help, error, ...input }: Common & InputHTMLAttributes<HTMLInputElement>) {
  return (
    <Field label={label} help={help} error={error}>
      {(ties) => <input type="text" {...input} {...ties} />}
    </Field>
  );
}

export function SelectField({
  label,
  help,
  error,
  children,
  ...select
}: Common & SelectHTMLAttributes<HTMLSelectElement>) {
  return (
    <Field label={label} help={help} error={error}>
      {(ties) => (
        <select {...select} {...ties}>
          {children}
        </select>
      )}
    </Field>
  );
}

/** Which method of a kind is taken, and its options; left to the service where nothing is chosen. */
import type { Method } from "../hooks/useMethods";
import { SelectField } from "./Field";
import { SchemaForm } from "./SchemaForm";
import { fieldsOf, readTexts, summaryOf, type Texts } from "./schema";

export interface MethodChoice {
  /** Empty: the service chooses. */
  name: string;
  texts: Texts;
}

export const NO_CHOICE: MethodChoice = { name: "", texts: {} };

interface Props {
  label: string;
  methods: Record<string, Method>;
  choice: MethodChoice;
  onChange: (choice: MethodChoice) => void;
  /** What choosing nothing means. */
  usual: string;
  problem?: unknown;
  pointer: string;
}

export function MethodForm({ label, methods, choice, onChange, usual, problem, pointer }: Props) {
  const method = methods[choice.name];
  return (
    <div className="stack">
      <SelectField
        label={label}
        value={method === undefined ? "" : choice.name}
        help={method === undefined ? usual : summaryOf(method.schema)}
        onChange={(event) => onChange({ name: event.target.value, texts: {} })}
      >
        <option value="">chosen for you</option>
        {Object.keys(methods).map((name) => (
          <option key={name} value={name}>
            {name}
          </option>
        ))}
      </SelectField>
      {method !== undefined && (
        <SchemaForm
          schema={method.schema}
          texts={choice.texts}
          onChange={(texts) => onChange({ ...choice, texts })}
          problem={problem}
          pointer={pointer}
        />
      )}
    </div>
  );
}

/** `{name, …}` for a request, or undefined where the service chooses; `isWrong` where a field cannot be read. */
export function specOf(
  methods: Record<string, Method> | undefined,
  choice: MethodChoice,
): { spec: Record<string, unknown> | undefined; isWrong: boolean } {
  const method = methods?.[choice.name];
  if (method === undefined) return { spec: undefined, isWrong: false };
  const { body, errors } = readTexts(fieldsOf(method.schema), choice.texts);
  return { spec: { name: choice.name, ...body }, isWrong: Object.keys(errors).length > 0 };
}

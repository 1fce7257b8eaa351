/** What each column is taken for: suggested by the service, to be changed here. */
import type { FileInfo } from "../../api/types";
import { Button } from "../../components/Button";
import { TextField } from "../../components/Field";
import { count } from "../../formats";
import { canBeFeature, mistakesIn, nFeatures, withRole, type Draft, type Role } from "./draft";

const ROLES: { value: Role; words: string }[] = [
  { value: "feature", words: "feature" },
  { value: "label", words: "label" },
  { value: "key", words: "key" },
  { value: "payload", words: "shown to annotators" },
  { value: "none", words: "not used" },
];
/** More columns than anybody gives roles to one by one. */
const MOST_SHOWN = 60;

interface Props {
  draft: Draft;
  onChange: (draft: Draft) => void;
  onNext: () => void;
  isTried: boolean;
}

export function ColumnsStep({ draft, onChange, onNext, isTried }: Props) {
  const mistakes = isTried ? mistakesIn(draft, "columns") : {};
  const n = nFeatures(draft);
  return (
    <>
      {draft.found === null ? (
        <ByHand draft={draft} onChange={onChange} error={mistakes.nFeatures} />
      ) : draft.found.columns.length === 0 ? (
        <p>
          An array has no columns with names: each row is {count(n)} numbers to learn from, and nothing else.
        </p>
      ) : (
        <>
          <p className="quiet">
            Features are what is learnt from. The key is your own name of a row; the label is what is already
            known; what is shown to annotators may be a text or the address of an image.
          </p>
          <Columns found={draft.found} draft={draft} onChange={onChange} />
          <p role="status">
            {n > 0 ? `${count(n)} ${n === 1 ? "feature" : "features"} a row.` : ""}
            {mistakes.roles !== undefined && <span className="bad">{mistakes.roles}</span>}
          </p>
        </>
      )}
      <div>
        <Button kind="primary" onClick={onNext}>
          Go on
        </Button>
      </div>
    </>
  );
}

interface ColumnsProps {
  found: FileInfo;
  draft: Draft;
  onChange: (draft: Draft) => void;
}

function Columns({ found, draft, onChange }: ColumnsProps) {
  // Those with a role of their own first: among hundreds of pixels they would not be found.
  const special = found.columns.filter(({ name }) => draft.roles[name] !== "feature");
  const plain = found.columns.filter(({ name }) => draft.roles[name] === "feature");
  const isLong = found.columns.length > MOST_SHOWN;
  const shown = isLong ? [...special, ...plain].slice(0, MOST_SHOWN) : found.columns;
  return (
    <div className="scrolls" tabIndex={0} role="region" aria-label="Columns of the file">
      <table className="column-roles cards">
        <thead>
          <tr>
            <th scope="col">Column</th>
            <th scope="col">Used as</th>
            <th scope="col">Has</th>
            <th scope="col">Such as</th>
          </tr>
        </thead>
        <tbody>
          {shown.map((column) => (
            <tr key={column.name}>
              <th scope="row">{column.name}</th>
              <td data-title="Used as">
                <select
                  aria-label={`${column.name} is used as`}
                  value={draft.roles[column.name] ?? "none"}
                  onChange={(event) => onChange(withRole(draft, column.name, event.target.value as Role))}
                >
                  {ROLES.filter(({ value }) => value !== "feature" || canBeFeature(found, column.name)).map(
                    ({ value, words }) => (
                      <option key={value} value={value}>
                        {words}
                      </option>
                    ),
                  )}
                </select>
              </td>
              <td className="quiet" data-title="Has">
                {has(column)}
              </td>
              <td className="examples" data-title="Such as">
                {column.examples.slice(0, 3).map(cellText).join(", ")}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {isLong && (
        <p className="quiet">and {count(found.columns.length - MOST_SHOWN)} more, used as suggested.</p>
      )}
    </div>
  );
}

function has({ kind, n_distinct, n_missing, width }: FileInfo["columns"][number]): string {
  const what = kind === "list" && width !== null ? `lists of ${count(width)}` : KIND_WORDS[kind];
  const missing = n_missing > 0 ? `, ${count(n_missing)} missing` : "";
  return `${what}, ${count(n_distinct)} different${missing}`;
}

const KIND_WORDS: Record<FileInfo["columns"][number]["kind"], string> = {
  number: "numbers",
  text: "texts",
  boolean: "true or false",
  list: "lists",
  mixed: "mixed",
};

export function cellText(value: unknown): string {
  if (value === null || value === undefined) return "–";
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.length > 40 ? `${text.slice(0, 40)}…` : text;
}

function ByHand({
  draft,
  onChange,
  error,
}: {
  draft: Draft;
  onChange: (draft: Draft) => void;
  error?: string;
}) {
  const named = (field: "keyColumn" | "labelColumn" | "payloadColumn", label: string, help: string) => (
    <TextField
      label={label}
      help={help}
      value={draft[field]}
      autoComplete="off"
      onChange={(event) => onChange({ ...draft, [field]: event.target.value })}
    />
  );
  return (
    <div className="fields">
      <TextField
        label="Features a row"
        inputMode="numeric"
        autoComplete="off"
        value={draft.nFeatures}
        error={error}
        help="How many numbers each row has, such as 64 for images of 8 × 8."
        onChange={(event) => onChange({ ...draft, nFeatures: event.target.value })}
      />
      {!draft.isWithoutFile && (
        <>
          {named("keyColumn", "Key column", "Your own name of a row. Empty: “key”, if there is one.")}
          {named("labelColumn", "Label column", "What is already known. Empty: “label”, if there is one.")}
          {named(
            "payloadColumn",
            "Column to show",
            "Text or image for annotators. Empty: “payload”, if any.",
          )}
        </>
      )}
    </div>
  );
}

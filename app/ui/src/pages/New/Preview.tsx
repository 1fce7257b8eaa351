/** What was understood so far: the first rows, and one of them as annotators will see it. */
import { useState } from "react";
import type { FileInfo } from "../../api/types";
import { Button } from "../../components/Button";
import { Item } from "../../components/Item";
import { count } from "../../formats";
import { cellText } from "./ColumnsStep";
import { featureNames, imageShape, nFeatures, type Draft, type Role } from "./draft";

const MOST_COLUMNS = 12;
const ROLE_WORDS: Record<Role, string> = {
  key: "key",
  label: "label",
  payload: "shown",
  feature: "feature",
  none: "not used",
};

export function Preview({ draft }: { draft: Draft }) {
  const { found } = draft;
  if (found === null || found.preview.length === 0) return null;
  return draft.step === "task" ? <Seen draft={draft} found={found} /> : <Rows draft={draft} found={found} />;
}

function Rows({ draft, found }: { draft: Draft; found: FileInfo }) {
  const names = namesOf(draft, found);
  const shown = names.slice(0, MOST_COLUMNS);
  return (
    <aside aria-labelledby="preview">
      <h2 id="preview">The first rows</h2>
      <div className="scrolls" tabIndex={0} role="region" aria-label="The first rows of the file">
        <table>
          <thead>
            <tr>
              {shown.map((name) => (
                <th key={name} scope="col">
                  {name}
                  <br />
                  <span className="small">{ROLE_WORDS[draft.roles[name] ?? "feature"]}</span>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {found.preview.map((row, i) => (
              <tr key={i}>
                {shown.map((name) => (
                  <td key={name} className={typeof row[name] === "number" ? "number" : undefined}>
                    {cellText(row[name])}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p className="quiet small">
        {found.n_rows === null ? "" : `${count(found.n_rows)} rows in all. `}
        {names.length > MOST_COLUMNS && `${count(names.length - MOST_COLUMNS)} columns more.`}
      </p>
    </aside>
  );
}

/** Those with a role of their own first, as they are easily lost among many features. */
function namesOf(draft: Draft, found: FileInfo): string[] {
  const names =
    found.columns.length > 0 ? found.columns.map(({ name }) => name) : Object.keys(found.preview[0] ?? {});
  const rank = (name: string) =>
    ["key", "label", "payload", "feature", "none"].indexOf(draft.roles[name] ?? "feature");
  return names.length > MOST_COLUMNS ? [...names].sort((a, b) => rank(a) - rank(b)) : names;
}

function Seen({ draft, found }: { draft: Draft; found: FileInfo }) {
  const [at, setAt] = useState(0);
  const n = found.preview.length;
  const row = found.preview[at % n] ?? {};
  const roleColumn = (role: Role) => Object.entries(draft.roles).find(([, held]) => held === role)?.[0];
  const [key, payload] = [roleColumn("key"), roleColumn("payload")];
  const names = featureNames(draft);
  const list = row.x;
  const x = Array.isArray(list) ? (list as number[]) : names.map((name) => Number(row[name]));
  const item = {
    key: String(key === undefined ? at : row[key]),
    payload: payload === undefined ? null : row[payload],
    x: x.length === nFeatures(draft) ? x : null,
  };
  const display = {
    kind: draft.shows,
    shape: imageShape(draft),
    range: draft.low.trim() === "" ? null : [Number(draft.low), Number(draft.high)],
    columns: names.length > 0 ? names : null,
    unit: null,
    instructions: null,
  };
  return (
    <aside aria-labelledby="seen">
      <h2 id="seen">What annotators see</h2>
      {draft.instructions.trim() !== "" && <p className="said">{draft.instructions}</p>}
      <Item item={item} project={{ display, input: { shape: [nFeatures(draft)] } }} />
      <div className="row">
        <Button onClick={() => setAt((at + n - 1) % n)}>Previous</Button>
        <Button onClick={() => setAt((at + 1) % n)}>Next</Button>
        <span className="quiet small">
          {(at % n) + 1} of the first {n}
        </span>
      </div>
    </aside>
  );
}

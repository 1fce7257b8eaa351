/** What a new key may do, see and how long; never more than the key that makes it. */
import { useState, type FormEvent } from "react";
import { allItems, api } from "../../api/client";
import { Problem, sentence } from "../../api/problem";
import type { NewKey, Scope } from "../../api/types";
import { Button } from "../../components/Button";
import { CopyAsCurl } from "../../components/CopyAsCurl";
import { SelectField, TextField } from "../../components/Field";
import { Loaded } from "../../components/Loaded";
import { date } from "../../formats";
import { useMe } from "../../hooks/useMe";
import { useResource } from "../../hooks/useResource";

const SCOPES: { value: Scope; words: string; help: string }[] = [
  { value: "read", words: "read", help: "Looks at everything, changes nothing." },
  { value: "label", words: "label", help: "Reads, and labels items of rounds: for annotators." },
  { value: "write", words: "write", help: "Labels, makes projects, uploads, trains and ranks." },
  { value: "admin", words: "admin", help: "All of it, and makes and revokes keys." },
];
const DAYS = [1, 7, 30, 90, 365];

interface Props {
  onMade: (key: NewKey) => void;
  onClose: () => void;
}

export function NewKeyForm({ onMade, onClose }: Props) {
  const me = useMe();
  const [name, setName] = useState("");
  const [scope, setScope] = useState<Scope>("label");
  const [days, setDays] = useState(me.expires_at === null ? "" : "own");
  const [isBound, setBound] = useState(me.project_ids !== null);
  const [chosen, setChosen] = useState<string[]>([]);
  const [problem, setProblem] = useState<unknown>();
  const [isBusy, setBusy] = useState(false);
  const projects = useResource(isBound ? "projects" : null, (signal) =>
    allItems((cursor) => api.get("/v1/projects", { query: { cursor, limit: 100, order: "desc" }, signal })),
  );

  const body = {
    name: name.trim(),
    scopes: [scope],
    project_ids: isBound ? chosen : null,
    expires_at: endOf(days, me.expires_at),
  };

  async function make(event: FormEvent): Promise<void> {
    event.preventDefault();
    setBusy(true);
    setProblem(undefined);
    try {
      onMade(await api.post("/v1/keys", { body }));
    } catch (reason) {
      setProblem(reason);
    } finally {
      setBusy(false);
    }
  }

  const at = (pointer: string) => (problem instanceof Problem ? problem.at(pointer) : undefined);
  const isSaidAtField = ["/name", "/scopes", "/project_ids", "/expires_at"].some((place) => at(place));
  return (
    <form className="stack settings" onSubmit={(event) => void make(event)}>
      <TextField
        label="Name"
        value={name}
        maxLength={200}
        required
        autoComplete="off"
        onChange={(event) => setName(event.target.value)}
        help="Of the person or program that gets it; labels carry it unless they name another annotator."
        error={at("/name")}
      />
      <SelectField
        label="May"
        value={scope}
        onChange={(event) => setScope(event.target.value as Scope)}
        help={SCOPES.find(({ value }) => value === scope)?.help}
        error={at("/scopes")}
      >
        {SCOPES.map(({ value, words }) => (
          <option key={value} value={value}>
            {words}
          </option>
        ))}
      </SelectField>
      <SelectField
        label="Ends"
        value={days}
        onChange={(event) => setDays(event.target.value)}
        error={at("/expires_at")}
      >
        {me.expires_at === null ? (
          <option value="">never</option>
        ) : (
          <option value="own">with this key, {date(me.expires_at)}</option>
        )}
        {DAYS.map((n) => (
          <option key={n} value={n}>
            {n === 1 ? "in a day" : n === 365 ? "in a year" : `in ${n} days`}
          </option>
        ))}
      </SelectField>
      {me.project_ids === null && (
        <label className="choice">
          <input type="checkbox" checked={isBound} onChange={(event) => setBound(event.target.checked)} />
          Only some projects
        </label>
      )}
      {isBound && (
        <Loaded of={projects}>
          {(all) => (
            <fieldset className="project-choices">
              <legend>Projects that it sees</legend>
              {all.length === 0 && <p className="quiet">There are no projects yet.</p>}
              {all.map((project) => (
                <label key={project.id} className="choice">
                  <input
                    type="checkbox"
                    checked={chosen.includes(project.id)}
                    onChange={(event) =>
                      setChosen(
                        event.target.checked
                          ? [...chosen, project.id]
                          : chosen.filter((id) => id !== project.id),
                      )
                    }
                  />
                  {project.name}
                </label>
              ))}
              {at("/project_ids") !== undefined && <p className="bad">{at("/project_ids")}</p>}
            </fieldset>
          )}
        </Loaded>
      )}
      {problem !== undefined && !isSaidAtField && (
        <p className="bad" role="alert">
          {sentence(problem)}
        </p>
      )}
      <div className="row">
        <Button
          kind="primary"
          type="submit"
          isBusy={isBusy}
          forbidden={isBound && chosen.length === 0 ? "Choose at least one project." : undefined}
        >
          Make it
        </Button>
        <Button onClick={onClose}>Back</Button>
        <CopyAsCurl method="POST" address="/v1/keys" body={body} />
      </div>
    </form>
  );
}

function endOf(days: string, own: string | null): string | null {
  if (days === "own") return own;
  return days === "" ? null : new Date(Date.now() + Number(days) * 86_400_000).toISOString();
}

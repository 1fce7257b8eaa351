/** One row as large as there is room, its label, and a way to correct it. */
import { useState } from "react";
import { api } from "../../api/client";
import type { Pool, PoolItem, Project } from "../../api/types";
import { Button } from "../../components/Button";
import { CopyAsCurl } from "../../components/CopyAsCurl";
import { SelectField, TextField } from "../../components/Field";
import { Item } from "../../components/Item";
import { Loaded } from "../../components/Loaded";
import { Failure } from "../../components/Notice";
import { count, many } from "../../formats";
import { useAction } from "../../hooks/useAction";
import { useForbidden } from "../../hooks/useMe";
import { useResource } from "../../hooks/useResource";
import { STATUS_WORDS } from "./ItemList";
import { valueText } from "./valueText";

interface Props {
  project: Project;
  pool: Pool;
  row: number | null;
  onChange: () => void;
}

export function ItemPanel({ project, pool, row, onChange }: Props) {
  const item = useResource(row === null ? null : `${pool.id} row ${row}`, async (signal) => {
    const query = { rows: String(row), features: true };
    const { items } = await api.get("/v1/pools/{pool_id}/items", {
      path: { pool_id: pool.id },
      query,
      signal,
    });
    return items[0] ?? null;
  });
  return (
    <section className="stack" aria-labelledby="item" aria-live="polite">
      <h2 id="item">{item.data?.key ?? "One row"}</h2>
      {row === null ? (
        <p className="quiet">Choose a row to see it.</p>
      ) : (
        <Loaded of={item}>
          {(known) =>
            known === null ? (
              <p className="quiet">There is no row {count(row)}.</p>
            ) : (
              <>
                <Item item={known} project={project} />
                <p>
                  {known.status === "labelled" ? (
                    <>
                      Labelled <strong>{valueText(known.label)}</strong>
                      {(known.n_annotators ?? 0) > 1 && (
                        <span className="quiet"> by {many(known.n_annotators ?? 0, "annotator")}</span>
                      )}
                    </>
                  ) : (
                    <span className="quiet">{STATUS_WORDS[known.status] || "without a label"}</span>
                  )}
                </p>
                {pool.purpose !== "evaluation" && (
                  <Correct
                    key={`${known.row} ${valueText(known.label)}`}
                    project={project}
                    pool={pool}
                    item={known}
                    onChange={() => {
                      item.reload();
                      onChange();
                    }}
                  />
                )}
              </>
            )
          }
        </Loaded>
      )}
    </section>
  );
}

interface CorrectProps {
  project: Project;
  pool: Pool;
  item: PoolItem;
  onChange: () => void;
}

function Correct({ project, pool, item, onChange }: CorrectProps) {
  const { task } = project;
  const [value, setValue] = useState(item.status === "labelled" ? String(item.label) : "");
  const forbidden = useForbidden("label");
  const isClasses = task.kind === "classification";
  const isWrong = value.trim() === "" || (!isClasses && !Number.isFinite(Number(value)));
  const body = { labels: [{ pool_id: pool.id, row: item.row, value: isClasses ? value : Number(value) }] };
  const save = useAction(async () => {
    await api.post("/v1/projects/{project_id}/labels", { path: { project_id: project.id }, body });
    onChange();
  });
  if (!isClasses && (task.outputs ?? 1) > 1) return null;
  const label = item.status === "labelled" ? "Correct it" : "Label it";
  return (
    <form
      className="stack"
      onSubmit={(event) => {
        event.preventDefault();
        if (!isWrong && forbidden === undefined) void save.run();
      }}
    >
      {isClasses ? (
        <SelectField label={label} value={value} onChange={(event) => setValue(event.target.value)}>
          <option value="">choose a class</option>
          {task.classes.map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </SelectField>
      ) : (
        <TextField
          label={label}
          inputMode="decimal"
          value={value}
          onChange={(event) => setValue(event.target.value)}
          help={project.display?.unit ?? undefined}
        />
      )}
      {save.error !== undefined && <Failure error={save.error} />}
      <div className="row">
        <Button
          type="submit"
          isBusy={save.isBusy}
          forbidden={forbidden ?? (isWrong ? "Say first what it is." : undefined)}
          onClick={() => undefined}
        >
          Save
        </Button>
        <CopyAsCurl method="POST" address={`/v1/projects/${project.id}/labels`} body={body} />
      </div>
    </form>
  );
}

/** One pool: its rows, a map of it, what was ranked in it. */
import { useState } from "react";
import { Link, useSearchParams } from "wouter";
import type { Pool, Project } from "../../api/types";
import { SelectField, TextField } from "../../components/Field";
import { count, many } from "../../formats";
import { useItems, type ItemStatus } from "../../hooks/useItems";
import { DeletePool } from "./DeletePool";
import { ItemList } from "./ItemList";
import { ItemPanel } from "./ItemPanel";
import { MapPart } from "./MapPart";
import { PoolRankings } from "./PoolRankings";
import { State } from "./PoolTable";
import { useSlow } from "./useSlow";

interface Props {
  project: Project;
  pool: Pool;
  onChange: () => void;
}

const PURPOSE_WORDS: Record<Pool["purpose"], string> = {
  candidates: "candidates",
  evaluation: "kept aside to measure on",
  task: "another task",
};

export function PoolView({ project, pool, onChange }: Props) {
  const [asked, setAsked] = useSearchParams();
  const given = asked.get("row");
  const chosen = given !== null && /^\d+$/.test(given) && Number(given) < pool.n_rows ? Number(given) : null;
  const [key, setKey] = useState("");
  const [status, setStatus] = useState<ItemStatus | "">("");
  const slowKey = useSlow(key.trim(), 250);
  // The service finds by one of them, so that choosing either lets go of the other.
  const items = useItems(pool, { key: status === "" ? slowKey : "", status });
  const isFiltered = key.trim() !== "" || status !== "";
  const choose = (row: number) => setAsked({ row: String(row) }, { replace: true });
  return (
    <div className="pools">
      <div>
        <h1>{pool.name}</h1>
        <p className="quiet">
          <Link href={`/p/${project.id}`}>{project.name}</Link> ·{" "}
          <Link href={`/p/${project.id}/pools`}>all pools</Link> · {PURPOSE_WORDS[pool.purpose]} ·{" "}
          {many(pool.n_rows, "row")}, {count(pool.n_labelled)} labelled
          {pool.n_skipped > 0 && `, ${count(pool.n_skipped)} skipped`}
        </p>
      </div>
      {pool.status !== "ready" ? (
        <p>
          <State pool={pool} />
        </p>
      ) : (
        <>
          <div className="split">
            <section className="stack" aria-labelledby="rows">
              <h2 id="rows">Rows</h2>
              <div className="filters">
                <TextField
                  label="Find a key"
                  type="search"
                  value={key}
                  onChange={(event) => {
                    setKey(event.target.value);
                    setStatus("");
                  }}
                />
                <SelectField
                  label="Status"
                  value={status}
                  onChange={(event) => {
                    setStatus(event.target.value as ItemStatus | "");
                    setKey("");
                  }}
                >
                  <option value="">all</option>
                  <option value="unlabelled">without a label</option>
                  <option value="labelled">labelled</option>
                  <option value="open">annotators differ</option>
                  <option value="skipped">skipped</option>
                </SelectField>
              </div>
              <ItemList
                project={project}
                items={items}
                label={`Rows of ${pool.name}`}
                chosen={chosen}
                onChoose={choose}
                goTo={isFiltered ? null : chosen}
              />
            </section>
            <ItemPanel
              project={project}
              pool={pool}
              row={chosen}
              onChange={() => {
                items.reload();
                onChange();
              }}
            />
          </div>
          <hr />
          <div className="columns">
            <MapPart project={project} pool={pool} onChoose={choose} />
            <PoolRankings project={project} pool={pool} />
          </div>
        </>
      )}
      <DeletePool project={project} pool={pool} />
    </div>
  );
}

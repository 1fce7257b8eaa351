/** The rows that were chosen, in their order; each opens on what the members said of it. */
import { useState } from "react";
import { Link } from "wouter";
import { readRows } from "../../api/rows";
import type { Project, RankedItem, Ranking } from "../../api/types";
import { Button } from "../../components/Button";
import { ItemLine } from "../../components/ItemLine";
import { count, number } from "../../formats";
import { useResource } from "../../hooks/useResource";
import { Explanation } from "./Explanation";

const FEW = 50;
/** Rows whose features are read for their small pictures. */
const MOST_PICTURES = 200;

export function Picks({ project, ranking }: { project: Project; ranking: Ranking }) {
  const [nShown, setShown] = useState(FEW);
  const [open, setOpen] = useState<number | null>(null);
  const items = ranking.items ?? [];
  // Of most selections it is the score itself.
  const hasValue = ranking.measure !== null && ranking.measure !== "score";
  const nRead = Math.min(nShown, MOST_PICTURES);
  const rows = items.slice(0, nRead).map(({ row }) => row);
  const features = useResource(
    rows.length === 0 ? null : `features ${ranking.id} ${nRead}`,
    async (signal) =>
      new Map((await readRows(ranking.pool_id, rows, signal)).map((item) => [item.row, item.x ?? null])),
  );
  return (
    <section aria-labelledby="picks">
      <h2 id="picks">The rows</h2>
      {items.length === 0 && <p className="quiet">Nothing was left to choose from.</p>}
      <ol className="picks">
        {items.slice(0, nShown).map((item) => (
          <li key={item.row}>
            <button
              type="button"
              className="pick"
              aria-expanded={open === item.row}
              onClick={() => setOpen((before) => (before === item.row ? null : item.row))}
            >
              <span className="figures">{item.rank}</span>
              <ItemLine item={{ ...item, x: features.data?.get(item.row) }} project={project} />
              <span className="figures">
                <span className="hidden">score </span>
                {number(item.score)}
              </span>
              <span className="figures quiet value">
                {hasValue && <span className="hidden">{ranking.measure} </span>}
                {hasValue && number(item.value)}
              </span>
            </button>
            {open === item.row && <Why project={project} ranking={ranking} item={item} />}
          </li>
        ))}
      </ol>
      {items.length > nShown && (
        <Button kind="link" onClick={() => setShown((before) => before + 200)}>
          Show more of {count(items.length)}
        </Button>
      )}
      <p className="quiet small">
        The first number is the score
        {hasValue && `, the second the ${ranking.measure?.replaceAll("_", " ")}`}.
      </p>
    </section>
  );
}

function Why({ project, ranking, item }: { project: Project; ranking: Ranking; item: RankedItem }) {
  return (
    <div className="why stack">
      <Explanation explanation={item.explanation ?? null} unit={project.display?.unit ?? null} />
      <Link href={`/p/${project.id}/pools/${ranking.pool_id}?row=${item.row}`}>See it in its pool</Link>
    </div>
  );
}

/** Many items at once, for answers that several of them share. Arrows move, Shift selects; so does a click. */
import { useEffect, useRef } from "react";
import type { Project } from "../../api/types";
import { Button } from "../../components/Button";
import { Thumbnail } from "../../components/Thumbnail";
import { count } from "../../formats";
import type { State, Work } from "../../labelling/reducer";
import "./Grid.css";

interface Props {
  items: readonly Work[];
  grid: NonNullable<State["grid"]>;
  project: Project;
  onSelect: (row: number) => void;
  onLeave: () => void;
}

const ID = "grid-of-items";

/** How many stand side by side: as many as there is room for. */
export function columnsOf(): number {
  const element = document.getElementById(ID);
  return element === null ? 1 : getComputedStyle(element).gridTemplateColumns.split(" ").length;
}

export function Grid({ items, grid, project, onSelect, onLeave }: Props) {
  const cursor = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    cursor.current?.scrollIntoView({ block: "nearest" });
  }, [grid.cursor]);
  const n = grid.selected.length;
  return (
    <section aria-label="Items to label">
      <div className="between">
        <p className="quiet" role="status">
          {n === 0
            ? "The next answer is for the marked item."
            : `The next answer is for ${count(n)} selected.`}
        </p>
        <Button kind="link" onClick={onLeave}>
          One at a time
        </Button>
      </div>
      <div id={ID} className="item-grid">
        {items.map((item) => (
          <button
            key={item.row}
            ref={item.row === grid.cursor ? cursor : undefined}
            type="button"
            className={item.row === grid.cursor ? "cell cursor" : "cell"}
            aria-pressed={grid.selected.includes(item.row)}
            aria-current={item.row === grid.cursor || undefined}
            onClick={(event) => {
              if (event.detail > 0) event.currentTarget.blur();
              onSelect(item.row);
            }}
          >
            <Thumbnail item={item} project={project} size={104} />
            <span className="figures">
              {grid.selected.includes(item.row) ? "✓ " : ""}
              {item.key}
            </span>
          </button>
        ))}
      </div>
    </section>
  );
}

/** A pool's rows, however many: only those that are seen are read and drawn. */
import { useEffect, useRef, useState } from "react";
import type { PoolItem, Project } from "../../api/types";
import { ItemLine } from "../../components/ItemLine";
import { Failure } from "../../components/Notice";
import { count } from "../../formats";
import type { Items } from "../../hooks/useItems";
import "./ItemList.css";
import { valueText } from "./valueText";
import { scrollTo, windowOf } from "./windowing";

const ROW_HEIGHT = 52;
const VIEW_HEIGHT = 560;

interface Props {
  project: Project;
  items: Items;
  label: string;
  chosen: number | null;
  onChoose: (row: number) => void;
  /** Brought to the top whenever it changes. */
  goTo: number | null;
}

export function ItemList({ project, items, label, chosen, onChoose, goTo }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const [scrollTop, setScrollTop] = useState(0);
  const { height, first, end, top } = windowOf(items.n, ROW_HEIGHT, scrollTop, VIEW_HEIGHT);

  useEffect(() => items.want(first, end));
  useEffect(() => {
    if (goTo !== null) box.current?.scrollTo({ top: scrollTo(goTo, items.n, ROW_HEIGHT, VIEW_HEIGHT) });
  }, [goTo, items.n]);

  if (items.error !== undefined) return <Failure error={items.error} onRetry={items.reload} />;
  if (items.n === 0) return <p className="quiet">No row is like that.</p>;
  return (
    <div
      ref={box}
      className="item-list"
      role="region"
      aria-label={label}
      tabIndex={0}
      onScroll={(event) => setScrollTop(event.currentTarget.scrollTop)}
    >
      <div className="inner" style={{ height }}>
        <div className="drawn" style={{ top }}>
          {Array.from({ length: end - first }, (_, i) => {
            const item = items.at(first + i);
            return item === undefined ? (
              <div key={first + i} className="line quiet">
                <span>{items.isEnd ? count(first + i) : "…"}</span>
              </div>
            ) : (
              <Line
                key={first + i}
                project={project}
                item={item}
                isChosen={item.row === chosen}
                onChoose={onChoose}
              />
            );
          })}
        </div>
      </div>
    </div>
  );
}

interface LineProps {
  project: Project;
  item: PoolItem;
  isChosen: boolean;
  onChoose: (row: number) => void;
}

function Line({ project, item, isChosen, onChoose }: LineProps) {
  return (
    <button
      type="button"
      className="line"
      aria-current={isChosen || undefined}
      onClick={() => onChoose(item.row)}
    >
      <ItemLine item={item} project={project} />
      <span className="cut">{item.status === "labelled" ? valueText(item.label) : ""}</span>
      <span className="quiet status">{STATUS_WORDS[item.status]}</span>
    </button>
  );
}

export const STATUS_WORDS: Record<PoolItem["status"], string> = {
  unlabelled: "",
  labelled: "labelled",
  open: "they differ",
  skipped: "skipped",
};

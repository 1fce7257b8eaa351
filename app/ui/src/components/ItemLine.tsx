/** An item in a line of a list: its picture beside its key, or the first words or numbers of it below. */
import { useMemo } from "react";
import "./ItemLine.css";
import { gistOf, isSeen, viewOf, type Shown, type Showing } from "./itemView";
import { Thumbnail } from "./Thumbnail";

export function ItemLine({ item, project }: { item: Shown; project: Showing }) {
  const view = useMemo(() => viewOf(item, project), [item, project]);
  const gist = gistOf(view);
  return (
    <span className="item-line">
      {isSeen(view) && <Thumbnail item={item} project={project} size={40} />}
      <span className="words">
        <span dir="auto">{item.key}</span>
        {gist !== "" && (
          <span className="quiet" dir="auto">
            {gist}
          </span>
        )}
      </span>
    </span>
  );
}

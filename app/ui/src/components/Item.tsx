/** An item of a pool, as large as there is room for: a picture, a text or a table. */
import { useMemo, type ReactNode } from "react";
import { count } from "../formats";
import "./Item.css";
import { viewOf, type Cell, type Shown, type Showing } from "./itemView";
import { PixelImage } from "./PixelImage";

interface Props {
  item: Shown;
  project: Showing;
}

export function Item({ item, project }: Props) {
  const view = useMemo(() => viewOf(item, project), [item, project]);
  switch (view.kind) {
    case "pixels":
      return (
        <Frame kind="pixels">
          <PixelImage picture={view.picture} label={`Image of ${item.key}`} />
        </Frame>
      );
    case "picture":
      return (
        <Frame kind="picture">
          <img src={view.address} alt={`Image of ${item.key}`} />
          <Cells cells={view.cells} label={`What is known of ${item.key}`} />
        </Frame>
      );
    case "text":
      return (
        <Frame kind="text">
          <p className="words" dir="auto" tabIndex={0}>
            {view.text}
          </p>
          <Cells cells={view.cells} label={`What is known of ${item.key}`} />
        </Frame>
      );
    case "table":
      return (
        <Frame kind="table">
          <Cells cells={view.cells} label={`What is known of ${item.key}`} />
          {view.nMore > 0 && <p className="quiet">and {count(view.nMore)} more</p>}
        </Frame>
      );
    case "nothing":
      return (
        <Frame kind="nothing">
          <p className="figures">{item.key}</p>
          <p className="quiet">The pool has nothing to show of it but its key.</p>
        </Frame>
      );
  }
}

function Frame({ kind, children }: { kind: string; children: ReactNode }) {
  return <div className={`item ${kind}`}>{children}</div>;
}

function Cells({ cells, label }: { cells: Cell[]; label: string }) {
  if (cells.length === 0) return null;
  return (
    <div className="scrolls cells" tabIndex={0} role="region" aria-label={label}>
      <table>
        <tbody>
          {cells.map(([name, value]) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              <td dir="auto">{value}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

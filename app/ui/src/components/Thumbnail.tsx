/** An item, small: its picture, or the first words of it. Of `size` pixels a side. */
import { useMemo } from "react";
import { viewOf, type Shown, type Showing } from "./itemView";
import { PixelImage } from "./PixelImage";
import "./Thumbnail.css";

interface Props {
  item: Shown;
  project: Showing;
  size?: number;
}

export function Thumbnail({ item, project, size = 40 }: Props) {
  const view = useMemo(() => viewOf(item, project), [item, project]);
  const side = { width: size, height: size };
  switch (view.kind) {
    case "pixels":
      return (
        <span className="thumbnail" style={side}>
          <PixelImage picture={view.picture} label={item.key} />
        </span>
      );
    case "picture":
      return (
        <span className="thumbnail" style={side}>
          <img src={view.address} alt={item.key} loading="lazy" />
        </span>
      );
    case "text":
      return <Words text={view.text} side={side} />;
    case "table":
      return <Words text={view.cells.map(([, value]) => value).join(" ")} side={side} />;
    case "nothing":
      return <Words text={item.key} side={side} />;
  }
}

function Words({ text, side }: { text: string; side: { width: number; height: number } }) {
  return (
    <span className="thumbnail words" style={side} title={text.slice(0, 200)}>
      {text.slice(0, 40)}
    </span>
  );
}

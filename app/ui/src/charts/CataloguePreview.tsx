/** What a model looks like, the size of a stamp: its first outcome along its first design, for a few parameters. */
import { useEffect, useRef, useState } from "react";
import { api } from "../api/client";
import type { Preview } from "../api/types";
import "./CataloguePreview.css";

const [WIDTH, HEIGHT] = [160, 64];

export function CataloguePreview({ id, title }: { id: string; title: string }) {
  const box = useRef<HTMLDivElement>(null);
  const [preview, setPreview] = useState<Preview | null>(null);

  // There are dozens: each is asked for when it comes into sight.
  useEffect(() => {
    const element = box.current;
    if (element === null) return;
    const stop = new AbortController();
    const watcher = new IntersectionObserver((seen) => {
      if (!seen.some(({ isIntersecting }) => isIntersecting)) return;
      watcher.disconnect();
      api
        .get("/v1/catalog/{catalogue_id}/preview", { path: { catalogue_id: id }, signal: stop.signal })
        .then(setPreview, () => undefined); // a picture less: the words say what the model is
    });
    watcher.observe(element);
    return () => {
      watcher.disconnect();
      stop.abort();
    };
  }, [id]);

  return (
    <div ref={box} className="model-picture">
      {preview !== null && (
        <svg
          viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
          role="img"
          aria-label={`${title}: ${preview.y.label} against ${preview.x.name}, for ${preview.curves.length} sets of parameters`}
        >
          {pathsOf(preview, WIDTH, HEIGHT).map((path, i) => (
            <path key={i} d={path} className={`curve-${(i % 5) + 1}`} />
          ))}
        </svg>
      )}
    </div>
  );
}

/** The curves as SVG paths within a margin of 3; names along x stand side by side. */
export function pathsOf({ x, curves }: Preview, width: number, height: number): string[] {
  const isNumeric = x.values.every((value) => typeof value === "number");
  const xs = x.values.map((value, i) =>
    isNumeric ? (x.is_log ? Math.log(Number(value)) : Number(value)) : i,
  );
  const all = curves.flatMap(({ values }) => values.filter((value) => value !== null));
  const place = (value: number, low: number, high: number, size: number) =>
    high > low ? 3 + ((size - 6) * (value - low)) / (high - low) : size / 2;
  const [left, right] = [Math.min(...xs), Math.max(...xs)];
  const [low, high] = [Math.min(...all), Math.max(...all)];
  return curves.map(({ values }) =>
    values
      .flatMap((value, i) =>
        value === null
          ? []
          : [[place(xs[i] ?? 0, left, right, width), height - place(value, low, high, height)]],
      )
      .map(([px = 0, py = 0], i) => `${i === 0 ? "M" : "L"}${px.toFixed(1)} ${py.toFixed(1)}`)
      .join(""),
  );
}

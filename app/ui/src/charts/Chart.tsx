/** A drawn chart with the same as a table under it. The library is loaded, and the fonts are there, before it draws. */
import type { EChartsType } from "echarts/core";
import { useEffect, useRef, type ReactNode } from "react";
import { useTheme } from "../hooks/useTheme";
import "./Chart.css";
import { coloursOf, common, type Colours, type Option } from "./theme";

interface Props {
  /** What it shows, in a sentence, for whoever does not see it. */
  label: string;
  height?: number;
  /** Called anew for another width or theme; `width` is in pixels: labels move under 640. */
  option: (colours: Colours, width: number) => Option;
  /** The same figures; under *Show as a table*. */
  table?: ReactNode;
  onClick?: (at: { seriesIndex: number; dataIndex: number; data: unknown }) => void;
}

export function Chart({ label, height = 300, option, table, onClick }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const chart = useRef<EChartsType | null>(null);
  const newest = useRef({ option, label, onClick });
  const theme = useTheme();

  useEffect(() => {
    newest.current = { option, label, onClick };
    draw(chart.current, box.current, newest.current);
  }, [option, label, onClick, theme]);

  useEffect(() => {
    const element = box.current;
    if (element === null) return;
    let isGone = false;
    let watcher: ResizeObserver | null = null;
    void Promise.all([import("./echarts"), document.fonts.ready]).then(([{ init }]) => {
      if (isGone) return;
      const make = () => {
        const made = init(element, null, { renderer: "canvas" });
        made.on("click", ({ seriesIndex, dataIndex, data }) =>
          newest.current.onClick?.({ seriesIndex: seriesIndex ?? 0, dataIndex, data }),
        );
        return made;
      };
      watcher = new ResizeObserver(() => {
        // Behind another tab it has no size, and is made when it is shown.
        if (element.clientWidth === 0) return;
        if (chart.current === null) chart.current = make();
        else chart.current.resize();
        draw(chart.current, element, newest.current);
      });
      watcher.observe(element);
    });
    return () => {
      isGone = true;
      watcher?.disconnect();
      chart.current?.dispose();
      chart.current = null;
    };
  }, []);

  return (
    <div className="chart">
      <div ref={box} className="canvas" role="img" aria-label={label} style={{ height }} />
      {table !== undefined && (
        <details>
          <summary>Show as a table</summary>
          {table}
        </details>
      )}
    </div>
  );
}

function draw(
  chart: EChartsType | null,
  element: HTMLDivElement | null,
  { option, label }: Pick<Props, "option" | "label">,
): void {
  if (chart === null || element === null || element.clientWidth === 0) return;
  const colours = coloursOf(element);
  const given = option(colours, element.clientWidth);
  const shared = common(colours, label);
  const tooltip = { ...(shared.tooltip as object), ...((given.tooltip as object | undefined) ?? {}) };
  chart.setOption({ ...shared, ...given, tooltip }, { notMerge: true });
}

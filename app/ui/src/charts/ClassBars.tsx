/** Which classes are labelled: a bar a class, in the order of the task. */
import { useCallback } from "react";
import { DataTable } from "../components/DataTable";
import { count } from "../formats";
import { Chart } from "./Chart";
import { axis, MONO, type Colours, type Option } from "./theme";

export interface ClassCount {
  value: string;
  n: number;
}

const MOST_BARS = 24;

/** All of them where they fit; else the commonest, and the others together. */
export function barsOf(counts: readonly ClassCount[]): ClassCount[] {
  if (counts.length <= MOST_BARS) return [...counts];
  const sorted = [...counts].sort((a, b) => b.n - a.n);
  const rest = sorted.slice(MOST_BARS - 1);
  const n = rest.reduce((sum, each) => sum + each.n, 0);
  return [...sorted.slice(0, MOST_BARS - 1), { value: `${count(rest.length)} others`, n }];
}

export function ClassBars({ counts }: { counts: readonly ClassCount[] }) {
  const option = useCallback((colours: Colours) => classBarsOption(barsOf(counts), colours), [counts]);
  const missing = counts.filter(({ n }) => n === 0).map(({ value }) => value);
  const label =
    missing.length === 0
      ? "Every class has labels."
      : `Without a label: ${missing.slice(0, 8).join(", ")}${missing.length > 8 ? ` and ${missing.length - 8} more` : ""}.`;
  return (
    <>
      <p className="quiet small">{label}</p>
      <Chart
        label={label}
        height={Math.max(160, 24 * barsOf(counts).length + 16)}
        option={option}
        table={
          <DataTable
            caption="Labels by class"
            rows={counts}
            keyOf={({ value }) => value}
            columns={[
              { title: "class", cell: ({ value }) => value },
              { title: "labels", cell: ({ n }) => count(n), isNumber: true },
            ]}
          />
        }
      />
    </>
  );
}

export function classBarsOption(bars: readonly ClassCount[], colours: Colours): Option {
  const longest = Math.max(...bars.map(({ value }) => value.length));
  return {
    grid: { left: 12 + 8 * Math.min(14, longest), right: 44, top: 4, bottom: 4 },
    xAxis: { type: "value", show: false, min: 0 },
    yAxis: {
      ...axis(colours),
      type: "category",
      inverse: true,
      data: bars.map(({ value }) => value),
      axisLabel: {
        color: colours.quiet,
        fontFamily: MONO,
        fontSize: 12,
        width: 112,
        overflow: "truncate",
        interval: 0,
      },
    },
    tooltip: { show: false },
    series: [
      {
        type: "bar",
        data: bars.map(({ n }) => n),
        barWidth: 14,
        itemStyle: { color: colours.series[0] },
        label: {
          show: true,
          position: "right",
          formatter: ({ value }: { value: number }) => count(value),
          color: colours.ink,
          fontFamily: MONO,
          fontSize: 12,
        },
      },
    ],
  };
}

/** Is it as sure as it should be? How often it was right, of rows that it was so sure of. */
import { useCallback } from "react";
import { DataTable } from "../components/DataTable";
import { count, share } from "../formats";
import { Chart } from "./Chart";
import { axis, type Colours, type Option } from "./theme";

export interface Bin {
  confidence: number;
  accuracy: number;
  n: number;
}

/** By how much it is too sure, averaged over rows: positive, where it is right less often than it says. */
export function excess(bins: readonly Bin[]): number {
  const total = bins.reduce((sum, { n }) => sum + n, 0);
  return bins.reduce((sum, { confidence, accuracy, n }) => sum + (n / total) * (confidence - accuracy), 0);
}

export function sureness(bins: readonly Bin[]): string {
  const by = excess(bins);
  const points = Math.round(100 * Math.abs(by));
  if (points < 2) return "It is as sure as it should be.";
  return by > 0
    ? `It is too sure: right ${points} % less often than it says.`
    : `It could be surer: right ${points} % more often than it says.`;
}

/** Across, in pixels: the area is as the number of rows. */
export function dotSize(n: number, most: number): number {
  return Math.max(4, 20 * Math.sqrt(n / most));
}

export function Reliability({ bins }: { bins: readonly Bin[] }) {
  const option = useCallback((colours: Colours) => reliabilityOption(bins, colours), [bins]);
  const label = sureness(bins);
  return (
    <>
      <p className="quiet small">{label}</p>
      <Chart
        label={label}
        height={280}
        option={option}
        table={
          <DataTable
            caption="How sure it was, and how often it was right"
            rows={bins}
            keyOf={({ confidence }) => confidence}
            columns={[
              { title: "said", cell: ({ confidence }) => share(confidence), isNumber: true },
              { title: "was right", cell: ({ accuracy }) => share(accuracy), isNumber: true },
              { title: "rows", cell: ({ n }) => count(n), isNumber: true },
            ]}
          />
        }
      />
    </>
  );
}

export function reliabilityOption(bins: readonly Bin[], colours: Colours): Option {
  const most = Math.max(...bins.map(({ n }) => n));
  return {
    ...unitSquare(colours, "said", "was right"),
    tooltip: {
      formatter: ({ data }: { data: { value: [number, number]; n?: number } }) =>
        data.n === undefined
          ? ""
          : `said ${share(data.value[0])}, right ${share(data.value[1])}\n${count(data.n)} rows`,
    },
    series: [
      diagonal(colours),
      {
        type: "scatter",
        data: bins.map(({ confidence, accuracy, n }) => ({
          value: [confidence, accuracy],
          n,
          symbolSize: dotSize(n, most),
        })),
        itemStyle: { color: colours.series[0] },
        clip: false,
      },
    ],
  };
}

/** Both axes from 0 to 1. */
export function unitSquare(colours: Colours, across: string, up: string): Option {
  const unit = { ...axis(colours), type: "value", min: 0, max: 1, interval: 0.5, splitLine: { show: false } };
  return {
    grid: { left: 36, right: 16, top: 32, bottom: 40 },
    xAxis: { ...unit, name: across, nameLocation: "middle", nameGap: 24 },
    yAxis: {
      ...unit,
      name: up,
      nameTextStyle: { ...(axis(colours).nameTextStyle as object), align: "left" },
    },
  };
}

export function diagonal(colours: Colours) {
  return {
    type: "line",
    silent: true,
    symbol: "none",
    lineStyle: { color: colours.quiet, width: 1, type: [3, 3] },
    data: [
      [0, 0],
      [1, 1],
    ],
  };
}

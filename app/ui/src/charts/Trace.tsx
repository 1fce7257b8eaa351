/** How what is known of one parameter has narrowed: the median after each trial, with its central 50 and 95 %. */
import { useCallback } from "react";
import { DataTable } from "../components/DataTable";
import type { Point } from "../experiments/trace";
import { number } from "../formats";
import { band } from "./band";
import { Chart } from "./Chart";
import { axis, type Colours } from "./theme";

export function Trace({ name, points }: { name: string; points: readonly Point[] }) {
  const option = useCallback(
    (colours: Colours) => {
      const style = axis(colours);
      const ink = colours.series[0] ?? "";
      return {
        grid: { left: 8, right: 24, top: 32, bottom: 28, containLabel: true },
        tooltip: {
          trigger: "axis",
          formatter: (found: { value: [number, number]; dataIndex: number }[]) => {
            const point = points.find(({ n }) => n === found[0]?.value[0]);
            if (point === undefined) return "";
            return `after ${point.n}: ${number(point.median)}\n50 %: ${range(point.half)}\n95 %: ${range(point.most)}`;
          },
        },
        xAxis: {
          ...style,
          type: "value",
          name: "trials",
          nameLocation: "middle",
          nameGap: 26,
          minInterval: 1,
          min: 0,
          max: Math.max(1, points.at(-1)?.n ?? 1),
          splitLine: { show: false },
        },
        yAxis: {
          ...style,
          type: "value",
          name,
          scale: true,
          nameTextStyle: { ...(style.nameTextStyle as object), align: "left" },
          axisLabel: { ...(style.axisLabel as object), formatter: (value: number) => number(value) },
        },
        series: [
          band(
            points.map(({ n, most: [low, high] }) => ({ x: n, low, high })),
            ink,
            0.14,
          ),
          band(
            points.map(({ n, half: [low, high] }) => ({ x: n, low, high })),
            ink,
            0.24,
          ),
          {
            type: "line",
            symbol: "circle",
            symbolSize: 6,
            itemStyle: { color: ink },
            lineStyle: { color: ink, width: 2 },
            data: points.map(({ n, median }) => [n, median]),
          },
        ],
      };
    },
    [name, points],
  );
  const last = points.at(-1);
  const label =
    last === undefined
      ? `No figures of ${name} yet.`
      : `Median of ${name} after each trial, now ${number(last.median)}, 95 % between ${range(last.most)}.`;
  return (
    <Chart
      height={240}
      label={label}
      option={option}
      table={
        <DataTable
          caption={`What was believed of ${name} after each trial`}
          columns={[
            { title: "trials", isNumber: true, cell: ({ n }) => n },
            { title: "median", isNumber: true, cell: ({ median }) => number(median) },
            { title: "50 %", isNumber: true, cell: ({ half }) => range(half) },
            { title: "95 %", isNumber: true, cell: ({ most }) => range(most) },
          ]}
          rows={points}
          keyOf={({ n }) => n}
        />
      }
    />
  );
}

function range([low, high]: [number, number]): string {
  return `${number(low)} to ${number(high)}`;
}

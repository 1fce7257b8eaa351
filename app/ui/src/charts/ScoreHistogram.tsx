/** How scores are spread over the pool, and where the chosen rows lie among them. */
import { useCallback } from "react";
import type { RankingScores } from "../api/types";
import { DataTable } from "../components/DataTable";
import { count, many, number } from "../formats";
import { Chart } from "./Chart";
import { axis, type Colours, type Option } from "./theme";

interface Props {
  scores: RankingScores;
  /** What a score is: "margin". */
  name: string;
}

/** The share of rows that score lower than the lowest pick: 1 where the picks are all above the others. */
export function sharePassed({ edges, counts, n, picks }: RankingScores): number | null {
  const lowest = Math.min(...picks);
  if (picks.length === 0 || n === 0) return null;
  const below = counts.reduce((sum, each, i) => sum + ((edges[i + 1] ?? Infinity) <= lowest ? each : 0), 0);
  return below / n;
}

export function ScoreHistogram({ scores, name }: Props) {
  const option = useCallback((colours: Colours) => histogramOption(scores, name, colours), [scores, name]);
  const passed = sharePassed(scores);
  const label =
    `Scores of ${many(scores.n, "row")}` +
    (passed === null
      ? "."
      : `; the ${count(scores.picks.length)} that were chosen lie above at least ${Math.floor(100 * passed)} % of them.`);
  const bins = scores.counts.flatMap((n, i) =>
    n > 0 ? [{ from: scores.edges[i] ?? 0, to: scores.edges[i + 1] ?? 0, n }] : [],
  );
  return (
    <>
      <p className="quiet small">{label}</p>
      <Chart
        label={label}
        height={280}
        option={option}
        table={
          <DataTable
            caption="Rows by score"
            rows={bins}
            keyOf={({ from }) => from}
            columns={[
              { title: "from", cell: ({ from }) => number(from), isNumber: true },
              { title: "to", cell: ({ to }) => number(to), isNumber: true },
              { title: "rows", cell: ({ n }) => count(n), isNumber: true },
            ]}
          />
        }
      />
    </>
  );
}

type Coord = (at: [number, number]) => [number, number];

export function histogramOption(
  { edges, counts, picks }: RankingScores,
  name: string,
  colours: Colours,
): Option {
  const [low = 0, high = 1] = [edges[0], edges.at(-1)];
  return {
    grid: { left: 52, right: 16, top: 32, bottom: 48 },
    xAxis: {
      ...axis(colours),
      type: "value",
      // Scores from 0.0003 on begin at 0: nobody reads such a tick.
      min: low > 0 && low < (high - low) / 20 ? 0 : low,
      max: high > low ? high : low + 1,
      name: `score (${name})`,
      nameLocation: "middle",
      nameGap: 30,
      splitLine: { show: false },
      axisLabel: {
        ...(axis(colours).axisLabel as object),
        formatter: (value: number) => number(value, 2),
        hideOverlap: true,
      },
    },
    yAxis: {
      ...axis(colours),
      type: "value",
      min: 0,
      name: "rows",
      minInterval: 1,
      nameTextStyle: { ...(axis(colours).nameTextStyle as object), align: "left" },
    },
    tooltip: {
      formatter: ({ data }: { data: { value?: [number, number, number] } }) =>
        data.value === undefined
          ? ""
          : `${number(data.value[0])} to ${number(data.value[1])}\n${many(data.value[2], "row")}`,
    },
    series: [
      {
        type: "custom",
        name: "rows",
        encode: { x: [0, 1], y: 2 },
        data: counts.map((n, i) => ({ value: [edges[i], edges[i + 1], n] })),
        renderItem: (_: unknown, api: { value: (i: number) => number; coord: Coord }) => {
          const [x, y] = api.coord([api.value(0), api.value(2)]);
          const [right, bottom] = api.coord([api.value(1), 0]);
          return {
            type: "rect",
            shape: { x, y, width: Math.max(1, right - x - 1), height: bottom - y },
            style: { fill: colours.series[0] },
          };
        },
      },
      {
        type: "custom",
        name: "chosen",
        silent: true,
        tooltip: { show: false },
        data: picks.map((score) => [score, 0]),
        z: 5,
        renderItem: (_: unknown, api: { value: (i: number) => number; coord: Coord }) => {
          const [x, y] = api.coord([api.value(0), 0]);
          return {
            type: "line",
            shape: { x1: x, x2: x, y1: y - 6, y2: y + 6 },
            style: { stroke: colours.series[1], lineWidth: 2 },
          };
        },
      },
    ],
  };
}

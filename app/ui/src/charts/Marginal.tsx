/** What is known of one parameter: the posterior as an area, the prior dashed, the shortest 95 % as a bar. */
import { useCallback } from "react";
import type { Marginals } from "../api/types";
import { DataTable } from "../components/DataTable";
import { number } from "../formats";
import { Chart } from "./Chart";
import { axis, faint, type Colours } from "./theme";

interface Props {
  name: string;
  marginal: Marginals;
  prior?: Marginals;
  /** Whether the parameter takes a few values: densities are then masses. */
  isListed: boolean;
}

export function Marginal({ name, marginal, prior, isListed }: Props) {
  const option = useCallback(
    (colours: Colours) => {
      const [ink, other] = [colours.series[0] ?? "", colours.quiet];
      const style = axis(colours);
      const posterior = pairs(marginal);
      const before = prior === undefined ? [] : pairs(prior);
      const series: Record<string, unknown>[] = isListed
        ? [
            { type: "bar", name: "now", barWidth: "60%", itemStyle: { color: ink }, data: posterior },
            {
              type: "line",
              name: "before",
              symbol: "none",
              step: "middle",
              lineStyle: { color: other, width: 1.5, type: [5, 4] },
              data: before,
            },
          ]
        : [
            {
              type: "line",
              name: "before",
              symbol: "none",
              lineStyle: { color: other, width: 1.5, type: [5, 4] },
              data: before,
            },
            {
              type: "line",
              name: "now",
              symbol: "none",
              lineStyle: { color: ink, width: 2 },
              areaStyle: { color: faint(ink, 0.16) },
              data: posterior,
            },
          ];
      series.push({
        type: "line",
        name: "95 %",
        symbol: "none",
        silent: true,
        z: 6,
        lineStyle: { color: colours.ink, width: 5, cap: "butt" },
        data: [
          [marginal.hdi[0], 0],
          [marginal.hdi[1], 0],
        ],
      });
      return {
        grid: { left: 8, right: 16, top: 12, bottom: 28, containLabel: true },
        tooltip: {
          trigger: "axis",
          formatter: (found: { seriesName: string; value: [number, number] }[]) =>
            [
              `${name} = ${number(found[0]?.value[0])}`,
              ...found
                .filter(({ seriesName }) => seriesName !== "95 %")
                .map(({ seriesName, value }) => `${seriesName}: ${number(value[1])}`),
            ].join("\n"),
        },
        xAxis: {
          ...style,
          type: "value",
          name,
          nameLocation: "middle",
          nameGap: 26,
          scale: true,
          splitLine: { show: false },
          axisLabel: {
            ...(style.axisLabel as object),
            formatter: (value: number) => number(value, 4),
            hideOverlap: true,
          },
        },
        yAxis: {
          ...style,
          type: "value",
          min: 0,
          axisLabel: { show: false },
          axisLine: { show: false },
          splitLine: { show: false },
        },
        series,
      };
    },
    [name, marginal, prior, isListed],
  );
  const [low, high] = marginal.hdi;
  return (
    <Chart
      height={200}
      label={`Distribution of ${name}; 95 % of it between ${number(low)} and ${number(high)}. Dashed: what was believed before the first trial.`}
      option={option}
      table={
        <DataTable
          caption={isListed ? `Probability of ${name}` : `Density of ${name}`}
          columns={[
            { title: name, isNumber: true, cell: ([x]) => number(x, 4) },
            { title: isListed ? "probability" : "density", isNumber: true, cell: ([, y]) => number(y) },
          ]}
          rows={thinned(pairs(marginal), 21)}
          keyOf={(_, i) => i}
        />
      }
    />
  );
}

function pairs({ values, densities }: Marginals): [number, number][] {
  return values.flatMap((x, i) => {
    const y = densities[i];
    return x === null || y === null || y === undefined ? [] : [[x, y] as [number, number]];
  });
}

function thinned<T>(rows: readonly T[], most: number): T[] {
  if (rows.length <= most) return [...rows];
  return Array.from({ length: most }, (_, i) => rows[Math.round((i * (rows.length - 1)) / (most - 1))] as T);
}

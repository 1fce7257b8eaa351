/** How fast each policy learns: the posterior sd of a parameter after each trial, averaged over simulated participants. */
import { useCallback } from "react";
import type { Simulation } from "../api/types";
import { DataTable } from "../components/DataTable";
import { number } from "../formats";
import { Chart } from "./Chart";
import { axis, SYMBOLS, type Colours } from "./theme";

type Curves = NonNullable<Simulation["curves"]>;
const DASHES = ["solid", [5, 4], [2, 3], [8, 3, 2, 3], [1, 2]];

export function SimulationCurve({ curves, name }: { curves: Curves; name: string }) {
  const option = useCallback(
    (colours: Colours, width: number) => {
      const style = axis(colours);
      const isWide = width >= 640;
      return {
        grid: { left: 8, right: isWide ? 150 : 24, top: 32, bottom: 28, containLabel: true },
        tooltip: {
          trigger: "axis",
          formatter: (found: { seriesName: string; value: [number, number] }[]) =>
            [
              `after ${found[0]?.value[0]} trials`,
              ...found.map(({ seriesName, value }) => `${seriesName}: ${number(value[1])}`),
            ].join("\n"),
        },
        xAxis: {
          ...style,
          type: "value",
          name: "trials",
          nameLocation: "middle",
          nameGap: 26,
          minInterval: 1,
          splitLine: { show: false },
          max: "dataMax",
        },
        yAxis: {
          ...style,
          type: "value",
          name: `sd of ${name}`,
          min: 0,
          nameTextStyle: { ...(style.nameTextStyle as object), align: "left" },
          axisLabel: { ...(style.axisLabel as object), formatter: (value: number) => number(value) },
        },
        series: curves.map(({ policy, sd }, i) => {
          const colour = colours.series[i % 5] ?? "";
          const points = (sd[name] ?? []).flatMap((value, n) => (value === null ? [] : [[n, value]]));
          return {
            type: "line",
            name: policy,
            symbol: SYMBOLS[i % 5],
            symbolSize: 6,
            showAllSymbol: points.length < 40,
            itemStyle: { color: colour },
            lineStyle: { color: colour, width: 2, type: DASHES[i % 5] },
            endLabel: { show: isWide, color: colour, formatter: `${policy} ${number(points.at(-1)?.[1])}` },
            data: points,
          };
        }),
      };
    },
    [curves, name],
  );
  const ends = curves.map(({ policy, sd }) => `${policy} ${number(sd[name]?.at(-1))}`).join(", ");
  return (
    <Chart
      height={280}
      label={`Posterior sd of ${name} by trial. At the end: ${ends}.`}
      option={option}
      table={<Table curves={curves} name={name} />}
    />
  );
}

function Table({ curves, name }: { curves: Curves; name: string }) {
  const n = Math.max(...curves.map(({ sd }) => sd[name]?.length ?? 0));
  return (
    <DataTable
      caption={`Posterior sd of ${name} after each trial`}
      columns={[
        { title: "trials", isNumber: true, cell: (i: number) => i },
        ...curves.map(({ policy, sd }) => ({
          title: policy,
          isNumber: true,
          cell: (i: number) => number(sd[name]?.[i]),
        })),
      ]}
      rows={Array.from({ length: n }, (_, i) => i)}
      keyOf={(i) => i}
    />
  );
}

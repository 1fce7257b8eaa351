/** Why rows are uncertain: noise of the label across, disagreement of the members up; the chosen rows as ✕. */
import { useCallback } from "react";
import type { RankingSample } from "../api/types";
import { count, many, number } from "../formats";
import { Chart } from "./Chart";
import { CROSS } from "./PoolMap";
import { axis, type Colours, type Option } from "./theme";

interface Props {
  sample: RankingSample;
  onChoose?: (row: number) => void;
}

export interface Split {
  others: Place[];
  picks: Place[];
}

export type Place = [aleatoric: number, epistemic: number, row: number, score: number];

export function splitOf({ row, score, aleatoric, epistemic, picked }: RankingSample): Split {
  const places = row.map((each, i): Place => [aleatoric?.[i] ?? 0, epistemic?.[i] ?? 0, each, score[i] ?? 0]);
  return { others: places.filter((_, i) => !picked[i]), picks: places.filter((_, i) => picked[i]) };
}

const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** What sets the chosen rows apart, in words. */
export function contrast({ others, picks }: Split): string {
  if (picks.length === 0 || others.length === 0) return "";
  const more = (i: 0 | 1) =>
    mean(picks.map((place) => place[i])) / (mean(others.map((place) => place[i])) || Number.MIN_VALUE);
  const [noise, doubt] = [more(0), more(1)];
  const word = (times: number) => (times > 100 ? "over 100" : number(times, 2));
  return `The chosen rows have ${word(doubt)} times the disagreement of the others, and ${word(noise)} times the noise.`;
}

export function UncertaintyScatter({ sample, onChoose }: Props) {
  const option = useCallback((colours: Colours) => scatterOption(sample, colours), [sample]);
  const label = `${many(sample.row.length, "row")}, ${count(sample.picked.filter(Boolean).length)} of them chosen. ${contrast(splitOf(sample))}`;
  return (
    <>
      <p className="quiet small">{label}</p>
      <Chart
        label={label}
        height={320}
        option={option}
        onClick={({ data }) => {
          const row = Array.isArray(data) ? (data as Place)[2] : undefined;
          if (row !== undefined) onChoose?.(row);
        }}
      />
    </>
  );
}

export function scatterOption(sample: RankingSample, colours: Colours): Option {
  const { others, picks } = splitOf(sample);
  const unit = sample.unit === "nats" ? "nats" : "standard deviation";
  const plain = {
    ...axis(colours),
    type: "value",
    min: 0,
    splitLine: { show: false },
    axisLabel: {
      ...(axis(colours).axisLabel as object),
      formatter: (value: number) => number(value, 2),
      hideOverlap: true,
    },
  };
  return {
    grid: { left: 56, right: 16, top: 32, bottom: 48 },
    xAxis: { ...plain, name: `noise of the label (aleatoric), ${unit}`, nameLocation: "middle", nameGap: 28 },
    yAxis: {
      ...plain,
      name: "members disagree (epistemic)",
      nameTextStyle: { ...(axis(colours).nameTextStyle as object), align: "left" },
    },
    tooltip: {
      formatter: ({ data }: { data: Place }) =>
        `row ${count(data[2])}, score ${number(data[3])}\naleatoric ${number(data[0])}, epistemic ${number(data[1])}`,
    },
    series: [
      {
        type: "scatter",
        name: "rows",
        data: others,
        symbolSize: 5,
        itemStyle: { color: "transparent", borderColor: colours.series[0], borderWidth: 1, opacity: 0.6 },
        progressive: 2000,
      },
      {
        type: "scatter",
        name: "chosen",
        data: picks,
        symbol: CROSS,
        symbolSize: 11,
        itemStyle: { color: colours.series[1] },
        z: 5,
      },
    ],
  };
}

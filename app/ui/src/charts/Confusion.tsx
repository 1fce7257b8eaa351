/** What does it confuse? Rows are what items are, columns what they were taken for; shade is the share of the row. */
import { useCallback } from "react";
import { DataTable } from "../components/DataTable";
import { count, times } from "../formats";
import { Chart } from "./Chart";
import { axis, MONO, type Colours, type Option } from "./theme";

interface Props {
  classes: readonly string[];
  /** counts[i][j]: of classes[i], taken for classes[j]. */
  counts: readonly (readonly number[])[];
}

/** Counts in so small cells are not read. */
const MOST_WRITTEN = 16;

export interface Mistake {
  was: string;
  taken: string;
  n: number;
  share: number;
}

/** Cells beside the diagonal, the commonest first. */
export function mistakes({ classes, counts }: Props): Mistake[] {
  return counts
    .flatMap((row, i) => {
      const total = row.reduce((sum, n) => sum + n, 0);
      return row.map((n, j) => ({
        was: classes[i] ?? "",
        taken: classes[j] ?? "",
        n,
        share: n / total,
        isRight: i === j,
      }));
    })
    .filter(({ n, isRight }) => n > 0 && !isRight)
    .sort((a, b) => b.n - a.n)
    .map(({ was, taken, n, share }) => ({ was, taken, n, share }));
}

export function Confusion({ classes, counts }: Props) {
  const option = useCallback(
    (colours: Colours, width: number) => confusionOption({ classes, counts }, colours, width),
    [classes, counts],
  );
  const worst = mistakes({ classes, counts });
  const [first] = worst;
  const label =
    first === undefined
      ? "Nothing is confused."
      : `Most often ${first.was} is taken for ${first.taken}: ${times(first.n)}, ${Math.round(100 * first.share)} % of its rows.`;
  const height = Math.max(240, Math.min(480, 40 + 24 * classes.length));
  return (
    <>
      <p className="quiet small">{label}</p>
      <Chart
        label={label}
        height={height}
        option={option}
        table={
          <DataTable
            caption="What is taken for what, the commonest first"
            rows={worst.slice(0, 50)}
            keyOf={({ was, taken }) => `${was} ${taken}`}
            columns={[
              { title: "is", cell: ({ was }) => was },
              { title: "taken for", cell: ({ taken }) => taken },
              { title: "times", cell: ({ n }) => count(n), isNumber: true },
              { title: "of its rows", cell: ({ share }) => `${Math.round(100 * share)} %`, isNumber: true },
            ]}
          />
        }
      />
    </>
  );
}

export function confusionOption({ classes, counts }: Props, colours: Colours, width: number): Option {
  const isWritten = classes.length <= MOST_WRITTEN && width / classes.length > 22;
  const longest = Math.max(...classes.map((name) => name.length));
  const names = {
    ...axis(colours),
    type: "category",
    data: classes,
    axisLine: { show: false },
    splitLine: { show: false },
    splitArea: { show: false },
  };
  const written = { color: colours.quiet, fontFamily: MONO, fontSize: 12, width: 96, overflow: "truncate" };
  const cells = counts.flatMap((row, i) => {
    const total = row.reduce((sum, n) => sum + n, 0);
    return row.map((n, j) => {
      const share = total > 0 ? n / total : 0;
      return {
        value: [j, i, share],
        n,
        label: { show: isWritten && n > 0, color: share > 0.35 ? colours.paper : colours.ink },
      };
    });
  });
  const turned = longest * 8 > (width - 60) / classes.length;
  return {
    grid: {
      left: 12 + 8 * Math.min(12, longest),
      right: 2,
      top: turned ? 12 + 7 * Math.min(12, longest) : 26,
      bottom: 2,
    },
    xAxis: {
      ...names,
      position: "top",
      axisLabel: { ...written, rotate: turned ? 90 : 0, interval: 0, hideOverlap: true },
    },
    yAxis: { ...names, inverse: true, axisLabel: { ...written, interval: classes.length > 25 ? "auto" : 0 } },
    visualMap: { show: false, min: 0, max: 1, dimension: 2, inRange: { color: colours.ramp } },
    tooltip: {
      formatter: ({ data }: { data: { value: [number, number, number]; n: number } }) => {
        const [j, i, share] = data.value;
        return `is ${classes[i]}, taken for ${classes[j]}\n${count(data.n)}, ${Math.round(100 * share)} % of the row`;
      },
    },
    series: [
      {
        type: "heatmap",
        data: cells,
        label: {
          formatter: ({ data }: { data: { n: number } }) => String(data.n),
          fontFamily: MONO,
          fontSize: 12,
        },
        itemStyle: { borderColor: colours.paper, borderWidth: 1 },
        emphasis: { itemStyle: { borderColor: colours.ink } },
      },
    ],
  };
}

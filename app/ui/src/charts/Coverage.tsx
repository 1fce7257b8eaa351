/** Is it as sure as it should be, of numbers: the share of targets inside intervals that should hold so many. */
import { useCallback } from "react";
import { DataTable } from "../components/DataTable";
import { share } from "../formats";
import { Chart } from "./Chart";
import { diagonal, unitSquare } from "./Reliability";
import type { Colours, Option } from "./theme";

export interface Interval {
  expected: number;
  observed: number;
}

/** Positive: intervals hold fewer targets than they should, on average. */
export function shortfall(intervals: readonly Interval[]): number {
  return intervals.reduce((sum, { expected, observed }) => sum + expected - observed, 0) / intervals.length;
}

export function intervalWords(intervals: readonly Interval[]): string {
  const by = shortfall(intervals);
  const points = Math.round(100 * Math.abs(by));
  if (points < 3) return "Its intervals hold as many targets as they should.";
  return by > 0
    ? `It is too sure: intervals hold ${points} % fewer targets than they should.`
    : `It could be surer: intervals hold ${points} % more targets than they should.`;
}

export function Coverage({ intervals }: { intervals: readonly Interval[] }) {
  const option = useCallback((colours: Colours) => coverageOption(intervals, colours), [intervals]);
  const label = intervalWords(intervals);
  return (
    <>
      <p className="quiet small">{label}</p>
      <Chart
        label={label}
        height={280}
        option={option}
        table={
          <DataTable
            caption="Share of targets inside intervals"
            rows={intervals}
            keyOf={({ expected }) => expected}
            columns={[
              { title: "should hold", cell: ({ expected }) => share(expected), isNumber: true },
              { title: "held", cell: ({ observed }) => share(observed), isNumber: true },
            ]}
          />
        }
      />
    </>
  );
}

export function coverageOption(intervals: readonly Interval[], colours: Colours): Option {
  return {
    ...unitSquare(colours, "should hold", "held"),
    tooltip: {
      formatter: ({ value }: { value: [number, number] }) =>
        `should hold ${share(value[0])}\nheld ${share(value[1])}`,
    },
    series: [
      diagonal(colours),
      {
        type: "line",
        symbol: "circle",
        symbolSize: 8,
        itemStyle: { color: colours.series[0] },
        lineStyle: { color: colours.series[0], width: 2 },
        data: intervals.map(({ expected, observed }) => [expected, observed]),
      },
    ],
  };
}

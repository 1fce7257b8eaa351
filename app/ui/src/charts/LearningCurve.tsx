/** Is it learning? The metric by the number of labels, with what random rows would have given. */
import { useCallback, type ReactNode } from "react";
import { count, many } from "../formats";
import { metricText, type ControlPoint, type MeasuredPoint, type MetricName } from "../metrics";
import { Chart } from "./Chart";
import { axis, faint, SANS, type Colours, type Option } from "./theme";

/** Labels that random rows would need for today's value. */
export interface Saved {
  labels: number;
  randomNeeds: number;
}

interface Props {
  metric: MetricName;
  points: readonly MeasuredPoint[];
  control: readonly ControlPoint[];
  saved: Saved | null;
  table: ReactNode;
}

const HEIGHT = 320;
const PLOT_HEIGHT = HEIGHT - 32 - 44;

export function LearningCurve({ metric, points, control, saved, table }: Props) {
  const option = useCallback(
    (colours: Colours, width: number) =>
      learningCurveOption({ metric, points, control, saved }, colours, width),
    [metric, points, control, saved],
  );
  const [first, last] = [points[0], points.at(-1)];
  const label =
    first === undefined || last === undefined
      ? "No version has been measured."
      : `${metric} from ${metricText(metric, first.value)} with ${many(first.nLabels, "label")} to ` +
        `${metricText(metric, last.value)} with ${many(last.nLabels, "label")}`;
  return <Chart label={label} height={HEIGHT} option={option} table={table} />;
}

/** The upper edge from left to right and the lower edge back: what the band is filled inside of. */
export function bandOf(
  points: readonly Pick<MeasuredPoint, "nLabels" | "low" | "high">[],
): [number, number][] {
  const known = points.filter(({ low, high }) => low !== null && high !== null);
  const upper = known.map(({ nLabels, high }): [number, number] => [nLabels, high as number]);
  const lower = known.map(({ nLabels, low }): [number, number] => [nLabels, low as number]);
  return [...upper, ...lower.reverse()];
}

export interface Bracket {
  from: number;
  to: number;
  value: number;
  words: string;
  /** Random rows would need more labels than there is room for. */
  isCut: boolean;
}

/** At today's value, from the labels there are to those that random rows would need. */
export function bracketOf(last: MeasuredPoint | undefined, saved: Saved | null): Bracket | null {
  if (last === undefined || saved === null || saved.labels === 0) return null;
  const furthest = 2 * last.nLabels;
  return {
    from: last.nLabels,
    to: Math.min(saved.randomNeeds, furthest),
    value: last.value,
    words:
      saved.labels > 0
        ? `${many(saved.labels, "label")} saved`
        : `${many(-saved.labels, "label")} more than random`,
    isCut: saved.randomNeeds > furthest,
  };
}

/** Ends of an axis that hold all values with some room, on round numbers. */
export function roundRange(values: readonly number[]): { min: number; max: number } {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const step = roundStep((high - low || Math.abs(high) || 1) / 4);
  return { min: Math.max(0, Math.floor(low / step) * step), max: Math.ceil(high / step) * step };
}

/** 1, 2 or 5 times a power of ten, not below `width`. */
export function roundStep(width: number): number {
  const power = 10 ** Math.floor(Math.log10(width));
  return (([1, 2, 5] as const).find((times) => times * power >= width * (1 - 1e-9)) ?? 10) * power;
}

/** Where the axis of an accuracy begins: a fifth below the lowest value, so that changes are seen. */
export function lowestShown(metric: MetricName, values: readonly number[]): number {
  if (metric !== "accuracy" || values.length === 0) return 0;
  return Math.max(0, Math.floor(Math.min(...values) * 5 - 1e-9) / 5);
}

type Drawn = Pick<Props, "metric" | "points" | "control" | "saved">;

export function learningCurveOption(
  { metric, points, control, saved }: Drawn,
  colours: Colours,
  width: number,
): Option {
  const isNarrow = width < 640;
  const [ranked = "", random = ""] = colours.series;
  const last = points.at(-1);
  const bracket = bracketOf(last, saved);
  const lastControl = control.at(-1);
  const values = [
    ...points.flatMap(({ value, low, high }) => [value, low ?? value, high ?? value]),
    ...control.map((c) => c.value),
  ];
  const right = isNarrow || bracket !== null ? 24 : 120;
  const end = Math.max(1, bracket?.to ?? 0, last?.nLabels ?? 0, lastControl?.nLabels ?? 0);
  const step = Math.max(1, roundStep(end / (isNarrow ? 5 : 8)));
  const range = metric === "accuracy" ? { min: lowestShown(metric, values), max: 1 } : roundRange(values);
  // In pixels, of a plot that is so high; labels of one line need 16.
  const apart = (((last?.value ?? 0) - (lastControl?.value ?? 0)) / (range.max - range.min)) * PLOT_HEIGHT;
  const isBeside = !isNarrow && bracket === null;
  const written = (
    words: string,
    colour: string,
    place: "right" | "above" | "below",
    shift: number,
    isEnd: boolean,
  ) => ({
    show: true,
    position: place === "right" ? "right" : place === "above" ? "top" : "bottom",
    align: place === "right" ? undefined : isEnd ? "right" : "left",
    offset: place === "right" ? [4, shift] : [isEnd ? 6 : -2, place === "above" ? -2 : 2],
    formatter: words,
    color: colour,
    fontFamily: SANS,
    fontSize: 13,
  });
  const isControlLast = isBeside && lastControl?.nLabels === end;
  const push = isControlLast && Math.abs(apart) < 16 ? (16 - Math.abs(apart)) / 2 : 0;
  const isRankedHigher = apart >= 0;
  return {
    grid: { left: metric === "accuracy" ? 48 : 56, right, top: 32, bottom: 44 },
    xAxis: {
      ...axis(colours),
      type: "value",
      min: 0,
      max: end,
      interval: step,
      // The axis ends with the curve: its end is written where it is round.
      axisLabel: { ...(axis(colours).axisLabel as object), showMaxLabel: end % step === 0 },
      name: "labels",
      nameLocation: "middle",
      nameGap: 26,
      splitLine: { show: false },
    },
    yAxis: {
      ...axis(colours),
      type: "value",
      name: metric === "accuracy" ? "accuracy" : "root mean square error",
      nameTextStyle: { ...(axis(colours).nameTextStyle as object), align: "left" },
      ...range,
      interval: roundStep((range.max - range.min) / 4),
    },
    tooltip: {
      trigger: "item",
      formatter: ({
        seriesName,
        data,
      }: {
        seriesName: string;
        data: { value: [number, number]; words?: string };
      }) =>
        `${seriesName}: ${metricText(metric, data.value[1])}${data.words ?? ""}\n${many(data.value[0], "label")}`,
    },
    series: [
      {
        type: "custom",
        name: "95 % interval",
        silent: true,
        tooltip: { show: false },
        data: points.length > 1 ? [0] : [],
        renderItem: (_: unknown, api: { coord: (at: [number, number]) => [number, number] }) => ({
          type: "polygon",
          shape: { points: bandOf(points).map((at) => api.coord(at)) },
          style: { fill: faint(ranked, 0.16) },
        }),
      },
      ...(points.length === 1 ? [whisker(points, ranked)] : []),
      {
        type: "line",
        name: "random",
        data: control.map(({ nLabels, value }, i) => ({
          value: [nLabels, value],
          label:
            i === control.length - 1
              ? written(
                  `random ${metricText(metric, value)}`,
                  random,
                  isControlLast ? "right" : isRankedHigher ? "below" : "above",
                  isRankedHigher ? push : -push,
                  lastControl?.nLabels === end,
                )
              : undefined,
        })),
        symbol: "rect",
        symbolSize: 8,
        lineStyle: { color: random, width: 1.5, type: [5, 4] },
        itemStyle: { color: colours.paper, borderColor: random, borderWidth: 1.5 },
      },
      {
        type: "line",
        name: "ranked",
        data: points.map((point, i) => ({
          value: [point.nLabels, point.value],
          words: intervalWords(point),
          label:
            i === points.length - 1
              ? written(
                  `ranked ${metricText(metric, point.value)}`,
                  ranked,
                  isBeside ? "right" : isRankedHigher ? "above" : "below",
                  isRankedHigher ? -push : push,
                  true,
                )
              : undefined,
        })),
        symbol: "circle",
        symbolSize: 9,
        lineStyle: { color: ranked, width: 2 },
        itemStyle: { color: ranked },
      },
      ...(bracket === null ? [] : [bracketSeries(bracket, colours)]),
    ],
  };
}

function intervalWords({ low, high, name }: MeasuredPoint): string {
  return low === null || high === null ? "" : `, ${metricText(name, low)} to ${metricText(name, high)}`;
}

/** One point has no band: a line up and down. */
function whisker(points: readonly MeasuredPoint[], colour: string) {
  const [point] = points;
  return {
    type: "line",
    name: "95 % interval",
    silent: true,
    symbol: "none",
    lineStyle: { color: colour, width: 6, opacity: 0.16 },
    data:
      point === undefined || point.low === null
        ? []
        : [
            [point.nLabels, point.low],
            [point.nLabels, point.high],
          ],
  };
}

function bracketSeries(bracket: Bracket, colours: Colours) {
  const { from, to, value, words, isCut } = bracket;
  return {
    type: "custom",
    name: "saved",
    silent: true,
    tooltip: { show: false },
    data: [0],
    z: 5,
    renderItem: (_: unknown, api: { coord: (at: [number, number]) => [number, number] }) => {
      const [start, end] = [api.coord([from, value]), api.coord([to, value])];
      const tick = ([x, y]: [number, number]) => ({
        type: "line",
        shape: { x1: x, y1: y - 5, x2: x, y2: y + 5 },
        style: { stroke: colours.ink },
      });
      return {
        type: "group",
        children: [
          {
            type: "line",
            shape: { x1: start[0], y1: start[1], x2: end[0], y2: end[1] },
            style: { stroke: colours.ink, lineDash: isCut ? [4, 3] : null },
          },
          ...(isCut ? [] : [tick(end)]),
          {
            type: "text",
            style: {
              text: isCut ? `${words} →` : words,
              x: (start[0] + end[0]) / 2,
              y: start[1] + 8,
              textAlign: "center",
              fill: colours.ink,
              font: `13px ${SANS}`,
            },
          },
        ],
      };
    },
  };
}

/** What the chart shows, for the table under it. */
export function curveNote(points: readonly MeasuredPoint[]): string {
  const last = points.at(-1);
  if (last === undefined) return "";
  const on = {
    evaluation: "rows kept aside",
    holdout: "labels held out",
    estimate: "labels, each predicted without itself",
  };
  return `Measured on ${count(last.n)} ${on[last.measuredOn]}; the band holds the truth 95 times of 100.`;
}

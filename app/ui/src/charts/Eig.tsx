/** What each design would teach: a line or stems of one variable, a map of two, a table of more. */
import { useCallback } from "react";
import type { DesignVariable, Estimate, Proposal, Trial } from "../api/types";
import { DataTable } from "../components/DataTable";
import { assignments, valueWords } from "../experiments/words";
import { distinct, nearest, shapeOf, type Shape } from "../experiments/shape";
import { number } from "../formats";
import { band } from "./band";
import { Chart } from "./Chart";
import { axis, MONO, type Colours, type Option } from "./theme";

interface Props {
  designs: readonly DesignVariable[];
  items: readonly Estimate[];
  proposal: Proposal | null;
  past: readonly Trial[];
}

const MOST_ROWS = 20;

export function Eig({ designs, items, proposal, past }: Props) {
  const shape = shapeOf(designs);
  const option = useCallback(
    (colours: Colours, width: number) => {
      const drawn = shapeOf(designs);
      if (drawn.kind === "map") return mapOption(colours, width, drawn, items, proposal, past);
      return drawn.kind === "table" ? {} : curveOption(colours, drawn, items, proposal, past);
    },
    [designs, items, proposal, past],
  );
  if (shape.kind === "table") return <Best items={items} />;
  return (
    <Chart
      label={labelOf(items, proposal)}
      height={shape.kind === "map" ? 360 : 300}
      option={option}
      table={<Best items={items} />}
    />
  );
}

function Best({ items }: { items: readonly Estimate[] }) {
  const best = [...items].sort((a, b) => (b.eig ?? 0) - (a.eig ?? 0)).slice(0, MOST_ROWS);
  return (
    <DataTable
      caption={`What designs would teach, the best ${best.length} of ${items.length}`}
      columns={[
        { title: "design", cell: ({ design }) => assignments(design) },
        { title: "nats", isNumber: true, cell: ({ eig }) => number(eig) },
        { title: "± 2 se", isNumber: true, cell: ({ se }) => (se === null ? "–" : number(2 * se, 2)) },
      ]}
      rows={best}
      keyOf={({ design }) => JSON.stringify(design)}
    />
  );
}

function labelOf(items: readonly Estimate[], proposal: Proposal | null): string {
  const values = items.map(({ eig }) => eig ?? 0);
  const range = `Expected information gain of ${items.length} designs, ${number(Math.min(...values))} to ${number(Math.max(...values))} nats`;
  return proposal === null
    ? `${range}.`
    : `${range}. Next: ${assignments(proposal.design)}, ${number(proposal.eig)} nats.`;
}

function curveOption(
  colours: Colours,
  shape: Extract<Shape, { kind: "line" | "stems" }>,
  items: readonly Estimate[],
  proposal: Proposal | null,
  past: readonly Trial[],
): Option {
  const { name, is_log } = shape.x;
  const isValue = shape.kind === "line" || shape.isEven;
  const used = [...items, ...(proposal === null ? [] : [proposal]), ...past].map(
    ({ design }) => design[name],
  );
  const categories = isValue ? [] : distinct(used);
  const place = (value: unknown) => (isValue ? Number(value) : categories.indexOf(value));
  const points = items.map(({ design, eig, se }) => ({ x: place(design[name]), eig: eig ?? 0, se, design }));
  const top = 1.3 * Math.max(...points.map(({ eig, se }) => eig + 2 * (se ?? 0)), proposal?.eig ?? 0, 1e-9);
  const [ink, marked] = [colours.series[0] ?? "", colours.series[1] ?? ""];
  const banded = points.filter(({ se }) => se !== null);
  const series: Record<string, unknown>[] = [];
  if (shape.kind === "line") {
    if (banded.length > 1) {
      series.push(
        band(
          banded.map(({ x, eig, se }) => ({
            x,
            low: Math.max(0, eig - 2 * (se ?? 0)),
            high: eig + 2 * (se ?? 0),
          })),
          ink,
          0.2,
        ),
      );
    }
    series.push({
      type: "line",
      symbol: "none",
      lineStyle: { color: ink, width: 2 },
      data: points.map(({ x, eig }) => [x, eig]),
    });
  } else {
    series.push(
      {
        type: "bar",
        barWidth: 1.5,
        itemStyle: { color: ink },
        data: points.map(({ x, eig }) => [x, eig]),
        silent: true,
      },
      {
        type: "scatter",
        symbolSize: 7,
        itemStyle: { color: ink },
        data: points.map(({ x, eig }) => [x, eig]),
      },
    );
    series.push(errors(banded, ink));
  }
  if (proposal?.runner_up) {
    const { design, eig } = proposal.runner_up;
    series.push({
      type: "scatter",
      name: "runner-up",
      symbol: "diamond",
      symbolSize: 13,
      z: 4,
      itemStyle: { color: colours.paper, borderColor: marked, borderWidth: 1.5, opacity: 1 },
      data: [[place(design[name]), eig ?? 0]],
    });
  }
  if (proposal !== null)
    series.push(nextMark(colours, marked, [place(proposal.design[name]), proposal.eig], proposal));
  series.push({
    type: "scatter",
    name: "past",
    symbol: "rect",
    symbolSize: [1.5, 9],
    itemStyle: { color: colours.quiet, opacity: 1 },
    data: stacked(past.map(({ design }) => place(design[name]))).map(([x, level]) => ({
      value: [x, top],
      symbolOffset: [0, 5 + 11 * level],
    })),
  });
  const style = axis(colours);
  return {
    grid: { left: 8, right: 24, top: 32, bottom: 28, containLabel: true },
    tooltip: { trigger: "item", formatter: tip(name, categories) },
    xAxis: {
      ...style,
      type: isValue ? (is_log ? "log" : "value") : "category",
      data: isValue ? undefined : categories.map(valueWords),
      name,
      nameLocation: "middle",
      nameGap: 26,
      scale: true,
      ...(isValue && !is_log ? ends(shape, used, style.axisLabel as object) : {}),
      ...(isValue && is_log ? { min: shape.x.low, max: shape.x.high } : {}),
      splitLine: { show: false },
    },
    yAxis: {
      ...style,
      type: "value",
      name: "nats",
      axisLine: { ...(style.axisLine as object), onZero: false },
      min: 0,
      max: top,
      nameTextStyle: { ...(style.nameTextStyle as object), align: "left" },
      axisLabel: {
        ...(style.axisLabel as object),
        showMaxLabel: false,
        formatter: (value: number) => number(value, 2),
      },
    },
    series,
  };
}

/** The axis reaches a little beyond the designs, and as far as what was run. */
function ends(
  shape: Extract<Shape, { kind: "line" | "stems" }>,
  used: readonly unknown[],
  labels: object,
): { min: number; max: number; axisLabel: object } {
  const values = used.map(Number).filter(Number.isFinite);
  const low = Math.min(shape.x.low ?? Infinity, ...values);
  const high = Math.max(shape.x.high ?? -Infinity, ...values);
  const isWhole = shape.x.kind === "integer";
  const room = shape.kind === "line" ? 0 : isWhole && high - low < 40 ? 1 : (high - low) / 40;
  return {
    min: low - room,
    max: high + room,
    // The room on either side is no design, and its tick stands in the way of the last one's.
    axisLabel: { ...labels, showMinLabel: room === 0, showMaxLabel: room === 0, hideOverlap: true },
  };
}

/** How many of the same stand above each, so that repeated designs are seen. */
export function stacked(values: readonly number[]): [number, number][] {
  const seen = new Map<number, number>();
  return values.map((value) => {
    const level = seen.get(value) ?? 0;
    seen.set(value, level + 1);
    return [value, level];
  });
}

function errors(
  points: readonly { x: number; eig: number; se: number | null }[],
  colour: string,
): Record<string, unknown> {
  return {
    type: "custom",
    silent: true,
    data: points.map(({ x, eig, se }) => [x, eig - 2 * (se ?? 0), eig + 2 * (se ?? 0)]),
    encode: { x: 0, y: [1, 2] },
    renderItem: (_: unknown, draw: { value: (i: number) => number; coord: (at: number[]) => number[] }) => {
      const [x = 0, low = 0] = draw.coord([draw.value(0), draw.value(1)]);
      const [, high = 0] = draw.coord([draw.value(0), draw.value(2)]);
      // Of figures that are as good as exact there is nothing to draw.
      if (low - high < 4) return null;
      return {
        type: "line",
        shape: { x1: x, x2: x, y1: low, y2: high },
        style: { stroke: colour, lineWidth: 5, opacity: 0.3 },
      };
    },
  };
}

function nextMark(
  colours: Colours,
  marked: string,
  at: [number, number],
  proposal: Proposal,
): Record<string, unknown> {
  return {
    type: "scatter",
    name: "next",
    symbol: "diamond",
    symbolSize: 15,
    z: 5,
    itemStyle: { color: marked, borderColor: colours.paper, borderWidth: 1, opacity: 1 },
    label: {
      show: true,
      position: "top",
      distance: 8,
      color: colours.ink,
      backgroundColor: colours.paper,
      padding: [2, 4],
      lineHeight: 16,
      formatter: `next: ${assignments(proposal.design)}`,
    },
    labelLayout: { hideOverlap: false, moveOverlap: "shiftX" },
    data: [at],
  };
}

function tip(name: string, categories: readonly unknown[]) {
  return ({ value, seriesName }: { value: [number, number]; seriesName: string }) => {
    const x = categories.length > 0 ? valueWords(categories[value[0]]) : number(value[0], 4);
    if (seriesName === "past") return `${name} = ${x}, run before`;
    const what = seriesName === "next" || seriesName === "runner-up" ? `${seriesName}: ` : "";
    return `${what}${name} = ${x}\n${number(value[1])} nats`;
  };
}

function mapOption(
  colours: Colours,
  width: number,
  { x, y }: Extract<Shape, { kind: "map" }>,
  items: readonly Estimate[],
  proposal: Proposal | null,
  past: readonly Trial[],
): Option {
  const xs = distinct(items.map(({ design }) => design[x.name]));
  const ys = distinct(items.map(({ design }) => design[y.name]));
  const cell = (design: Record<string, unknown>) => [
    nearest(xs, design[x.name]),
    nearest(ys, design[y.name]),
  ];
  const values = items.map(({ eig }) => eig ?? 0);
  const [least, most] = [Math.min(...values), Math.max(...values, 1e-9)];
  const style = axis(colours);
  const side = (name: string, values: unknown[]) => ({
    ...style,
    type: "category",
    name,
    data: values.map((value) => (typeof value === "number" ? number(value, 2) : valueWords(value))),
    splitLine: { show: false },
    nameLocation: "middle",
  });
  /** Its name stands where the map has room for it. */
  function mapMark(): Record<string, unknown> {
    const [i = 0, j = 0] = cell(proposal?.design ?? {});
    const mark = nextMark(colours, colours.series[1] ?? "", [i, j], proposal as Proposal);
    const isTop = j > (ys.length - 1) / 2;
    const position =
      i > (2 * (xs.length - 1)) / 3 ? "left" : i < (xs.length - 1) / 3 ? "right" : isTop ? "bottom" : "top";
    return { ...mark, label: { ...(mark.label as object), position } };
  }
  return {
    grid: { left: 36, right: 8, top: 24, bottom: 84, containLabel: true },
    tooltip: {
      formatter: ({
        seriesName,
        data,
      }: {
        seriesName: string;
        data: { design?: Record<string, unknown>; eig?: number };
      }) =>
        data.design === undefined ? seriesName : `${assignments(data.design)}\n${number(data.eig)} nats`,
    },
    xAxis: { ...side(x.name, xs), nameGap: 28 },
    yAxis: { ...side(y.name, ys), nameGap: 44, nameRotate: 90 },
    visualMap: {
      type: "continuous",
      min: least,
      max: most,
      dimension: 2,
      seriesIndex: 0,
      orient: "horizontal",
      left: "center",
      bottom: 0,
      itemWidth: 12,
      itemHeight: Math.min(160, width / 3),
      precision: 3,
      text: [`${number(most)} nats`, number(least)],
      textStyle: { color: colours.quiet, fontFamily: MONO, fontSize: 13 },
      inRange: { color: colours.ramp },
    },
    series: [
      {
        type: "heatmap",
        data: items.map(({ design, eig }) => ({ value: [...cell(design), eig ?? 0], design, eig })),
        itemStyle: { borderColor: colours.paper, borderWidth: 1 },
        emphasis: { itemStyle: { borderColor: colours.ink } },
      },
      {
        type: "scatter",
        name: "run before",
        symbol: "path://M0,0L10,10M10,0L0,10",
        symbolSize: 9,
        itemStyle: { color: "transparent", borderColor: colours.ink, borderWidth: 2 },
        data: past.map(({ design }) => ({ value: cell(design) })),
      },
      ...(proposal === null ? [] : [mapMark()]),
    ],
  };
}

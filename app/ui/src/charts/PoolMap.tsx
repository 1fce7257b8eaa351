/** A pool as a map: rows that are alike lie near each other; filled ones are labelled, five classes have colours. */
import { useCallback, useMemo, useState } from "react";
import type { PoolMapData } from "../api/types";
import { DataTable } from "../components/DataTable";
import { count, many, number } from "../formats";
import { Chart } from "./Chart";
import "./PoolMap.css";
import { axis, type Colours, type Option } from "./theme";

interface Props {
  map: PoolMapData;
  nRows: number;
  isClasses: boolean;
  onChoose?: (row: number) => void;
  /** Rows that a ranking chose: drawn as ✕. */
  picks?: readonly number[];
}

const COLOURED = 5;
const MARKS = ["●", "■", "▲", "◆", "✚"];
const SHAPES = ["circle", "rect", "triangle", "diamond", "path://M4,0H6V4H10V6H6V10H4V6H0V4H4Z"];
export const CROSS = "path://M0,1L1,0L5,4L9,0L10,1L6,5L10,9L9,10L5,6L1,10L0,9L4,5Z";

export interface Group {
  name: string;
  /** Places in the columns of the map. */
  at: number[];
}

/** The five commonest classes, the other labels together, and what has none. */
export function groupsOf({ label, status }: Pick<PoolMapData, "label" | "status">): {
  classes: Group[];
  others: number[];
  unlabelled: number[];
} {
  const byClass = new Map<string, number[]>();
  const unlabelled: number[] = [];
  status.forEach((state, i) => {
    const value = label[i];
    if (state !== "labelled" || value === null || value === undefined) unlabelled.push(i);
    else byClass.set(String(value), [...(byClass.get(String(value)) ?? []), i]);
  });
  const sorted = [...byClass]
    .map(([name, at]) => ({ name, at }))
    .sort((a, b) => b.at.length - a.at.length || a.name.localeCompare(b.name, "en", { numeric: true }));
  return {
    classes: sorted.slice(0, COLOURED),
    others: sorted.slice(COLOURED).flatMap(({ at }) => at),
    unlabelled,
  };
}

export function PoolMap({ map, nRows, isClasses, onChoose, picks }: Props) {
  const [isolated, setIsolated] = useState<string | null>(null);
  const groups = useMemo(() => groupsOf(map), [map]);
  const chosen = useMemo(() => new Set(picks), [picks]);
  const option = useCallback(
    (colours: Colours) =>
      isClasses ? classMap(map, groups, isolated, chosen, colours) : numberMap(map, groups, chosen, colours),
    [map, groups, isolated, isClasses, chosen],
  );
  const toggle = (name: string) => setIsolated((before) => (before === name ? null : name));
  const explained = Math.round(100 * map.explained.reduce((sum, share) => sum + share, 0));
  const nShown = map.row.length;
  const label =
    `${nShown < nRows ? `${count(nShown)} of ${count(nRows)} rows` : many(nShown, "row")} by two principal components, ` +
    `which hold ${explained} % of how rows differ; ${count(nShown - groups.unlabelled.length)} are labelled.`;
  return (
    <>
      <p className="quiet small">{label}</p>
      <Chart
        label={label}
        height={360}
        option={option}
        onClick={({ data }) => {
          const { i, name } = data as { i?: number; name?: string };
          if (name !== undefined && name !== "" && isClasses) toggle(name);
          const row = i === undefined ? undefined : map.row[i];
          if (row !== undefined) onChoose?.(row);
        }}
        table={
          isClasses ? (
            <DataTable
              caption="Labelled rows on the map, by class"
              rows={[
                ...groups.classes,
                { name: "other classes", at: groups.others },
                { name: "without a label", at: groups.unlabelled },
              ]}
              keyOf={({ name }) => name}
              columns={[
                { title: "class", cell: ({ name }) => name },
                { title: "rows", cell: ({ at }) => count(at.length), isNumber: true },
              ]}
            />
          ) : undefined
        }
      />
      {isClasses && groups.classes.length > 0 && (
        <div className="map-legend" role="group" aria-label="Show one class alone">
          {groups.classes.map(({ name, at }, i) => (
            <button key={name} type="button" aria-pressed={isolated === name} onClick={() => toggle(name)}>
              <span aria-hidden="true" style={{ color: `var(--series-${i + 1})` }}>
                {MARKS[i]}
              </span>
              {name} <span className="quiet">{count(at.length)}</span>
            </button>
          ))}
        </div>
      )}
      <p className="quiet small">{otherMarks(groups, isClasses, chosen.size > 0)}</p>
    </>
  );
}

/** The marks that no button explains. */
export function otherMarks(
  { others, unlabelled }: Pick<ReturnType<typeof groupsOf>, "others" | "unlabelled">,
  isClasses: boolean,
  hasPicks: boolean,
): string {
  return [
    hasPicks ? "✕ chosen" : "",
    isClasses && others.length > 0 ? `● grey: other classes, ${count(others.length)}` : "",
    unlabelled.length > 0 ? `○ without a label, ${count(unlabelled.length)}` : "",
  ]
    .filter((said) => said !== "")
    .join(" · ");
}

interface Tip {
  data: { i: number };
}

function base(map: PoolMapData, colours: Colours): Option {
  const bare = {
    ...axis(colours),
    type: "value",
    scale: true,
    axisLabel: { show: false },
    axisLine: { onZero: false, lineStyle: { color: colours.rule } },
    splitLine: { show: false },
  };
  return {
    grid: { left: 8, right: 8, top: 8, bottom: 24 },
    xAxis: { ...bare, name: "first component", nameLocation: "middle", nameGap: 8 },
    yAxis: bare,
    tooltip: {
      formatter: ({ data: { i } }: Tip) => {
        const value = map.label[i];
        const said =
          typeof value === "number"
            ? number(value, 4)
            : value === null
              ? (map.status[i] ?? "")
              : String(value);
        return `row ${count(map.row[i] ?? 0)}\n${said}`;
      },
    },
  };
}

const placed = (map: PoolMapData, at: readonly number[], name = "") =>
  at.map((i) => ({ value: [map.x[i], map.y[i]], i, name }));

function unlabelledSeries(map: PoolMapData, at: readonly number[], colours: Colours, opacity: number) {
  return {
    type: "scatter",
    name: "without a label",
    data: placed(map, at),
    symbolSize: 5,
    itemStyle: { color: "transparent", borderColor: colours.quiet, borderWidth: 1, opacity },
  };
}

function pickSeries(map: PoolMapData, chosen: ReadonlySet<number>, colours: Colours) {
  const at = map.row.flatMap((row, i) => (chosen.has(row) ? [i] : []));
  return {
    type: "scatter",
    name: "chosen",
    data: placed(map, at),
    symbol: CROSS,
    symbolSize: 11,
    itemStyle: { color: colours.series[1] },
    z: 5,
  };
}

function classMap(
  map: PoolMapData,
  groups: ReturnType<typeof groupsOf>,
  isolated: string | null,
  chosen: ReadonlySet<number>,
  colours: Colours,
): Option {
  const isFaint = isolated !== null;
  return {
    ...base(map, colours),
    series: [
      unlabelledSeries(map, groups.unlabelled, colours, isFaint ? 0.15 : 0.55),
      {
        type: "scatter",
        name: "other classes",
        data: placed(map, groups.others),
        symbolSize: 7,
        itemStyle: { color: colours.quiet, opacity: isFaint ? 0.1 : 1 },
      },
      ...groups.classes.map(({ name, at }, i) => ({
        type: "scatter",
        name,
        data: placed(map, at, name),
        symbol: SHAPES[i],
        symbolSize: 9,
        itemStyle: { color: colours.series[i], opacity: isFaint && isolated !== name ? 0.1 : 1 },
        z: isolated === name ? 4 : 3,
      })),
      pickSeries(map, chosen, colours),
    ],
  };
}

function numberMap(
  map: PoolMapData,
  groups: ReturnType<typeof groupsOf>,
  chosen: ReadonlySet<number>,
  colours: Colours,
): Option {
  const labelled = map.label.flatMap((value, i) =>
    typeof value === "number" && map.status[i] === "labelled" ? [{ value, i }] : [],
  );
  const values = labelled.map(({ value }) => value);
  return {
    ...base(map, colours),
    ...(values.length > 0
      ? {
          visualMap: {
            seriesIndex: 1,
            dimension: 2,
            min: Math.min(...values),
            max: Math.max(...values),
            orient: "horizontal",
            right: 8,
            top: 0,
            itemHeight: 90,
            itemWidth: 10,
            precision: 0,
            text: [number(Math.max(...values)), number(Math.min(...values))],
            textStyle: { color: colours.quiet },
            inRange: { color: colours.ramp.slice(1) },
          },
        }
      : {}),
    series: [
      unlabelledSeries(map, groups.unlabelled, colours, 0.55),
      {
        type: "scatter",
        name: "labelled",
        data: labelled.map(({ value, i }) => ({ value: [map.x[i], map.y[i], value], i })),
        symbolSize: 9,
      },
      pickSeries(map, chosen, colours),
    ],
  };
}

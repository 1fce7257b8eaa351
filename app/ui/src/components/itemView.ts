/** What an item is shown as, from its payload, its features and what the project says of them. Never HTML. */
import type { Project } from "../api/types";
import { number } from "../formats";
import { pictureOf, type Picture } from "./pixels";

export interface Shown {
  key: string;
  payload?: unknown;
  /** The features, where they were asked for. */
  x?: readonly number[] | null;
}

export type Showing = Pick<Project, "display" | "input">;

/** A name and its value, as text. */
export type Cell = readonly [string, string];

export type View =
  | { kind: "pixels"; picture: Picture }
  | { kind: "picture"; address: string; cells: Cell[] }
  | { kind: "text"; text: string; cells: Cell[] }
  | { kind: "table"; cells: Cell[]; nMore: number }
  | { kind: "nothing" };

/** Rows of a table that somebody still reads. */
const MOST_CELLS = 200;

export function viewOf(item: Shown, { display, input }: Showing): View {
  const kind = display?.kind ?? "auto";
  const fromPayload = kind === "text" ? textView(item.payload) : payloadView(item.payload, kind === "image");
  const pixels = () => pixelView(item, display, input);
  const table = () => tableView(item, display?.columns ?? null);
  const ways: Record<typeof kind, (() => View | null)[]> = {
    image: [pixels, () => fromPayload, table],
    text: [() => fromPayload, table],
    table: [table, () => fromPayload],
    auto: [() => fromPayload, pixels, table],
  };
  for (const way of ways[kind]) {
    const view = way();
    if (view !== null) return view;
  }
  return { kind: "nothing" };
}

export function isSeen(view: View): boolean {
  return view.kind === "pixels" || view.kind === "picture";
}

/** What fits into a line: the text, or the first values; of a picture nothing, which is seen. */
export function gistOf(view: View): string {
  if (view.kind === "text") return view.text.slice(0, 120);
  return view.kind === "table"
    ? view.cells
        .slice(0, 8)
        .map(([, value]) => value)
        .join(" · ")
        .slice(0, 120)
    : "";
}

function payloadView(payload: unknown, isPicture: boolean): View | null {
  if (typeof payload === "string") {
    const address = isPicture || payload.startsWith("data:image/") ? pictureAddress(payload) : null;
    return address === null ? textView(payload) : { kind: "picture", address, cells: [] };
  }
  if (!isFields(payload)) return textView(payload);
  const { image, ...others } = payload;
  const address = typeof image === "string" ? pictureAddress(image) : null;
  if (address !== null) return { kind: "picture", address, cells: cellsOf(others) };
  const { text, ...rest } = payload;
  if (typeof text === "string") return { kind: "text", text, cells: cellsOf(rest) };
  return fieldsView(payload);
}

function textView(payload: unknown): View | null {
  if (payload === null || payload === undefined) return null;
  if (isFields(payload)) {
    const { text, ...rest } = payload;
    return typeof text === "string" ? { kind: "text", text, cells: cellsOf(rest) } : fieldsView(payload);
  }
  const text = valueText(payload);
  return text === "" ? null : { kind: "text", text, cells: [] };
}

function fieldsView(fields: Record<string, unknown>): View | null {
  const cells = cellsOf(fields);
  return cells.length === 0 ? null : firstOf(cells);
}

function pixelView(item: Shown, display: Showing["display"], input: Showing["input"]): View | null {
  if (!Array.isArray(item.x)) return null;
  const inputShape = input.shape;
  const shape = display?.shape ?? (display?.kind === "image" ? imageShape(inputShape) : null);
  if (shape === null) return null;
  const picture = pictureOf(item.x as number[], { shape, range: display?.range, inputShape });
  return picture === null ? null : { kind: "pixels", picture };
}

/** Of rows that are images already: [height, width], [1, height, width] or [3, height, width]. */
function imageShape(input: readonly number[]): number[] | null {
  const [first = 0, second = 0, third = 0] = input;
  if (input.length === 2) return [first, second];
  if (input.length !== 3) return null;
  return first === 1 ? [second, third] : first === 3 ? [second, third, 3] : null;
}

function tableView(item: Shown, columns: readonly string[] | null): View | null {
  const isNamed = columns !== null && Array.isArray(item.x);
  if (isFields(item.payload) && !isNamed) return fieldsView(item.payload);
  if (item.x === null || item.x === undefined || item.x.length === 0) return null;
  return firstOf(item.x.map((value, i) => [columns?.[i] ?? `feature ${i + 1}`, number(value, 5)]));
}

function firstOf(cells: Cell[]): View {
  return { kind: "table", cells: cells.slice(0, MOST_CELLS), nMore: Math.max(0, cells.length - MOST_CELLS) };
}

function cellsOf(fields: Record<string, unknown>): Cell[] {
  return Object.entries(fields).map(([name, value]) => [name, valueText(value)]);
}

function isFields(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** As it was written in the data: figures are not rounded. */
function valueText(value: unknown): string {
  if (value === null || value === undefined) return "–";
  return typeof value === "string"
    ? value
    : typeof value === "object"
      ? JSON.stringify(value)
      : String(value);
}

/** Pictures come with the data or from this service: no other host learns who looks at what. */
export function pictureAddress(text: string, origin = location.origin): string | null {
  if (/^data:image\/[\w.+-]+[;,]/.test(text)) return text;
  if (text.startsWith("data:") || !URL.canParse(text, origin)) return null;
  const address = new URL(text, origin);
  return address.origin === origin ? address.href : null;
}

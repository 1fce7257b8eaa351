/** What an annotator says of an item. */

/** A class name, a number, or a number of each output. */
export type Value = string | number | number[];

export type Saying =
  { kind: "label"; value: Value } | { kind: "skip" } | /** Takes one's answer back. */ { kind: "retract" };

/** One saying of one row, as it waits to be sent. */
export interface Entry {
  id: string;
  row: number;
  /** The item's key, for people. */
  key: string;
  saying: Saying;
  /** Seconds that the annotator took. */
  leadTime: number | null;
  /** What was said of the row before and had not been sent: said again where this one is undone. */
  replaced: Entry | null;
}

export function sayingText(saying: Saying, unit?: string | null): string {
  if (saying.kind === "skip") return "skipped";
  if (saying.kind === "retract") return "taken back";
  const text = Array.isArray(saying.value) ? saying.value.join(", ") : String(saying.value);
  return typeof saying.value === "string" || !unit ? text : `${text} ${unit}`;
}

export function isSame(one: Saying | null | undefined, other: Saying | null | undefined): boolean {
  return JSON.stringify(one ?? null) === JSON.stringify(other ?? null);
}

/** How an outcome is entered: by buttons, by a stepper or as a number, and what counts as one. */
import type { OutcomeField } from "../api/types";

export type Value = string | number | boolean;
export type Entered = { isGood: true; value: Value } | { isGood: false; error: string };

export interface Choice {
  value: Value;
  label: string;
  /** The key that chooses it; null where there are too many for keys. */
  key: string | null;
}

const DIGITS = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "0"];

/** What can be chosen, as it is shown. 0 and 1 of a family of yes and no are called that. */
export function choicesOf(field: OutcomeField): Choice[] {
  const given = (field.choices ?? []).map(({ value, label }) => ({ value: value as Value, label }));
  if (field.family === "bernoulli" && given.every(({ value }) => value === 0 || value === 1)) {
    return [
      { value: 1, label: "yes", key: "1" },
      { value: 0, label: "no", key: "0" },
    ];
  }
  const labels = given.map(({ label }) => label.toLowerCase());
  const isOneKeyEach =
    labels.every((label) => /^[a-z0-9]$/.test(label)) && new Set(labels).size === labels.length;
  return given.map((choice, i) => ({
    ...choice,
    key: isOneKeyEach ? (labels[i] ?? null) : given.length <= DIGITS.length ? (DIGITS[i] ?? null) : null,
  }));
}

/** Whether one press of a button is the whole outcome. */
export function isOnePress(fields: readonly OutcomeField[]): boolean {
  return fields.length === 1 && fields[0]?.kind === "choice";
}

/** Reads what was typed for a count or a number; the error is a sentence for the person who typed. */
export function readEntry(field: OutcomeField, text: string): Entered {
  const typed = text.trim().replace("−", "-");
  if (field.kind === "choice") {
    const found = choicesOf(field).find(({ value }) => String(value) === typed);
    return found === undefined ? refused("Choose one of them.") : { isGood: true, value: found.value };
  }
  if (typed === "") return refused(field.kind === "count" ? "Enter how many." : "Enter a number.");
  if (/^[-+]?\d*,\d+$/.test(typed)) return refused(`Write ${typed.replace(",", ".")} with a point.`);
  const value = /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(typed) ? Number(typed) : NaN;
  if (!Number.isFinite(value)) return refused(`“${typed}” is no number.`);
  if (field.integer && !Number.isInteger(value)) return refused("Enter a whole number.");
  const low = field.low ?? (field.kind === "count" ? 0 : null);
  if (low !== null && value < low) return refused(`It is at least ${low}.`);
  if (field.high !== null && value > field.high) return refused(`It is at most ${field.high}.`);
  return { isGood: true, value };
}

/** One more or one fewer, within the ends; of nothing typed the lowest. */
export function step(field: OutcomeField, text: string, by: 1 | -1): string {
  const low = field.low ?? 0;
  const before = Number(text.trim());
  if (text.trim() === "" || !Number.isFinite(before)) return String(low);
  const next = Math.round(before) + by;
  return String(Math.min(field.high ?? Infinity, Math.max(low, next)));
}

/** The choice that a key means. Keys with modifiers, repeats and what is typed into a field mean nothing. */
export function choiceOfKey(choices: readonly Choice[], event: KeyboardEvent): Choice | undefined {
  if (!isBareKey(event)) return undefined;
  return choices.find(({ key }) => key !== null && key === event.key.toLowerCase());
}

export function isBareKey(event: KeyboardEvent): boolean {
  if (event.repeat || event.isComposing || event.ctrlKey || event.altKey || event.metaKey) return false;
  const target = event.target;
  return !(
    target instanceof HTMLElement && target.closest("input, textarea, select, dialog, [contenteditable]")
  );
}

function refused(error: string): Entered {
  return { isGood: false, error };
}

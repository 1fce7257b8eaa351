/** Which key says what. Commands use no letters or digits, so that classes can have them all. */

export type Command =
  | { kind: "class"; index: number }
  | {
      kind:
        "skip" | "undo" | "back" | "forward" | "up" | "down" | "confirm" | "grid" | "help" | "leave" | "find";
      /** An arrow with Shift: what it passes is selected. */
      isSelecting?: boolean;
    };

const ORDER = [..."1234567890abcdefghijklmnopqrstuvwxyz"];

/**
 * The key of each class, in the classes' order. Where every class is one letter or digit it is that key; else the keys
 * go in order, and a class beyond the 36th has none: it is found by typing a part of its name.
 */
export function keysOf(classes: readonly string[]): (string | null)[] {
  const own = classes.map((name) => name.toLowerCase());
  const areKeys = own.every((name) => /^[a-z0-9]$/.test(name)) && new Set(own).size === own.length;
  return areKeys ? own : classes.map((_, i) => ORDER[i] ?? null);
}

export function needsFinding(classes: readonly string[]): boolean {
  return classes.length > ORDER.length;
}

/** What the browser tells of a key that went down. */
export interface Press {
  key: string;
  code: string;
  repeat: boolean;
  isComposing: boolean;
  ctrlKey: boolean;
  metaKey: boolean;
  altKey: boolean;
  shiftKey: boolean;
}

const COMMANDS: Partial<Record<string, Exclude<Command, { kind: "class" }>>> = {
  " ": { kind: "skip" },
  Backspace: { kind: "undo" },
  ArrowLeft: { kind: "back" },
  ArrowRight: { kind: "forward" },
  ArrowUp: { kind: "up" },
  ArrowDown: { kind: "down" },
  Enter: { kind: "confirm" },
  Escape: { kind: "leave" },
  ".": { kind: "grid" },
  "?": { kind: "help" },
  "/": { kind: "find" },
};

/** Some keyboards write these only with Shift; Space or Backspace with it is something else. */
const WRITTEN = new Set([".", "?", "/"]);

/** Null where the key says nothing here: the browser's own meaning stays. */
export function commandOf(press: Press, keys: readonly (string | null)[]): Command | null {
  if (press.repeat || press.isComposing) return null;
  const isUndo = press.key.toLowerCase() === "z" && (press.ctrlKey || press.metaKey);
  if (isUndo && !press.altKey && !press.shiftKey) return { kind: "undo" };
  if (press.ctrlKey || press.metaKey || press.altKey) return null;
  const command = COMMANDS[press.key];
  if (command !== undefined) {
    if (!press.shiftKey || WRITTEN.has(press.key)) return command;
    return press.key.startsWith("Arrow") ? { ...command, isSelecting: true } : null;
  }
  if (press.shiftKey) return null;
  const index = keys.indexOf(press.key.toLowerCase());
  if (index >= 0 && press.key.length === 1) return { kind: "class", index };
  const place = keys.indexOf(placeOf(press));
  return place >= 0 ? { kind: "class", index: place } : null;
}

/** What stands on that place of a Latin keyboard: others write & or ф where it has 1 or a. */
function placeOf({ key, code }: Press): string {
  if (/^[a-z0-9]$/i.test(key) || key.length !== 1) return "";
  return /^(?:Digit|Numpad|Key)([A-Z0-9])$/.exec(code)?.[1]?.toLowerCase() ?? "";
}

/** Whether a press on this element is meant for it, not for labelling. */
export function isForElement(target: EventTarget | null, press: Pick<Press, "key">): boolean {
  if (!(target instanceof Element)) return false;
  if (target.closest("input, textarea, select, [contenteditable], dialog") !== null) return true;
  const isPressable = target.closest("button, a, summary, [role=button]") !== null;
  if (isPressable && (press.key === " " || press.key === "Enter")) return true;
  const scrolls = target.closest(".scrolls, .words, pre") !== null;
  return scrolls && (press.key.startsWith("Arrow") || press.key === " ");
}

/** Milliseconds within which nobody has seen an item. */
export const UNSEEN = 120;

export interface Showing {
  /** When the item was shown. */
  at: number;
  /** The key whose answer brought it; null where it came by itself, as after a wait. */
  by: string | null;
}

/**
 * Whether a press comes too soon to be meant: of an item that came by itself, or by the same key, which bounced. Who
 * types different keys that fast has read ahead.
 */
export function isTooSoon(key: string, now: number, shown: Showing): boolean {
  return now - shown.at < UNSEEN && (shown.by === null || shown.by === key);
}

/** Classes whose name starts with the text, then those that have it inside. */
export function findClasses(classes: readonly string[], text: string, most = 12): number[] {
  const wanted = text.trim().toLowerCase();
  const found: [number, number][] = [];
  classes.forEach((name, i) => {
    const at = name.toLowerCase().indexOf(wanted);
    if (at >= 0) found.push([name.toLowerCase() === wanted ? -1 : at === 0 ? 0 : 1, i]);
  });
  return found
    .sort(([one, i], [other, j]) => one - other || i - j)
    .slice(0, most)
    .map(([, i]) => i);
}

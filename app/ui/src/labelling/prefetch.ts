/** Items are there before they are looked at: how many are asked for, when, and with their pictures ready. */
import { viewOf, type Showing } from "../components/itemView";
import type { State, Work } from "./reducer";

/** As many are held as somebody answers in the seconds that a slow service takes. */
export const HELD = 8;
export const LOW = 4;
/** A grid shows so many at once. */
export const GRID = 24;

/** How many to ask for; 0: no need to ask. The service gives one's own first, also those whose answers it has not got. */
export function howMany({ items, isDry, grid }: State, nUnsent: number): number {
  const [held, low] = grid === null ? [HELD, LOW] : [GRID, GRID / 2];
  if (isDry || items.length > low) return 0;
  return nUnsent + held;
}

/** To keep what is held, and fill it up. */
export function toRenew({ items, grid }: State, nUnsent: number): number {
  return nUnsent + Math.max(items.length, grid === null ? HELD : GRID);
}

const NUMBERS_AT_ONCE = 100_000;

/** What the service gives at most in one answer: of wide rows fewer than were asked for. */
export function givenAtMost(count: number, project: Showing, features: boolean): number {
  const width = project.input.shape.reduce((product, side) => product * side, 1);
  return features ? Math.min(count, Math.max(1, Math.floor(NUMBERS_AT_ONCE / width))) : count;
}

/** Whether the features have a part in how items are shown. */
export function needsFeatures({ display }: Showing): boolean {
  return display?.kind !== "text";
}

/** Loads and decodes the pictures of items, so that showing them takes no time; those of items that are gone are let go. */
export function pictureShelf(project: Showing, load: (address: string) => unknown = decoded) {
  const shelf = new Map<number, unknown>();
  return (items: readonly Work[]) => {
    const rows = new Set(items.map(({ row }) => row));
    for (const row of shelf.keys()) if (!rows.has(row)) shelf.delete(row);
    for (const item of items) {
      if (shelf.has(item.row)) continue;
      const view = viewOf(item, project);
      shelf.set(item.row, view.kind === "picture" ? load(view.address) : null);
    }
  };
}

function decoded(address: string): HTMLImageElement {
  const image = new Image();
  image.src = address;
  // A picture that cannot be shown says so where it is shown.
  image.decode().catch(() => undefined);
  return image;
}

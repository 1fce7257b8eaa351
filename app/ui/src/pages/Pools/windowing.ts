/** Which rows of a long list are seen, of so many that no browser could hold an element as high as all of them. */

/** Browsers lose precision, or stop, somewhere above this many pixels. */
export const MOST_PIXELS = 8_000_000;
/** Rows read at once. */
export const PAGE = 100;
/** Rows drawn above and below what is seen. */
const SPARE = 6;

export interface Window {
  /** How high the list pretends to be. */
  height: number;
  first: number;
  /** One after the last. */
  end: number;
  /** Where the first drawn row lies, in pixels from the top. */
  top: number;
}

export function windowOf(n: number, rowHeight: number, scrollTop: number, viewHeight: number): Window {
  const whole = n * rowHeight;
  const height = Math.min(whole, MOST_PIXELS);
  const room = Math.max(0, height - viewHeight);
  const at = Math.min(Math.max(0, scrollTop), room);
  // Of lists that are higher than they pretend, a pixel of the scroll bar is several of the list.
  const hidden = room === 0 ? 0 : (at / room) * Math.max(0, whole - viewHeight);
  const firstSeen = Math.floor(hidden / rowHeight);
  const first = Math.max(0, firstSeen - SPARE);
  const end = Math.min(n, Math.ceil((hidden + viewHeight) / rowHeight) + SPARE);
  return { height, first, end, top: at - hidden + first * rowHeight };
}

/** The scroll position at which a row stands at the top. */
export function scrollTo(row: number, n: number, rowHeight: number, viewHeight: number): number {
  const whole = n * rowHeight;
  const room = Math.max(0, Math.min(whole, MOST_PIXELS) - viewHeight);
  const hidden = Math.max(0, whole - viewHeight);
  return hidden === 0 ? 0 : Math.min(room, ((row * rowHeight) / hidden) * room);
}

/** The pages that hold the rows from `first` to `end`. */
export function pagesOf(first: number, end: number): number[] {
  if (end <= first) return [];
  const [from, to] = [Math.floor(first / PAGE), Math.floor((end - 1) / PAGE)];
  return Array.from({ length: to - from + 1 }, (_, i) => from + i);
}

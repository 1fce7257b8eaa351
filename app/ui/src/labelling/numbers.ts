/** A number as somebody types it. */

/** The largest that the service takes, a 32-bit float's. */
const LARGEST = 3.4e38;

/** The number, or what is wrong with the text. */
export function readNumber(text: string): number | string {
  const written = text.trim().replace("−", "-");
  if (written === "") return "Type a number, or skip the item.";
  // 1,5 and 1,000 cannot be told apart: better asked than guessed.
  if (written.includes(",")) return "Write it with a point and without commas: 1.5 or 1000.";
  const value = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(written) ? Number(written) : NaN;
  if (Number.isNaN(value)) return `“${written.slice(0, 40)}” is not a number.`;
  return Math.abs(value) <= LARGEST ? value : "That is more than can be kept: at most 3.4e38.";
}

/** A label or a prediction, as text. */
import { number } from "../../formats";

export function valueText(value: unknown): string {
  if (value === null || value === undefined) return "–";
  if (typeof value === "number") return number(value, 5);
  return typeof value === "string" ? value : JSON.stringify(value);
}

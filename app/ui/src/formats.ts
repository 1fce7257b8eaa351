/** Numbers and times as the page writes them. */

/** Up to `digits` significant ones, without an exponent where a person would not write one. */
export function number(value: number | null | undefined, digits = 3): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e7 || size < 1e-4) return value.toExponential(digits - 1).replace("-", "−");
  const decimals = Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
  const text = value.toLocaleString("en", { maximumFractionDigits: Math.min(decimals, 12) });
  return text.replace("-", "−");
}

/** A share as .878 is read: three decimals, always. */
export function share(value: number | null | undefined): string {
  return value === null || value === undefined || !Number.isFinite(value) ? "–" : value.toFixed(3);
}

export function count(value: number): string {
  return value.toLocaleString("en");
}

/** "1 label", "2 labels". */
export function many(n: number, one: string, several = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : several}`;
}

/** "once", "2 times". */
export function times(n: number): string {
  return n === 1 ? "once" : `${count(n)} times`;
}

export function bytes(n: number): string {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  const step = n < 1000 ? 0 : Math.min(units.length - 1, Math.floor(Math.log10(n) / 3));
  return `${number(n / 1000 ** step)} ${units[step]}`;
}

/** 0:12, 3:05, 1:02:09. */
export function duration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const padded = (n: number) => String(n).padStart(2, "0");
  return hours > 0 ? `${hours}:${padded(minutes)}:${padded(rest)}` : `${minutes}:${padded(rest)}`;
}

/** "2 minutes ago", and after a day the date, in the viewer's zone. */
export function ago(time: string, now = Date.now()): string {
  const seconds = Math.round((now - Date.parse(time)) / 1000);
  if (seconds < 10) return "just now";
  if (seconds < 60) return `${seconds} seconds ago`;
  if (seconds < 3600) return `${many(Math.round(seconds / 60), "minute")} ago`;
  if (seconds < 86400) return `${many(Math.round(seconds / 3600), "hour")} ago`;
  return date(time);
}

export function date(time: string): string {
  return new Date(time).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
}

/** 14:32, in the viewer's zone. */
export function clock(time: string): string {
  return new Date(time).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit" });
}

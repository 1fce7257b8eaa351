/** Labels that this browser holds and the service does not have yet. */

const PREFIX = "bensemble.queue";

/** The labelling page keeps each round's queue under a key with this prefix, as JSON with the entries in a list. */
export function unsentLabels(storage: Storage): number {
  let n = 0;
  for (let i = 0; i < storage.length; i += 1) {
    const name = storage.key(i);
    if (name?.startsWith(PREFIX) === true) n += entriesIn(storage.getItem(name) ?? "");
  }
  return n;
}

/** What cannot be read counts as one: better a warning too many. */
function entriesIn(text: string): number {
  try {
    const held: unknown = JSON.parse(text);
    if (Array.isArray(held)) return held.length;
    if (typeof held !== "object" || held === null) return 1;
    return Object.values(held).reduce<number>((n, part) => n + (Array.isArray(part) ? part.length : 0), 0);
  } catch {
    return 1;
  }
}

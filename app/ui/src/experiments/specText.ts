/** A spec as a text to be edited: what fits on a line stands on one. */
const WIDTH = 96;

export function specText(value: unknown, indent = ""): string {
  const inline = oneLine(value);
  // The first level is always spread out: a line a key is what a problem is marked on.
  if (typeof value !== "object" || value === null) return inline;
  if (indent !== "" && indent.length + inline.length <= WIDTH) return inline;
  const inner = `${indent}  `;
  if (Array.isArray(value)) {
    const isPlain = value.every((entry) => typeof entry !== "object" || entry === null);
    const parts = value.map((entry) => specText(entry, inner));
    return `[\n${isPlain ? wrapped(parts, inner) : parts.map((part) => inner + part).join(",\n")}\n${indent}]`;
  }
  const parts = Object.entries(value).map(
    ([name, entry]) => `${inner}${JSON.stringify(name)}: ${specText(entry, inner)}`,
  );
  return parts.length === 0 ? "{}" : `{\n${parts.join(",\n")}\n${indent}}`;
}

function oneLine(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(oneLine).join(", ")}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const parts = Object.entries(value).map(([name, entry]) => `${JSON.stringify(name)}: ${oneLine(entry)}`);
  return `{${parts.join(", ")}}`;
}

/** Many numbers, as many on a line as fit. */
function wrapped(parts: readonly string[], indent: string): string {
  const lines: string[] = [];
  let line = indent;
  parts.forEach((part, i) => {
    const piece = i < parts.length - 1 ? `${part},` : part;
    if (line.length + piece.length > WIDTH && line.trim() !== "") {
      lines.push(line.trimEnd());
      line = indent;
    }
    line += `${piece} `;
  });
  return [...lines, line.trimEnd()].join("\n");
}

/** What the editor begins with. */
export const EXAMPLE = {
  name: "digit span",
  instructions: "Read the digits aloud, one a second. Then the participant repeats them.",
  parameters: { theta: { dist: "normal", loc: 7, scale: 2 } },
  designs: { xi: { type: "integer", low: 1, high: 15 } },
  outcome: { y: { family: "bernoulli", logit: "theta - xi" } },
  stop: { any: [{ sd: { theta: 0.6 } }, { max_trials: 30 }] },
};

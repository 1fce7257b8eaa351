/** A design as typed, variable by variable; what is left empty is left open. */
import type { DesignVariable } from "../api/types";
import { readEntry, type Value } from "./entry";

export interface TypedDesign {
  values: Record<string, Value>;
  errors: Record<string, string>;
}

/** Values beyond the declared ends are taken, as the service does: what was run is what counts. */
export function readDesign(variables: readonly DesignVariable[], typed: Record<string, string>): TypedDesign {
  const found: TypedDesign = { values: {}, errors: {} };
  for (const { name, kind, values } of variables) {
    const text = typed[name] ?? "";
    if (text.trim() === "") continue;
    if (kind === "values") {
      const value = (values ?? []).find((each) => String(each) === text);
      if (value !== undefined) found.values[name] = value as Value;
      continue;
    }
    const field = {
      name,
      family: "",
      kind: "number" as const,
      choices: null,
      low: null,
      high: null,
      integer: kind === "integer",
    };
    const entered = readEntry(field, text);
    if (entered.isGood) found.values[name] = entered.value;
    else found.errors[name] = entered.error;
  }
  return found;
}

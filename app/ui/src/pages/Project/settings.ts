/** The settings of a project as texts in a form, and back as the change that a request asks for. */
import type { Project } from "../../api/types";
import type { MethodChoice } from "../../components/MethodForm";
import { fieldsOf, type Texts } from "../../components/schema";
import type { Method } from "../../hooks/useMethods";

type Spec = Record<string, unknown> | null;

/** What a stored method looks like in its form; options that have their default are left out. */
export function choiceOf(methods: Record<string, Method>, stored: Spec): MethodChoice {
  const name = typeof stored?.name === "string" ? stored.name : "";
  const method = methods[name];
  if (stored === null || method === undefined) return { name: "", texts: {} };
  const texts: Texts = {};
  for (const field of fieldsOf(method.schema)) {
    const value = stored[field.name];
    if (value === undefined || JSON.stringify(value) === JSON.stringify(field.fallback ?? null)) continue;
    texts[field.name] = textOfValue(value);
  }
  return { name, texts };
}

function textOfValue(value: unknown): string {
  if (value === null) return "";
  if (Array.isArray(value) && value.every((each) => typeof each === "number")) return value.join(", ");
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

export interface DisplayTexts {
  kind: "auto" | "image" | "text" | "table";
  shape: string;
  range: string;
  columns: string;
  unit: string;
  instructions: string;
}

type Display = NonNullable<Project["display"]>;

export function textsOfDisplay(display: Project["display"]): DisplayTexts {
  return {
    kind: display?.kind ?? "auto",
    shape: display?.shape?.join(", ") ?? "",
    range: display?.range?.join(", ") ?? "",
    columns: display?.columns?.join(", ") ?? "",
    unit: display?.unit ?? "",
    instructions: display?.instructions ?? "",
  };
}

const split = (text: string) =>
  text
    .split(/[,;]/)
    .map((part) => part.trim())
    .filter((part) => part !== "");

function numbersIn(text: string, name: string, lengths: number[]): number[] | null {
  const parts = text.split(/[\s,;×]+/).filter((part) => part !== "");
  if (parts.length === 0) return null;
  const numbers = parts.map(Number);
  if (!lengths.includes(numbers.length) || numbers.some((value) => !Number.isFinite(value))) {
    throw new Error(`${name}: expected ${lengths.join(" or ")} numbers with commas between, got “${text}”.`);
  }
  return numbers;
}

/** Null where nothing is said; `error` where a text is no list of numbers. */
export function displayOf(texts: DisplayTexts): { display: Display | null; error?: string } {
  try {
    const [isPicture, isTable] = [
      texts.kind === "image" || texts.kind === "auto",
      texts.kind === "table" || texts.kind === "auto",
    ];
    const columns = isTable ? split(texts.columns) : [];
    const display: Display = {
      kind: texts.kind,
      shape: isPicture ? numbersIn(texts.shape, "Shape", [2, 3]) : null,
      range: isPicture ? numbersIn(texts.range, "Range", [2]) : null,
      columns: columns.length > 0 ? columns : null,
      unit: texts.unit.trim() === "" ? null : texts.unit.trim(),
      instructions: texts.instructions.trim() === "" ? null : texts.instructions.trim(),
    };
    const { kind, ...said } = display;
    const isSilent = kind === "auto" && Object.values(said).every((value) => value === null);
    return { display: isSilent ? null : display };
  } catch (reason) {
    return { display: null, error: reason instanceof Error ? reason.message : String(reason) };
  }
}

export interface Wanted {
  name: string;
  posterior: Record<string, unknown>;
  acquisition: Spec;
  selection: Spec;
  calibrate: boolean | "folds";
  display: Display | null;
}

/** Only what differs: a request that repeats everything would be noted as a change of everything. */
export function changedFields(project: Project, wanted: Wanted): Partial<Wanted> {
  const before: Wanted = {
    ...project,
    calibrate: project.calibrate as Wanted["calibrate"],
    display: project.display,
  };
  const changed = (Object.keys(wanted) as (keyof Wanted)[]).filter((field) => {
    const [old, now] = [before[field], wanted[field]];
    return isSpec(field)
      ? !isSameSpec(old as Spec, now as Spec)
      : JSON.stringify(sorted(old)) !== JSON.stringify(sorted(now));
  });
  return Object.fromEntries(changed.map((field) => [field, wanted[field]]));
}

function isSpec(field: keyof Wanted): boolean {
  return field === "posterior" || field === "acquisition" || field === "selection";
}

/** What is stored has every option, what is asked for only those that are not usual. */
function isSameSpec(stored: Spec, wanted: Spec): boolean {
  if (stored === null || wanted === null) return stored === wanted;
  if (stored.name !== wanted.name) return false;
  return Object.entries(wanted).every(
    ([name, value]) => JSON.stringify(stored[name]) === JSON.stringify(value),
  );
}

function sorted(value: unknown): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).sort(([a], [b]) => a.localeCompare(b)));
}

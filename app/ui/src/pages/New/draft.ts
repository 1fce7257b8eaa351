/** What has been said of a new project so far, kept in the tab; and the requests that it becomes. */
import type { FileInfo, ProjectIn } from "../../api/types";
import { NO_CHOICE, specOf, type MethodChoice } from "../../components/MethodForm";
import type { Methods } from "../../hooks/useMethods";
import { titleOf } from "./fileKind";

export type Step = "file" | "columns" | "task" | "method";
export const STEPS: Step[] = ["file", "columns", "task", "method"];

/** What a column is taken for. */
export type Role = "key" | "label" | "payload" | "feature" | "none";

export interface Draft {
  step: Step;
  /** Empty: none was chosen. The file itself does not outlive a reload. */
  fileName: string;
  fileSize: number;
  contentType: string;
  /** What the service found in it; null where it was too large to look at, or there is none. */
  found: FileInfo | null;
  /** A project without rows, which come later. */
  isWithoutFile: boolean;
  roles: Record<string, Role>;
  /** Said by hand where nothing could be found. */
  nFeatures: string;
  keyColumn: string;
  labelColumn: string;
  payloadColumn: string;

  name: string;
  kind: "classification" | "regression";
  /** One a line. */
  classes: string;
  outputs: string;
  noise: "constant" | "by_row";
  unit: string;
  shows: "auto" | "image" | "text" | "table";
  imageHeight: string;
  imageWidth: string;
  isColour: boolean;
  low: string;
  high: string;
  instructions: string;

  posterior: MethodChoice;
  model: MethodChoice;
  acquisition: MethodChoice;
  selection: MethodChoice;
  holdout: string;
  evaluationName: string;
  k: string;
  isGoingOn: boolean;
}

export const EMPTY: Draft = {
  step: "file",
  fileName: "",
  fileSize: 0,
  contentType: "",
  found: null,
  isWithoutFile: false,
  roles: {},
  nFeatures: "",
  keyColumn: "",
  labelColumn: "",
  payloadColumn: "",
  name: "",
  kind: "classification",
  classes: "",
  outputs: "1",
  noise: "constant",
  unit: "",
  shows: "auto",
  imageHeight: "",
  imageWidth: "",
  isColour: false,
  low: "",
  high: "",
  instructions: "",
  posterior: NO_CHOICE,
  model: NO_CHOICE,
  acquisition: NO_CHOICE,
  selection: NO_CHOICE,
  holdout: "20",
  evaluationName: "",
  k: "20",
  isGoingOn: true,
};

const NAME = "bensemble.new";

export function storedDraft(): Draft {
  const stored = sessionStorage.getItem(NAME);
  return stored === null ? EMPTY : { ...EMPTY, ...(JSON.parse(stored) as Partial<Draft>) };
}

export function storeDraft(draft: Draft): void {
  sessionStorage.setItem(NAME, JSON.stringify(draft));
}

export function forgetDraft(): void {
  sessionStorage.removeItem(NAME);
}

/** A file was looked at: what it suggests is taken, what was said of another file is not. */
export function withFile(
  draft: Draft,
  file: { name: string; size: number },
  contentType: string,
  found: FileInfo | null,
): Draft {
  const isCalledLikeBefore = draft.name === "" || draft.name === titleOf(draft.fileName);
  const next: Draft = {
    ...draft,
    fileName: file.name,
    fileSize: file.size,
    contentType: found?.content_type ?? contentType,
    found,
    isWithoutFile: false,
    roles: found === null ? {} : suggestedRoles(found),
    name: isCalledLikeBefore ? titleOf(file.name) : draft.name,
  };
  const task = found?.suggested.task;
  if (task?.kind === "classification") return { ...next, kind: task.kind, classes: task.classes.join("\n") };
  if (task?.kind === "regression") return { ...next, kind: task.kind, outputs: String(task.outputs ?? 1) };
  return next;
}

function suggestedRoles({ columns, suggested }: FileInfo): Record<string, Role> {
  const roleOf = (name: string): Role => {
    if (name === suggested.key) return "key";
    if (name === suggested.label) return "label";
    if (name === suggested.payload) return "payload";
    return suggested.features.includes(name) ? "feature" : "none";
  };
  return Object.fromEntries(columns.map(({ name }) => [name, roleOf(name)]));
}

/** Whether a column's numbers can be features: all numeric columns, or the list column x alone. */
export function canBeFeature({ columns }: FileInfo, name: string): boolean {
  const list = listColumn(columns);
  const kind = columns.find((column) => column.name === name)?.kind;
  return list === undefined ? kind === "number" : name === list.name;
}

function listColumn(columns: FileInfo["columns"]): FileInfo["columns"][number] | undefined {
  return columns.find(({ name, kind }) => name === "x" && kind === "list");
}

/** Only one column is the key, the label or the payload: who had the role before gives it up. */
export function withRole(draft: Draft, name: string, role: Role): Draft {
  const roles = { ...draft.roles };
  if (role !== "feature" && role !== "none") {
    for (const [other, held] of Object.entries(roles)) {
      if (held === role && draft.found !== null)
        roles[other] = canBeFeature(draft.found, other) ? "feature" : "none";
    }
  }
  return {
    ...draft,
    kind: role === "label" ? kindOf(draft, name) : draft.kind,
    roles: { ...roles, [name]: role },
  };
}

/** More different numbers than classes usually are: measured, not named. */
const MANY_NUMBERS = 20;

/** What the labels of a column are; what was said of classes stays said. */
function kindOf({ found, kind, classes }: Draft, label: string): Draft["kind"] {
  const column = found?.columns.find(({ name }) => name === label);
  if (column === undefined || classes.trim() !== "") return kind;
  return column.kind === "number" && column.n_distinct > MANY_NUMBERS ? "regression" : "classification";
}

function columnWith(draft: Draft, role: Role): string | undefined {
  return Object.entries(draft.roles).find(([, held]) => held === role)?.[0];
}

export function labelColumn(draft: Draft): string | undefined {
  return draft.found === null ? draft.labelColumn.trim() || undefined : columnWith(draft, "label");
}

/** Names of the features, in the order of the file; of a list column there are none. */
export function featureNames({ found, roles }: Draft): string[] {
  if (found === null || listColumn(found.columns) !== undefined) return [];
  return found.columns.map(({ name }) => name).filter((name) => roles[name] === "feature");
}

export function nFeatures(draft: Draft): number {
  const { found, roles } = draft;
  if (found === null) return wholeOf(draft.nFeatures) ?? 0;
  const list = listColumn(found.columns);
  if (list !== undefined) return roles[list.name] === "feature" ? (list.width ?? 0) : 0;
  if (found.columns.length === 0) return found.suggested.shape.reduce((n, side) => n * side, 1);
  return featureNames(draft).length;
}

/** The side of a square that so many numbers fill, grey or in colours; undefined where they fill none. */
export function squareOf(n: number): { side: number; isColour: boolean } | undefined {
  const grey = Math.sqrt(n);
  if (n >= 16 && Number.isInteger(grey)) return { side: grey, isColour: false };
  const colour = Math.sqrt(n / 3);
  return n >= 48 && Number.isInteger(colour) ? { side: colour, isColour: true } : undefined;
}

export function classesOf(draft: Draft): string[] {
  return draft.classes
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "");
}

/** [height, width] or [height, width, 3]; null where nothing was said. */
export function imageShape(draft: Draft): number[] | null {
  if (draft.shows !== "image") return null;
  const [height, width] = [wholeOf(draft.imageHeight), wholeOf(draft.imageWidth)];
  if (height === undefined || width === undefined) return null;
  return draft.isColour ? [height, width, 3] : [height, width];
}

function wholeOf(text: string): number | undefined {
  const value = Number(text);
  return text.trim() !== "" && Number.isInteger(value) && value > 0 ? value : undefined;
}

/** What is wrong with what was typed, by field; nothing of it has to go to the service to be known. */
export type Mistakes = Partial<Record<keyof Draft, string>>;

export function mistakesIn(draft: Draft, step: Step): Mistakes {
  switch (step) {
    case "file":
      return draft.fileName === "" && !draft.isWithoutFile ? { fileName: "Choose a file first." } : {};
    case "columns":
      return columnMistakes(draft);
    case "task":
      return taskMistakes(draft);
    case "method":
      return methodMistakes(draft);
  }
}

function columnMistakes(draft: Draft): Mistakes {
  if (nFeatures(draft) > 0) return {};
  if (draft.found === null) return { nFeatures: "Say how many numbers a row has, such as 64." };
  return {
    roles:
      "No column is a feature. Features are what is learnt from: columns of numbers, or a list column called x. Where the file has only texts, turn each into numbers first, by an embedding for instance.",
  };
}

function taskMistakes(draft: Draft): Mistakes {
  const found: Mistakes = {};
  if (draft.name.trim() === "") found.name = "Give it a name.";
  if (draft.kind === "classification") {
    const classes = classesOf(draft);
    const twice = classes.find((name, i) => classes.indexOf(name) < i);
    if (classes.length < 2) found.classes = "Name at least two classes, one a line.";
    else if (twice !== undefined) found.classes = `“${twice}” is there twice.`;
  } else if (wholeOf(draft.outputs) === undefined) found.outputs = "A whole number, from 1.";
  if (draft.shows === "image") {
    const shape = imageShape(draft);
    const filled = shape?.reduce((n, side) => n * side, 1);
    if (shape === null) found.imageHeight = "Say how many rows and columns of pixels.";
    else if (filled !== nFeatures(draft))
      found.imageHeight = `${shape.join(" × ")} are ${filled} numbers; a row has ${nFeatures(draft)}.`;
  }
  const [low, high] = [draft.low.trim(), draft.high.trim()];
  if ((low === "") !== (high === "") || (low !== "" && !(Number(low) < Number(high))))
    found.low = "Give both, the lesser first, or neither.";
  return found;
}

function methodMistakes(draft: Draft): Mistakes {
  const found: Mistakes = {};
  const holdout = Number(draft.holdout);
  if (draft.holdout.trim() === "" || !(holdout >= 0 && holdout < 100))
    found.holdout = "From 0 to below 100 %.";
  if (wholeOf(draft.k) === undefined) found.k = "A whole number, from 1.";
  return found;
}

/** The first step with a mistake, up to `last`. */
export function firstMistake(draft: Draft, last: Step = "method"): Step | undefined {
  return STEPS.slice(0, STEPS.indexOf(last) + 1).find(
    (step) => Object.keys(mistakesIn(draft, step)).length > 0,
  );
}

export function projectBody(draft: Draft, methods: Methods | undefined): ProjectIn {
  const shape = imageShape(draft);
  const model = specOf(methods?.models, draft.model).spec;
  const names = featureNames(draft);
  const display = {
    kind: draft.shows,
    shape,
    range: draft.low.trim() === "" ? null : [Number(draft.low), Number(draft.high)],
    columns: names.length > 0 && names.length === nFeatures(draft) ? names : null,
    unit: draft.kind === "regression" ? draft.unit.trim() || null : null,
    instructions: draft.instructions.trim() || null,
  };
  const chosen = {
    model,
    posterior: specOf(methods?.posteriors, draft.posterior).spec,
    acquisition: specOf(methods?.acquisitions, draft.acquisition).spec,
    selection: specOf(methods?.selections, draft.selection).spec,
  };
  const body = {
    name: draft.name.trim(),
    task:
      draft.kind === "classification"
        ? { kind: draft.kind, classes: classesOf(draft) }
        : { kind: draft.kind, outputs: wholeOf(draft.outputs) ?? 1, noise: draft.noise },
    input: { shape: inputShape(draft, model?.name) },
    holdout: Number(draft.holdout) / 100,
    display,
    ...Object.fromEntries(Object.entries(chosen).filter(([, spec]) => spec !== undefined)),
  };
  // The method's fields are made from its schema at run time, which TypeScript cannot follow.
  return body as unknown as ProjectIn;
}

/** Networks for images want [channels, height, width]; for everything else a row is flat. */
function inputShape(draft: Draft, model: unknown): number[] {
  const shape = imageShape(draft);
  const isForImages = model === "conv" || model === "residual";
  if (shape === null || !isForImages) return [nFeatures(draft)];
  const [height = 1, width = 1, channels = 1] = shape;
  return [channels, height, width];
}

/** Which columns mean what, for `PUT /v1/pools/{id}/data`. */
export function columnQuery(draft: Draft): URLSearchParams {
  const query = new URLSearchParams();
  if (draft.found === null) {
    const named = { key: draft.keyColumn, label: draft.labelColumn, payload: draft.payloadColumn };
    for (const [role, name] of Object.entries(named)) if (name.trim() !== "") query.set(role, name.trim());
    return query;
  }
  for (const role of ["key", "label", "payload"] as const) {
    const name = columnWith(draft, role);
    if (name !== undefined) query.set(role, name);
  }
  for (const { name } of draft.found.columns) {
    if (draft.roles[name] === "none" && isTakenByItself(draft, name)) query.append("ignore", name);
  }
  return query;
}

/** Numeric columns are features, and columns called key, label or payload are these, unless the request says not to. */
function isTakenByItself({ found }: Draft, name: string): boolean {
  return found !== null && (canBeFeature(found, name) || ["key", "label", "payload"].includes(name));
}

/** What a file is, by the ending of its name: that is all a browser knows of it. */

export interface FileKind {
  format: "csv" | "ndjson" | "parquet" | "arrow" | "npy";
  contentType: string;
  /** Read line by line: its beginning tells what it is. */
  isLines: boolean;
}

const CSV: FileKind = { format: "csv", contentType: "text/csv", isLines: true };
const NDJSON: FileKind = { format: "ndjson", contentType: "application/x-ndjson", isLines: true };
const PARQUET: FileKind = {
  format: "parquet",
  contentType: "application/vnd.apache.parquet",
  isLines: false,
};
const ARROW: FileKind = { format: "arrow", contentType: "application/vnd.apache.arrow.file", isLines: false };
const STREAM: FileKind = { ...ARROW, contentType: "application/vnd.apache.arrow.stream" };
const NPY: FileKind = { format: "npy", contentType: "application/x-npy", isLines: false };

const KINDS: Record<string, FileKind> = {
  csv: CSV,
  ndjson: NDJSON,
  jsonl: NDJSON,
  parquet: PARQUET,
  pq: PARQUET,
  arrow: ARROW,
  feather: ARROW,
  ipc: ARROW,
  arrows: STREAM,
  npy: NPY,
};

export const ENDINGS = Object.keys(KINDS).map((ending) => `.${ending}`);

const SHEET = "Save the sheet as CSV first.";
const PACKED = "Unpack it first.";
const ADVICE: Record<string, string> = {
  xlsx: SHEET,
  xls: SHEET,
  ods: SHEET,
  tsv: "Save it with commas between the columns, as CSV.",
  json: "Write one object a line, and call it .ndjson.",
  npz: "It holds several arrays: save the one with the rows by numpy.save, as .npy.",
  pkl: "Pickles are never opened; save an array by numpy.save, or a table as Parquet.",
  zip: PACKED,
  gz: PACKED,
};

export function kindOf(name: string): FileKind | undefined {
  return KINDS[endingOf(name)];
}

/** Why a file cannot be taken, and what to do. */
export function refusalOf(name: string): string {
  const advice = ADVICE[endingOf(name)] ?? "Bring a table of rows, one item each.";
  return `“${name}” is not of a kind that can be read: CSV, NDJSON (.ndjson, .jsonl), Parquet, Arrow (.arrow, .feather) and npy can. ${advice}`;
}

function endingOf(name: string): string {
  return name.includes(".") ? (name.split(".").pop() ?? "").toLowerCase() : "";
}

/** "iris 2.csv" → "iris 2": what a project may be called. */
export function titleOf(name: string): string {
  return name
    .replace(/\.[^.]+$/, "")
    .replaceAll("_", " ")
    .trim();
}

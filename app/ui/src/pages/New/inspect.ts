/** Looks at a file before anything is made of it: lines by their first megabyte, other kinds whole if they are small. */
import { send } from "../../api/client";
import { bytes } from "../../formats";
import type { FileInfo } from "../../api/types";
import type { FileKind } from "./fileKind";

const FIRST_LINES = 1_000_000;
export const MOST_BYTES = 16 * 2 ** 20;

export interface Looked {
  found: FileInfo | null;
  /** What could not be looked at. */
  note: string | null;
}

export async function inspect(file: File, kind: FileKind, signal?: AbortSignal): Promise<Looked> {
  if (file.size === 0) throw new Error("the file is empty. Bring one with a row for each item.");
  const isPart = kind.isLines && file.size > FIRST_LINES;
  if (!kind.isLines && file.size > MOST_BYTES) {
    return {
      found: null,
      note: `The file has ${bytes(file.size)}; only up to ${bytes(MOST_BYTES)} can be looked at beforehand. Say in the next step what is in it.`,
    };
  }
  const query = new URLSearchParams({ name: file.name, ...(isPart ? { partial: "true" } : {}) });
  const response = await send(`/v1/files/inspect?${query.toString()}`, {
    method: "POST",
    headers: { "Content-Type": kind.contentType },
    body: isPart ? file.slice(0, FIRST_LINES) : file,
    signal,
  });
  return { found: (await response.json()) as FileInfo, note: null };
}

/** What the service understands of a spec that is being written: asked when typing rests. */
import { useEffect, useState } from "react";
import { api } from "../api/client";
import { Problem } from "../api/problem";
import type { Model } from "../api/types";
import { parseWithPlaces, type Place } from "../experiments/places";

const REST_MILLISECONDS = 300;

export interface Mistake {
  message: string;
  place: Place | null;
}

export interface Reading {
  /** Of the text as it stands; null while it is read, or where it cannot be. */
  model: Model | null;
  spec: Record<string, unknown> | null;
  mistakes: Mistake[];
  /** Why nothing could be asked: the service does not answer, say. */
  error: unknown;
  isReading: boolean;
}

const NOTHING: Reading = { model: null, spec: null, mistakes: [], error: undefined, isReading: true };

export function useModel(text: string): Reading {
  const [found, setFound] = useState<{ text: string; reading: Reading }>({ text: "", reading: NOTHING });
  useEffect(() => {
    const stop = new AbortController();
    const timer = setTimeout(() => {
      void read(text, stop.signal).then((reading) => {
        if (!stop.signal.aborted) setFound({ text, reading });
      });
    }, REST_MILLISECONDS);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [text]);
  return found.text === text ? found.reading : { ...found.reading, isReading: true };
}

async function read(text: string, signal: AbortSignal): Promise<Reading> {
  const done = { ...NOTHING, isReading: false };
  const parsed = parseWithPlaces(text);
  if (!parsed.isGood) return { ...done, mistakes: [{ message: parsed.message, place: parsed.place }] };
  if (typeof parsed.value !== "object" || parsed.value === null || Array.isArray(parsed.value)) {
    return { ...done, mistakes: [{ message: "a spec is an object: {…}", place: parsed.find("") }] };
  }
  const spec = parsed.value as Record<string, unknown>;
  try {
    return { ...done, spec, model: await api.post("/v1/models/validate", { body: spec as never, signal }) };
  } catch (error) {
    if (!(error instanceof Problem) || error.status !== 422) return { ...done, spec, error };
    const mistakes = error.errors.map(({ pointer, detail, ...rest }) => {
      const column = (rest as { column?: unknown }).column;
      return {
        message: pointer === "" ? detail : `${pointer}: ${detail}`,
        place: parsed.find(pointer, typeof column === "number" ? column : undefined),
      };
    });
    return {
      ...done,
      spec,
      mistakes: mistakes.length > 0 ? mistakes : [{ message: error.detail, place: null }],
    };
  }
}

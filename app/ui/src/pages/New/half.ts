/** A project that was made while its rows were not read yet: remembered in the tab, so that a reload does not hide it. */
import type { Project } from "../../api/types";

const NAME = "bensemble.half";

export interface Half {
  id: string;
  name: string;
}

export function storeHalf({ id, name }: Project): void {
  sessionStorage.setItem(NAME, JSON.stringify({ id, name }));
}

export function storedHalf(): Half | null {
  const stored = sessionStorage.getItem(NAME);
  return stored === null ? null : (JSON.parse(stored) as Half);
}

export function forgetHalf(): void {
  sessionStorage.removeItem(NAME);
}

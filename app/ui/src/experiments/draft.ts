/** The spec that is being written, kept with the tab: a reload or a look elsewhere loses nothing. */
const NAME = "bensemble.draft";

export function readDraft(): string | null {
  return sessionStorage.getItem(NAME);
}

export function writeDraft(text: string | null): void {
  if (text === null) sessionStorage.removeItem(NAME);
  else sessionStorage.setItem(NAME, text);
}

/** The API key of this tab: kept in sessionStorage, so that a reload keeps it and closing the tab forgets it. */
import { useSyncExternalStore } from "react";

const NAME = "bensemble.key";
const channel = typeof BroadcastChannel === "undefined" ? null : new BroadcastChannel("bensemble.key");

interface State {
  key: string | null;
  /** The service has refused this key: a dialog asks for another one, over the page as it stands. */
  isRefused: boolean;
}

/** From tab to tab. */
interface Said {
  key?: string;
  asks?: boolean;
  isOver?: boolean;
}

let state: State = { key: sessionStorage.getItem(NAME), isRefused: false };
const listeners = new Set<() => void>();

function change(next: State): void {
  state = next;
  for (const listener of listeners) listener();
}

export function currentKey(): string | null {
  return state.key;
}

export function signIn(key: string): void {
  sessionStorage.setItem(NAME, key);
  change({ key, isRefused: false });
  channel?.postMessage({ key });
}

/** In all tabs: whoever leaves a shared machine does not look for the others. */
export function signOut(): void {
  forget();
  channel?.postMessage({ isOver: true });
}

function forget(): void {
  sessionStorage.removeItem(NAME);
  change({ key: null, isRefused: false });
}

/** `key` is the one that was refused: another one may have been given while the request was under way. */
export function refuse(key: string | null): void {
  if (key === state.key) change({ ...state, isRefused: true });
}

/** The key in what was pasted: itself, or the end of the link that `make up` prints. */
export function keyIn(text: string): string {
  const given = text.trim();
  const at = given.indexOf("#key=");
  return at < 0 ? given : (new URLSearchParams(given.slice(at + 1)).get("key") ?? "");
}

/** `make up` prints `/#key=…`: taken, and erased from the address at once. */
export function takeKeyFromAddress(): void {
  const given = new URLSearchParams(location.hash.slice(1)).get("key");
  if (given === null) return;
  history.replaceState(null, "", location.pathname + location.search);
  signIn(given);
}

/** A new tab asks the others; whoever has a key answers. */
export function askOtherTabs(): void {
  channel?.addEventListener("message", ({ data }: MessageEvent<Said>) => {
    if (data.isOver === true) forget();
    if (data.asks === true && state.key !== null && !state.isRefused) channel.postMessage({ key: state.key });
    if (typeof data.key === "string" && (state.key === null || state.isRefused)) {
      sessionStorage.setItem(NAME, data.key);
      change({ key: data.key, isRefused: false });
    }
  });
  if (state.key === null) channel?.postMessage({ asks: true });
}

export function useCredentials(): State {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => state,
  );
}

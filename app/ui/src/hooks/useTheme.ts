/** Light or dark: the system's, or what was chosen in Settings; charts draw anew when it changes. */
import { useSyncExternalStore } from "react";

export type Choice = "system" | "light" | "dark";
export type Theme = "light" | "dark";

const NAME = "bensemble.theme";
const system = matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set<() => void>();

export function themeChoice(): Choice {
  const stored = localStorage.getItem(NAME);
  return stored === "light" || stored === "dark" ? stored : "system";
}

export function currentTheme(): Theme {
  const choice = themeChoice();
  return choice === "system" ? (system.matches ? "dark" : "light") : choice;
}

export function chooseTheme(choice: Choice): void {
  localStorage.setItem(NAME, choice);
  apply();
}

function apply(): void {
  document.documentElement.dataset.theme = currentTheme();
  for (const listener of listeners) listener();
}

export function startTheme(): void {
  apply();
  system.addEventListener("change", apply);
}

export function useTheme(): Theme {
  return useSyncExternalStore((listener) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, currentTheme);
}

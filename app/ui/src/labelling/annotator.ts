/** Whose labels these are: the name that Settings keeps, else the key's. */
export function annotatorName(keyName: string, storage: Storage = localStorage): string {
  const chosen = storage.getItem("bensemble.annotator")?.trim() ?? "";
  return chosen === "" ? keyName : chosen;
}

/** Single keys answer, unless that was switched off in Settings or on the spot. */
export function areShortcutsOn(storage: Storage = localStorage): boolean {
  return storage.getItem("bensemble.shortcuts") !== "off";
}

export function switchShortcuts(isOn: boolean, storage: Storage = localStorage): void {
  if (isOn) storage.removeItem("bensemble.shortcuts");
  else storage.setItem("bensemble.shortcuts", "off");
}

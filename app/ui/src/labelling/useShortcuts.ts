/** Keys that go down anywhere on the page, as commands. */
import { useEffect, useRef, useState } from "react";
import { areShortcutsOn, switchShortcuts } from "./annotator";
import { commandOf, isForElement, type Command } from "./keys";

/** `onCommand` says whether it took the key: then the browser's own meaning of it is off. */
export function useShortcuts(
  keys: readonly (string | null)[],
  onCommand: (command: Command, key: string) => boolean,
): { isOn: boolean; turn: (isOn: boolean) => void } {
  const [isOn, setOn] = useState(() => areShortcutsOn());
  const newest = useRef({ keys, onCommand });
  useEffect(() => {
    newest.current = { keys, onCommand };
  });

  useEffect(() => {
    if (!isOn) return;
    const press = (event: KeyboardEvent) => {
      if (event.defaultPrevented || document.querySelector("dialog[open]") !== null) return;
      if (isForElement(event.target, event)) return;
      const command = commandOf(event, newest.current.keys);
      if (command !== null && newest.current.onCommand(command, event.key)) event.preventDefault();
    };
    window.addEventListener("keydown", press);
    return () => window.removeEventListener("keydown", press);
  }, [isOn]);

  return {
    isOn,
    turn: (on) => {
      switchShortcuts(on);
      setOn(on);
    },
  };
}

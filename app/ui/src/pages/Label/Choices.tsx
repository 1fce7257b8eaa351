/** A button a class, with its key; of very many classes, some and a field that finds the others. */
import { useEffect, useRef, useState } from "react";
import { findClasses, needsFinding } from "../../labelling/keys";
import type { Saying } from "../../labelling/saying";
import "./Choices.css";

interface Props {
  classes: readonly string[];
  /** None of them where single keys are switched off. */
  keys: readonly (string | null)[];
  /** What was said before: outlined. */
  was: Saying | null;
  isFinding: boolean;
  onFinding: (isOn: boolean) => void;
  onChoose: (value: string) => void;
}

/** More buttons than have keys are no help. */
const MOST_BUTTONS = 36;

export function Choices({ classes, keys, was, isFinding, onFinding, onChoose }: Props) {
  const [text, setText] = useState("");
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (isFinding) input.current?.focus();
  }, [isFinding]);

  const isLong = needsFinding(classes);
  const found = text.trim() === "" ? null : findClasses(classes, text);
  const shown = found ?? classes.slice(0, MOST_BUTTONS).map((_, i) => i);

  function choose(index: number | undefined): void {
    const name = index === undefined ? undefined : classes[index];
    if (name === undefined) return;
    setText("");
    onFinding(false);
    input.current?.blur();
    onChoose(name);
  }

  return (
    <>
      {isLong && (
        <div className="finder">
          <label htmlFor="find-class">
            Find one of {classes.length.toLocaleString("en")} classes <kbd>/</kbd>
          </label>
          <input
            id="find-class"
            ref={input}
            type="search"
            autoComplete="off"
            value={text}
            aria-describedby="found-classes"
            onChange={(event) => setText(event.target.value)}
            onFocus={() => onFinding(true)}
            onBlur={() => onFinding(false)}
            onKeyDown={(event) => {
              if (event.nativeEvent.isComposing) return;
              if (event.key === "Enter") choose(found?.[0]);
              else if (event.key === "Escape") event.currentTarget.blur();
              else return;
              event.preventDefault();
            }}
          />
          <p id="found-classes" className="quiet" role="status">
            {found === null
              ? "Type a part of its name; Enter takes the first that is found."
              : found.length === 0
                ? "No class has that in its name."
                : `Enter: ${classes[found[0] ?? 0]}`}
          </p>
        </div>
      )}
      <div className="class-choices" role="group" aria-label="Classes">
        {shown.map((index) => {
          const name = classes[index] ?? "";
          const key = keys[index] ?? null;
          const wasSaid = was?.kind === "label" && was.value === name;
          return (
            <button
              key={name}
              type="button"
              className={wasSaid ? "class-choice was" : "class-choice"}
              aria-keyshortcuts={key ?? undefined}
              onClick={(event) => {
                // A press by the mouse leaves the keys to labelling; who tabs stays where they are.
                if (event.detail > 0) event.currentTarget.blur();
                choose(index);
              }}
            >
              <span dir="auto">
                {name}
                {wasSaid && <span className="quiet"> said before</span>}
              </span>
              {key !== null && <kbd aria-hidden="true">{key}</kbd>}
            </button>
          );
        })}
      </div>
      {was?.kind === "skip" && <p className="quiet">Skipped before.</p>}
    </>
  );
}

/** Numbers with their unit: one field an output, Enter confirms. What was typed stays until it is taken. */
import { useEffect, useRef, useState, type KeyboardEvent } from "react";
import { Button } from "../../components/Button";
import "../../components/Field.css";
import { commandOf, type Command } from "../../labelling/keys";
import { readNumber } from "../../labelling/numbers";
import type { Saying, Value } from "../../labelling/saying";

interface Props {
  nOutputs: number;
  unit: string | null;
  /** What was said before: there to be changed. */
  was: Saying | null;
  onConfirm: (value: Value) => void;
  onCommand: (command: Command) => boolean;
}

export function NumberEntry({ nOutputs, unit, was, onConfirm, onCommand }: Props) {
  const [texts, setTexts] = useState(() => textsOf(was, nOutputs));
  const [errors, setErrors] = useState<string[]>([]);
  const fields = useRef<(HTMLInputElement | null)[]>([]);
  useEffect(() => {
    fields.current[0]?.focus();
    fields.current[0]?.select();
  }, []);

  const hasError = (i: number) => (errors[i] ?? "") !== "";

  function confirm(): void {
    const read = texts.map(readNumber);
    const found = read.map((result) => (typeof result === "string" ? result : ""));
    setErrors(found);
    const wrong = found.findIndex((error) => error !== "");
    if (wrong >= 0) {
      fields.current[wrong]?.focus();
      return;
    }
    const values = read as number[];
    onConfirm(nOutputs === 1 ? (values[0] ?? 0) : values);
  }

  function press(event: KeyboardEvent, i: number): void {
    if (event.nativeEvent.isComposing) return;
    if (event.key === "Enter") {
      event.preventDefault();
      // From field to field; the last one confirms.
      if (i < nOutputs - 1 && texts[i + 1] === "") fields.current[i + 1]?.focus();
      else confirm();
      return;
    }
    // A number has no spaces in it, and an empty field has nothing to erase or to go through.
    const command = commandOf(event.nativeEvent, []);
    const isEmpty = texts.every((text) => text === "");
    const isFree = command?.kind === "skip" || command?.kind === "help" || command?.kind === "leave";
    const isOfEmpty = command?.kind === "undo" || command?.kind === "back" || command?.kind === "forward";
    if (command !== null && (isFree || (isEmpty && isOfEmpty)) && onCommand(command)) event.preventDefault();
  }

  return (
    <form
      className="number-entry"
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        confirm();
      }}
    >
      {texts.map((text, i) => (
        <div className="field" key={i}>
          <label htmlFor={`output-${i}`}>
            {nOutputs === 1 ? "Value" : `Output ${i + 1}`}
            {unit !== null && <span className="quiet"> in {unit}</span>}
          </label>
          <input
            id={`output-${i}`}
            ref={(element) => {
              fields.current[i] = element;
            }}
            type="text"
            inputMode="decimal"
            autoComplete="off"
            enterKeyHint={i < nOutputs - 1 ? "next" : "done"}
            value={text}
            aria-invalid={hasError(i) || undefined}
            aria-describedby={hasError(i) ? `output-${i}-error` : undefined}
            onChange={({ target }) =>
              setTexts((before) => before.map((old, j) => (j === i ? target.value : old)))
            }
            onKeyDown={(event) => press(event, i)}
          />
          {hasError(i) && (
            <p id={`output-${i}-error`} className="bad" role="alert">
              {errors[i]}
            </p>
          )}
        </div>
      ))}
      <Button kind="primary" type="submit">
        Confirm <kbd aria-hidden="true">Enter</kbd>
      </Button>
    </form>
  );
}

function textsOf(was: Saying | null, n: number): string[] {
  const values = was?.kind === "label" ? [was.value].flat() : [];
  return Array.from({ length: n }, (_, i) => (values[i] === undefined ? "" : String(values[i])));
}

/** A spec as text, with its lines numbered; mistakes are marked where they are, and said in words beside it. */
import { useRef } from "react";
import type { Reading } from "../hooks/useModel";
import { Button } from "./Button";
import { Field } from "./Field";
import { Failure } from "./Notice";
import "./SpecEditor.css";

interface Props {
  text: string;
  reading: Reading;
  onChange: (text: string) => void;
}

export function SpecEditor({ text, reading, onChange }: Props) {
  const area = useRef<HTMLTextAreaElement>(null);
  const lines = text.split("\n").length;
  const marked = new Set(reading.mistakes.map(({ place }) => place?.line));

  function goTo(offset: number): void {
    area.current?.focus();
    area.current?.setSelectionRange(offset, offset + 1);
  }

  return (
    <div className="stack">
      <Field label="The experiment as JSON">
        {(ties) => (
          <div className="spec-editor">
            <div className="gutter" aria-hidden="true">
              {Array.from({ length: lines }, (_, i) => (
                <div key={i} className={marked.has(i + 1) ? "wrong" : undefined}>
                  {marked.has(i + 1) ? `✕ ${i + 1}` : i + 1}
                </div>
              ))}
            </div>
            <textarea
              {...ties}
              ref={area}
              wrap="off"
              rows={lines + 1}
              spellCheck={false}
              autoCapitalize="off"
              autoCorrect="off"
              value={text}
              aria-invalid={reading.mistakes.length > 0 ? true : undefined}
              onChange={(event) => onChange(event.target.value)}
            />
          </div>
        )}
      </Field>
      <div role="status" className="mistakes">
        {reading.mistakes.map(({ message, place }) => (
          <p key={`${message} ${place?.offset}`} className="bad">
            {place !== null && (
              <Button kind="link" onClick={() => goTo(place.offset)}>
                Line {place.line}, column {place.column}
              </Button>
            )}{" "}
            {message}
          </p>
        ))}
        {reading.error !== undefined && <Failure error={reading.error} />}
      </div>
    </div>
  );
}

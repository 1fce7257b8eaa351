/** Whose labels these are, and whether single keys answer: kept in this browser. */
import { useState } from "react";
import { TextField } from "../../components/Field";
import { useMe } from "../../hooks/useMe";

const ANNOTATOR = "bensemble.annotator";
const SHORTCUTS = "bensemble.shortcuts";

export function LabellingChoices() {
  const me = useMe();
  const [annotator, setAnnotator] = useState(() => localStorage.getItem(ANNOTATOR) ?? "");
  const [isOn, setOn] = useState(() => localStorage.getItem(SHORTCUTS) !== "off");

  function name(text: string): void {
    setAnnotator(text);
    if (text.trim() === "") localStorage.removeItem(ANNOTATOR);
    else localStorage.setItem(ANNOTATOR, text.trim());
  }

  function press(on: boolean): void {
    setOn(on);
    if (on) localStorage.removeItem(SHORTCUTS);
    else localStorage.setItem(SHORTCUTS, "off");
  }

  return (
    <>
      <div className="narrow">
        <TextField
          label="Annotator"
          value={annotator}
          placeholder={me.name}
          maxLength={200}
          autoComplete="off"
          onChange={(event) => name(event.target.value)}
          help={`Labels carry this name, and two names are never given the same items. Left empty: “${me.name}”, the name of the key.`}
        />
      </div>
      <label className="choice">
        <input type="checkbox" checked={isOn} onChange={(event) => press(event.target.checked)} />
        Answer with single keys while labelling
      </label>
      <p className="quiet">
        Switch it off where speech input or a screen reader sends keys of its own. Buttons work either way.
      </p>
    </>
  );
}

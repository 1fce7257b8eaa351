/** Experiments: those there are, and models of the catalogue to begin another with. */
import { useRef, useState } from "react";
import { Button } from "../components/Button";
import { readDraft, writeDraft } from "../experiments/draft";
import { EXAMPLE, specText } from "../experiments/specText";
import { Catalogue } from "./Experiments/Catalogue";
import { Editor } from "./Experiments/Editor";
import { ExperimentList } from "./Experiments/ExperimentList";
import "./Experiments.css";

export default function Experiments() {
  const [draft, setDraft] = useState(readDraft);
  const top = useRef<HTMLDivElement>(null);

  function change(text: string | null): void {
    writeDraft(text);
    setDraft(text);
  }

  function start(spec: unknown): void {
    change(specText(spec));
    top.current?.scrollIntoView();
  }

  return (
    <div className="stack experiments" ref={top}>
      <div className="between">
        <div className="stack tight">
          <h1>Experiments</h1>
          <p className="quiet">
            What should be measured next? State what you want to know and what you can run; after every
            outcome you are told which trial teaches most, and when to stop.
          </p>
        </div>
        {draft === null && <Button onClick={() => start(EXAMPLE)}>Write your own</Button>}
      </div>
      {draft !== null && <Editor text={draft} onChange={change} onDiscard={() => change(null)} />}
      <ExperimentList />
      <hr />
      <Catalogue onStart={start} />
    </div>
  );
}

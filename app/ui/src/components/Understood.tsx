/** What was understood of a spec, in words: what is asked for, what can be run, what comes out, and how it is computed. */
import type { ReactNode } from "react";
import type { Model } from "../api/types";
import {
  argumentWords,
  beliefWords,
  familyWords,
  methodWords,
  priorWords,
  stopWords,
  variableWords,
} from "../experiments/words";
import { count } from "../formats";
import "./Understood.css";

interface Props {
  spec: Record<string, unknown>;
  /** Left out, only what the spec itself says is told. */
  model: Model | null;
}

export function Understood({ spec, model }: Props) {
  const stated = (name: string) => (spec[name] ?? {}) as Record<string, unknown>;
  const names = model?.parameters ?? Object.keys(stated("parameters"));
  const targets = model?.targets ?? names;
  const rules = stopWords(spec.stop);
  return (
    <dl className="understood">
      <Part title="What is asked">
        {names.map((name) => (
          <li key={name}>
            <strong>{name}</strong>
            {stated("parameters")[name] !== undefined && `: ${priorWords(stated("parameters")[name])}`}
            {!targets.includes(name) && <span className="quiet"> · a nuisance, not asked for</span>}
          </li>
        ))}
      </Part>
      {model !== null && (
        <Part title="What can be run">
          {model.designs.map((variable) => (
            <li key={variable.name}>
              <strong>{variable.name}</strong>: {variableWords(variable)}
            </li>
          ))}
          {model.n_designs !== null && model.designs.length > 1 && (
            <li className="quiet">{count(model.n_designs)} designs in all</li>
          )}
        </Part>
      )}
      {model !== null && (
        <Part title="What comes out">
          {model.outcomes.map(({ name, family, labels }) => (
            <li key={name}>
              <strong>{name}</strong>: {labels.length > 0 ? labels.join(", ") : familyWords(family)}{" "}
              <code className="quiet">{argumentWords(stated("outcome")[name])}</code>
            </li>
          ))}
        </Part>
      )}
      {rules.length > 0 && (
        <Part title="When it ends">
          {rules.map((rule) => (
            <li key={rule}>{rule}</li>
          ))}
        </Part>
      )}
      {model !== null && (
        <Part title="How it is computed">
          <li>
            what is known {beliefWords(model.belief)}, what a design would teach{" "}
            {methodWords(model.eig_method)}
          </li>
          <li>
            {model.is_job
              ? `a proposal is a job for a worker: ${count(model.evaluations)} evaluations`
              : `a proposal at once: ${count(model.evaluations)} evaluations`}
          </li>
        </Part>
      )}
    </dl>
  );
}

function Part({ title, children }: { title: string; children: ReactNode }) {
  return (
    <div>
      <dt>{title}</dt>
      <dd>
        <ul>{children}</ul>
      </dd>
    </div>
  );
}

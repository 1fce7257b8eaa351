/** Something else than what is proposed: a design of one's own, or another proposal with some values fixed. */
import { useState } from "react";
import type { DesignVariable, Proposal } from "../../api/types";
import { Button } from "../../components/Button";
import { SelectField, TextField } from "../../components/Field";
import type { Value } from "../../experiments/entry";
import { readDesign } from "../../experiments/design";
import { assignments, variableWords } from "../../experiments/words";
import type { Wish } from "../../hooks/useTrial";

interface Props {
  designs: readonly DesignVariable[];
  proposal: Proposal;
  onOwn: (design: Record<string, Value>) => void;
  onWish: (wish: Wish) => void;
}

export function OtherDesign({ designs, proposal, onOwn, onWish }: Props) {
  const [typed, setTyped] = useState<Record<string, string>>({});
  const [isTried, setTried] = useState(false);
  const { values, errors } = readDesign(designs, typed);
  const isWhole = designs.every(({ name }) => name in values);
  const isSome = Object.keys(values).length > 0;
  const isWrong = Object.keys(errors).length > 0;
  const set = (name: string, text: string) => setTyped((before) => ({ ...before, [name]: text }));

  function send(act: () => void, isReady: boolean): void {
    setTried(true);
    if (isReady && !isWrong) act();
  }

  return (
    <div className="other-design">
      <div className="fields">
        {designs.map((variable) => {
          const { name, kind, values: listed } = variable;
          const shared = {
            label: name,
            help: variableWords(variable),
            error: isTried ? errors[name] : undefined,
          };
          return kind === "values" ? (
            <SelectField
              key={name}
              {...shared}
              value={typed[name] ?? ""}
              onChange={(event) => set(name, event.target.value)}
            >
              <option value="">any</option>
              {(listed ?? []).map((value) => (
                <option key={String(value)} value={String(value)}>
                  {String(value)}
                </option>
              ))}
            </SelectField>
          ) : (
            <TextField
              key={name}
              {...shared}
              inputMode="decimal"
              placeholder="any"
              value={typed[name] ?? ""}
              onChange={(event) => set(name, event.target.value)}
            />
          );
        })}
      </div>
      <div className="row">
        <Button
          kind="primary"
          forbidden={isWhole ? undefined : "Say every value first."}
          onClick={() => send(() => onOwn(values), isWhole)}
        >
          Run exactly this
        </Button>
        {designs.length > 1 && (
          <Button
            forbidden={isSome ? undefined : "Say some value first."}
            onClick={() => send(() => onWish({ fixed: values }), isSome)}
          >
            Propose one with these
          </Button>
        )}
        <Button onClick={() => onWish({ excluded: [proposal.design as Record<string, Value>] })}>
          Anything but {assignments(proposal.design)}
        </Button>
      </div>
    </div>
  );
}

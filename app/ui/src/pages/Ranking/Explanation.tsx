/** What the members of the ensemble said of a row. */
import { DataTable } from "../../components/DataTable";
import { number, share } from "../../formats";

interface Props {
  explanation: Record<string, unknown> | null;
  unit: string | null;
}

export interface ClassRow {
  name: string;
  votes: number | null;
  probability: number | null;
}

const numbersIn = (value: unknown): Record<string, number> =>
  typeof value === "object" && value !== null
    ? Object.fromEntries(
        Object.entries(value).filter((entry): entry is [string, number] => typeof entry[1] === "number"),
      )
    : {};

/** By class, the likeliest first. */
export function classRows(explanation: Record<string, unknown>): ClassRow[] {
  const [votes, probabilities] = [numbersIn(explanation.votes), numbersIn(explanation.probabilities)];
  const names = new Set([...Object.keys(probabilities), ...Object.keys(votes)]);
  return [...names]
    .map((name) => ({ name, votes: votes[name] ?? null, probability: probabilities[name] ?? null }))
    .sort((a, b) => (b.probability ?? 0) - (a.probability ?? 0));
}

export function Explanation({ explanation, unit }: Props) {
  if (explanation === null)
    return <p className="quiet">There was no version yet, so there is nothing to explain it by.</p>;
  const rows = classRows(explanation);
  const members = Array.isArray(explanation.members)
    ? explanation.members.filter((each) => typeof each === "number")
    : [];
  const isNumbers = rows.length === 0;
  return (
    <>
      {!isNumbers && (
        <DataTable
          caption="Votes and probabilities by class"
          rows={rows}
          keyOf={({ name }) => name}
          columns={[
            { title: "class", cell: ({ name }) => name },
            {
              title: "votes",
              cell: ({ votes }) => `${Math.round(100 * (votes ?? 0))} %`,
              isNumber: true,
            },
            { title: "probability", cell: ({ probability }) => share(probability), isNumber: true },
          ]}
        />
      )}
      {members.length > 0 && (
        <p className="small">
          The members say{" "}
          <span className="figures">
            {[...members]
              .sort((a, b) => a - b)
              .map((value) => number(value, 4))
              .join(" ")}
          </span>
          {unit !== null && ` ${unit}`}
        </p>
      )}
      <p className="quiet small">
        Uncertainty, {isNumbers ? "as standard deviations" : "in nats"}: {splitWords(explanation)}
      </p>
    </>
  );
}

function splitWords({ total, aleatoric, epistemic }: Record<string, unknown>): string {
  const text = (value: unknown) => (typeof value === "number" ? number(value) : "–");
  return `${text(total)} in all, ${text(aleatoric)} noise of the label, ${text(epistemic)} because the members disagree.`;
}

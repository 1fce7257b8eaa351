/** Go on, look again at some labels, or stop: the service's advice, its reasons, and the labels in doubt. */
import { Link } from "wouter";
import type { Advice } from "../../api/types";
import { Loaded } from "../../components/Loaded";
import { number } from "../../formats";
import type { Resource } from "../../hooks/useResource";

type Doubt = Advice["doubts"]["items"][number];
const FEW = 8;

export function AdvicePart({ projectId, advice }: { projectId: string; advice: Resource<Advice> }) {
  return (
    <section aria-labelledby="advice">
      <h2 id="advice">What next?</h2>
      <Loaded of={advice} lines={2}>
        {({ sentence, because, doubts, disagreements }) => (
          <div className="stack">
            <p>{sentence}</p>
            {because.length > 0 && (
              <details>
                <summary>Why</summary>
                <ul>
                  {[...new Set(because)].map((reason) => (
                    <li key={reason} className="small">
                      {reason}
                    </li>
                  ))}
                </ul>
              </details>
            )}
            {doubts.items.length > 0 && (
              <details>
                <summary>
                  Labels in doubt: {doubts.n}, {doubts.n_strong} strongly
                </summary>
                <ul className="list">
                  {doubts.items.slice(0, FEW).map((item) => (
                    <li key={`${item.pool_id} ${item.row}`} className="small">
                      <Link href={`/p/${projectId}/pools/${item.pool_id}?row=${item.row}`}>{item.key}</Link>:{" "}
                      {doubtWords(item)}
                    </li>
                  ))}
                </ul>
              </details>
            )}
            {disagreements.items.length > 0 && (
              <details>
                <summary>Annotators differ on {disagreements.n}</summary>
                <ul className="list">
                  {disagreements.items.slice(0, FEW).map((item) => (
                    <li key={`${item.pool_id} ${item.row}`} className="small">
                      <Link href={`/p/${projectId}/pools/${item.pool_id}?row=${item.row}`}>{item.key}</Link>:{" "}
                      {Object.entries(item.said)
                        .map(([who, what]) => `${who} ${valueText(what)}`)
                        .join(", ")}
                    </li>
                  ))}
                </ul>
              </details>
            )}
          </div>
        )}
      </Loaded>
    </section>
  );
}

function doubtWords({ label, predicted, probability, distance, annotators }: Doubt): string {
  const by = annotators.length > 0 ? ` by ${annotators.join(", ")}` : "";
  const said = `labelled ${valueText(label)}${by}, predicted ${valueText(predicted)}`;
  if (probability !== null) return `${said} (${Math.round(100 * probability)} %)`;
  return distance === null ? said : `${said} (${number(distance, 2)} sd away)`;
}

function valueText(value: unknown): string {
  if (typeof value === "number") return number(value, 4);
  return typeof value === "string" ? value : JSON.stringify(value);
}

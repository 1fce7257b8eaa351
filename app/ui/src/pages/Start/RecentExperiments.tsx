import { Link } from "wouter";
import { api } from "../../api/client";
import { Loaded } from "../../components/Loaded";
import { ago, many } from "../../formats";
import { useResource } from "../../hooks/useResource";

export function RecentExperiments() {
  const experiments = useResource("experiments", (signal) =>
    api.get("/v1/experiments", { query: { limit: 5, order: "desc" }, signal }),
  );
  return (
    <Loaded of={experiments}>
      {({ items, next_cursor }) =>
        items.length === 0 ? (
          <p className="quiet">
            None yet. An experiment asks people or instruments: it says which trial teaches most, and when to
            stop.
          </p>
        ) : (
          <>
            <ul>
              {items.map((experiment) => (
                <li key={experiment.id} className="experiment-row">
                  <Link href={`/e/${experiment.id}`}>{experiment.name}</Link>
                  <span className="quiet small">
                    {many(experiment.n_sessions, "session")} · {ago(experiment.created_at)}
                  </span>
                </li>
              ))}
            </ul>
            {next_cursor !== null && (
              <p>
                <Link href="/experiments">All experiments</Link>
              </p>
            )}
          </>
        )
      }
    </Loaded>
  );
}

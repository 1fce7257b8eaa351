/** The experiments there are, the newest first. */
import { Link } from "wouter";
import { allItems, api } from "../../api/client";
import { DataTable } from "../../components/DataTable";
import { Loaded } from "../../components/Loaded";
import { ago, count } from "../../formats";
import { useResource } from "../../hooks/useResource";

export function ExperimentList() {
  const experiments = useResource("/v1/experiments", (signal) =>
    allItems((cursor) =>
      api.get("/v1/experiments", { query: { cursor, limit: 200, order: "desc" }, signal }),
    ),
  );
  return (
    <Loaded of={experiments}>
      {(items) =>
        items.length === 0 ? (
          <p className="quiet">No experiment yet. Start from a model below, or write your own.</p>
        ) : (
          <DataTable
            caption="Experiments"
            columns={[
              { title: "experiment", cell: ({ id, name }) => <Link href={`/e/${id}`}>{name}</Link> },
              { title: "sessions", isNumber: true, cell: ({ n_sessions }) => count(n_sessions) },
              { title: "created", cell: ({ created_at }) => ago(created_at) },
            ]}
            rows={items}
            keyOf={({ id }) => id}
          />
        )
      }
    </Loaded>
  );
}

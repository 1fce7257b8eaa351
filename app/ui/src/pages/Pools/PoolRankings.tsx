/** What was ranked in a pool, newest first. */
import { useState } from "react";
import { Link } from "wouter";
import { api } from "../../api/client";
import type { Pool, Project } from "../../api/types";
import { Button } from "../../components/Button";
import { DataTable } from "../../components/DataTable";
import { Loaded } from "../../components/Loaded";
import { ago, count } from "../../formats";
import { useForbidden } from "../../hooks/useMe";
import { isEndNews, useReloadOn } from "../../hooks/useReloadOn";
import { useResource } from "../../hooks/useResource";
import { RankDialog } from "../Project/RankAction";

export function PoolRankings({ project, pool }: { project: Project; pool: Pool }) {
  const [isAsked, setAsked] = useState(false);
  const mayNot = useForbidden("write");
  const rankings = useResource(`rankings ${pool.id}`, async (signal) => {
    const query = { order: "desc", limit: 20 } as const;
    return (await api.get("/v1/pools/{pool_id}/rankings", { path: { pool_id: pool.id }, query, signal }))
      .items;
  });
  useReloadOn(rankings.reload, (news) => isEndNews(news, project.id, "rank_pool"));
  return (
    <section aria-labelledby="rankings">
      <div className="between">
        <h2 id="rankings">Rankings</h2>
        <Button
          kind="link"
          forbidden={pool.purpose === "candidates" ? mayNot : "Only pools of candidates are ranked."}
          onClick={() => setAsked(true)}
        >
          Rank it
        </Button>
      </div>
      <Loaded of={rankings}>
        {(known) =>
          known.length === 0 ? (
            <p className="quiet">None yet. A ranking says which rows would teach most, and why.</p>
          ) : (
            <DataTable
              caption="Rankings, newest first"
              rows={known}
              keyOf={({ id }) => id}
              columns={[
                {
                  title: "made",
                  cell: ({ id, created_at }) => (
                    <Link href={`/p/${project.id}/rankings/${id}`}>{ago(created_at)}</Link>
                  ),
                },
                { title: "score", cell: ({ acquisition }) => String(acquisition.name) },
                { title: "selection", cell: ({ selection }) => String(selection.name) },
                { title: "state", cell: ({ status }) => (status === "succeeded" ? "" : status) },
                { title: "chosen", cell: ({ k }) => count(k), isNumber: true },
              ]}
            />
          )
        }
      </Loaded>
      {isAsked && <RankDialog project={project} pools={[pool]} onClose={() => setAsked(false)} />}
    </section>
  );
}

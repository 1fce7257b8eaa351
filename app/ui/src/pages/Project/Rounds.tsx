/** The rounds: which are open, how far each is, and the ranking behind it. */
import { useState } from "react";
import { Link } from "wouter";
import { api } from "../../api/client";
import type { Round } from "../../api/types";
import { Button } from "../../components/Button";
import { DataTable } from "../../components/DataTable";
import { Loaded } from "../../components/Loaded";
import { Failure } from "../../components/Notice";
import { ago, count } from "../../formats";
import { useAction } from "../../hooks/useAction";
import { useForbidden } from "../../hooks/useMe";
import type { Resource } from "../../hooks/useResource";

const FEW = 6;

export function Rounds({ projectId, rounds }: { projectId: string; rounds: Resource<Round[]> }) {
  const [isLong, setLong] = useState(false);
  const forbidden = useForbidden("write");
  const close = useAction(async (roundId: string) => {
    await api.post("/v1/rounds/{round_id}/close", { path: { round_id: roundId } });
    rounds.reload();
  });
  return (
    <section aria-labelledby="rounds">
      <h2 id="rounds">Rounds</h2>
      <Loaded of={rounds}>
        {(known) =>
          known.length === 0 ? (
            <p className="quiet">
              None yet. A round is some items chosen to be labelled; when all are, a version is trained.
            </p>
          ) : (
            <>
              <DataTable
                caption="Rounds, newest first"
                rows={isLong ? known : known.slice(0, FEW)}
                keyOf={({ id }) => id}
                columns={[
                  { title: "round", cell: (round) => <RoundName projectId={projectId} round={round} /> },
                  {
                    title: "done",
                    cell: ({ n_done, n_items }) => `${count(n_done)} of ${count(n_items)}`,
                    isNumber: true,
                  },
                  { title: "state", cell: (round) => <State round={round} /> },
                  {
                    title: "ranking",
                    cell: ({ ranking_id }) => (
                      <Link href={`/p/${projectId}/rankings/${ranking_id}`}>why these</Link>
                    ),
                  },
                  {
                    title: "end",
                    cell: ({ id, number, status }) =>
                      status === "open" && (
                        <Button
                          kind="link"
                          forbidden={forbidden}
                          isBusy={close.isBusy}
                          aria-label={`Close round ${number}`}
                          onClick={() => void close.run(id)}
                        >
                          close
                        </Button>
                      ),
                  },
                ]}
              />
              {known.length > FEW && !isLong && (
                <Button kind="link" onClick={() => setLong(true)}>
                  Show all {known.length}
                </Button>
              )}
            </>
          )
        }
      </Loaded>
      {close.error !== undefined && <Failure error={close.error} />}
    </section>
  );
}

function RoundName({ projectId, round: { id, number, status } }: { projectId: string; round: Round }) {
  if (status !== "open") return <>{number}</>;
  return <Link href={`/p/${projectId}/label/${id}`}>{number}, label it</Link>;
}

function State({ round: { status, error, created_at, ended_at } }: { round: Round }) {
  if (error !== null) return <span className="bad">{String(error.detail ?? error.title ?? "failed")}</span>;
  if (status === "ranking") return <>choosing items</>;
  return (
    <>
      {status} <span className="quiet">{ago(ended_at ?? created_at)}</span>
    </>
  );
}

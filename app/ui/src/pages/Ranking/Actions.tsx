/** What can be done with a ranking: label its rows, take them along as a file, make it again. */
import { useLocation } from "wouter";
import { api, send } from "../../api/client";
import type { Project, Ranking } from "../../api/types";
import { Button, ButtonLink } from "../../components/Button";
import { CopyAsCurl } from "../../components/CopyAsCurl";
import { Failure } from "../../components/Notice";
import { useAction } from "../../hooks/useAction";
import { useForbidden } from "../../hooks/useMe";

export function Actions({ project, ranking }: { project: Project; ranking: Ranking }) {
  const [, go] = useLocation();
  const forbidden = useForbidden("write");
  const download = useAction(async () => {
    const answer = await send(`/v1/rankings/${ranking.id}?format=csv&explain=true`);
    save(await answer.blob(), `ranking-${ranking.id}.csv`);
  });
  const replay = useAction(async () => {
    const made = await api.post("/v1/rankings/{ranking_id}/replay", { path: { ranking_id: ranking.id } });
    go(`/p/${project.id}/rankings/${made.ranking.id}`);
  });
  const body = roundBody(ranking);
  const open = useAction(async () => {
    const made = await api.post("/v1/projects/{project_id}/rounds", {
      path: { project_id: project.id },
      body: body as never,
      headers: { Prefer: "wait=10" },
    });
    go(`/p/${project.id}/label/${made.round.id}`);
  });
  const error = download.error ?? replay.error ?? open.error;
  return (
    <div className="stack">
      <div className="row">
        {ranking.round_id !== null ? (
          <ButtonLink kind="primary" href={`/p/${project.id}/label/${ranking.round_id}`}>
            To its round
          </ButtonLink>
        ) : (
          <Button
            kind="primary"
            forbidden={
              body === null
                ? "It needs rows to predict well, which a round can only take from a pool."
                : forbidden
            }
            isBusy={open.isBusy}
            onClick={() => void open.run()}
            title="The same method and seed, on the labels of now: without labels since, the same rows."
          >
            {open.isBusy ? "Choosing items…" : "Open a round with these"}
          </Button>
        )}
        <Button isBusy={download.isBusy} onClick={() => void download.run()}>
          CSV
        </Button>
        <Button
          forbidden={forbidden}
          isBusy={replay.isBusy}
          onClick={() => void replay.run()}
          title="Makes the same again, from what is stored with it."
        >
          Make again
        </Button>
        {body !== null && (
          <CopyAsCurl method="POST" address={`/v1/projects/${project.id}/rounds`} body={body} />
        )}
      </div>
      {error !== undefined && <Failure error={error} />}
    </div>
  );
}

/** A round that chooses as this ranking did; null where it was for rows that were sent along. */
export function roundBody(
  ranking: Pick<Ranking, "pool_id" | "k" | "seed" | "acquisition" | "selection" | "target">,
): Record<string, unknown> | null {
  const { pool_id, k, seed, acquisition, selection, target } = ranking;
  if (target !== null && typeof target.pool_id !== "string") return null;
  return {
    pool_id,
    k,
    seed,
    acquisition,
    selection,
    ...(target === null ? {} : { target: { pool_id: target.pool_id } }),
  };
}

function save(blob: Blob, name: string): void {
  const address = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  URL.revokeObjectURL(address);
}

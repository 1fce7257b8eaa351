/** Would ranking have saved labels on this data, and which way? Played on labels that there are. */
import { useState } from "react";
import { api } from "../../api/client";
import type { Backtest, Pool, Project } from "../../api/types";
import { Button } from "../../components/Button";
import { CopyAsCurl } from "../../components/CopyAsCurl";
import { DataTable } from "../../components/DataTable";
import { SelectField } from "../../components/Field";
import { Loaded } from "../../components/Loaded";
import { Failure, Notice } from "../../components/Notice";
import { Said } from "../../components/Said";
import { ago, count, number } from "../../formats";
import { useAction } from "../../hooks/useAction";
import { useBacktests } from "../../hooks/useBacktests";
import { useForbidden } from "../../hooks/useMe";
import { isActive } from "../../jobs";
import { metricOf, metricText } from "../../metrics";

interface Props {
  project: Project;
  pools: Pool[] | undefined;
  onAdopted: () => void;
}

export function Backtests({ project, pools, onAdopted }: Props) {
  const backtests = useBacktests(project.id);
  const labelled = (pools ?? []).filter(({ n_labelled }) => n_labelled > 0);
  const [chosen, setChosen] = useState("");
  const poolId =
    chosen !== "" ? chosen : ([...labelled].sort((a, b) => b.n_labelled - a.n_labelled)[0]?.id ?? "");
  const forbidden = useForbidden("write");
  const start = useAction(async () => {
    await api.post("/v1/projects/{project_id}/backtests", {
      path: { project_id: project.id },
      body: { pool_id: poolId },
    });
    backtests.reload();
  });
  return (
    <details className="folded">
      <summary>Would it have saved labels? Backtests</summary>
      <div className="stack">
        <p className="quiet">
          Plays labelling again on labels that are already there: ranked rows against random ones, several
          times over. It takes minutes.
        </p>
        <div className="between">
          <SelectField label="Pool" value={poolId} onChange={(event) => setChosen(event.target.value)}>
            {labelled.map((pool) => (
              <option key={pool.id} value={pool.id}>
                {pool.name}, {count(pool.n_labelled)} labelled
              </option>
            ))}
          </SelectField>
          <div className="row">
            <Button
              forbidden={poolId === "" ? "There are no labels to play on." : forbidden}
              isBusy={start.isBusy}
              onClick={() => void start.run()}
            >
              Start a backtest
            </Button>
            <CopyAsCurl
              method="POST"
              address={`/v1/projects/${project.id}/backtests`}
              body={{ pool_id: poolId }}
            />
          </div>
        </div>
        {start.error !== undefined && <Failure error={start.error} />}
        <Loaded of={backtests}>
          {(known) =>
            known.length === 0 ? (
              <p className="quiet">None yet.</p>
            ) : (
              <ul className="list">
                {known.map((backtest) => (
                  <li key={backtest.id}>
                    <Played project={project} backtest={backtest} onAdopted={onAdopted} />
                  </li>
                ))}
              </ul>
            )
          }
        </Loaded>
      </div>
    </details>
  );
}

function Played({
  project,
  backtest,
  onAdopted,
}: {
  project: Project;
  backtest: Backtest;
  onAdopted: () => void;
}) {
  const metric = metricOf(project.task);
  const { recommendation, curves, notes, error } = backtest;
  const forbidden = useForbidden("write");
  const [isAdopted, setAdopted] = useState(false);
  const adopt = useAction(async () => {
    await api.patch("/v1/projects/{project_id}", {
      path: { project_id: project.id },
      body: recommendation?.body ?? {},
    });
    setAdopted(true);
    onAdopted();
  });
  return (
    <div className="stack">
      <p>
        {count(backtest.rounds)} rounds of {count(backtest.k)}, {count(backtest.seeds)} times{" "}
        <span className="quiet">· {ago(backtest.created_at)}</span>
        {isActive(backtest) && <span className="quiet"> · under way, see Now</span>}
        {backtest.status === "cancelled" && <span className="quiet"> · cancelled</span>}
      </p>
      {error !== null && <p className="bad">{String(error.detail ?? error.title ?? "It failed.")}</p>}
      {recommendation !== null && (
        <Notice kind="good">
          <p>
            <strong>{recommendation.strategy}</strong>: {recommendation.reason}
          </p>
          <div className="row">
            <Button forbidden={forbidden} isBusy={adopt.isBusy} onClick={() => void adopt.run()}>
              {isAdopted ? "Taken" : "Take it for this project"}
            </Button>
            <CopyAsCurl method="PATCH" address={`/v1/projects/${project.id}`} body={recommendation.body} />
          </div>
        </Notice>
      )}
      {adopt.error !== undefined && <Failure error={adopt.error} />}
      {curves !== null && (
        <DataTable
          caption={`What each strategy gave, ${metric} over all rounds`}
          rows={curves}
          keyOf={({ strategy }) => strategy}
          columns={[
            { title: "strategy", cell: ({ strategy }) => strategy },
            { title: `mean ${metric}`, cell: ({ area }) => metricText(metric, area.mean), isNumber: true },
            {
              title: "gain over random",
              cell: ({ gain }) => endsText(gain.mean, gain.low, gain.high, 2),
              isNumber: true,
            },
            {
              title: "labels saved",
              cell: ({ saved }) =>
                saved === null ? "–" : endsText(saved.labels.mean, saved.labels.low, saved.labels.high, 3),
              isNumber: true,
            },
          ]}
        />
      )}
      {notes.map((note) => (
        <p key={note} className="quiet small">
          <Said text={note} />
        </p>
      ))}
    </div>
  );
}

function endsText(mean: number | null, low: number | null, high: number | null, digits: number): string {
  if (mean === null) return "–";
  return low === null || high === null
    ? number(mean, digits)
    : `${number(mean, digits)} (${number(low, digits)} to ${number(high, digits)})`;
}

/** Ranks a pool without opening a round: to look at what would be asked for, and why. */
import { useState } from "react";
import { useLocation } from "wouter";
import { api, type Asked } from "../../api/client";
import type { Pool, Project } from "../../api/types";
import { Button } from "../../components/Button";
import { CopyAsCurl } from "../../components/CopyAsCurl";
import { Dialog } from "../../components/Dialog";
import { SelectField, TextField } from "../../components/Field";
import { MethodForm, NO_CHOICE, specOf } from "../../components/MethodForm";
import { Failure } from "../../components/Notice";
import { count } from "../../formats";
import { useAction } from "../../hooks/useAction";
import { useForbidden } from "../../hooks/useMe";
import { fittingMethods, useMethods } from "../../hooks/useMethods";
import { USUAL_K } from "./LabelAction";

/** Methods were made from the schemas that the service itself gave. */
type Wanted = Asked<"/v1/pools/{pool_id}/rankings", "post">["body"];

export function RankAction({ project, pools }: { project: Project; pools: Pool[] | undefined }) {
  const [isAsked, setAsked] = useState(false);
  const mayNot = useForbidden("write");
  const candidates = (pools ?? []).filter(
    ({ purpose, status }) => purpose === "candidates" && status === "ready",
  );
  const isEmpty = pools !== undefined && candidates.length === 0;
  return (
    <>
      <Button
        forbidden={isEmpty ? "There is nothing to rank: add a pool of candidates first." : mayNot}
        isBusy={pools === undefined}
        onClick={() => setAsked(true)}
      >
        Rank
      </Button>
      {isAsked && <RankDialog project={project} pools={candidates} onClose={() => setAsked(false)} />}
    </>
  );
}

interface Props {
  project: Project;
  pools: Pool[];
  onClose: () => void;
}

export function RankDialog({ project, pools, onClose }: Props) {
  const [, go] = useLocation();
  const methods = useMethods();
  const [poolId, setPoolId] = useState(pools[0]?.id ?? "");
  const [k, setK] = useState(String(USUAL_K));
  const [acquisition, setAcquisition] = useState(NO_CHOICE);
  const [selection, setSelection] = useState(NO_CHOICE);
  const [how, which] = [
    specOf(methods.data?.acquisitions, acquisition),
    specOf(methods.data?.selections, selection),
  ];
  const body = {
    k: Number(k),
    ...(how.spec === undefined ? {} : { acquisition: how.spec }),
    ...(which.spec === undefined ? {} : { selection: which.spec }),
  };
  const action = useAction(async () => {
    const made = await api.post("/v1/pools/{pool_id}/rankings", {
      path: { pool_id: poolId },
      body: body as Wanted,
    });
    go(`/p/${project.id}/rankings/${made.ranking.id}`);
  });
  return (
    <Dialog title="Which items would teach most?" onClose={onClose}>
      <SelectField label="Pool" value={poolId} onChange={(event) => setPoolId(event.target.value)}>
        {pools.map((pool) => (
          <option key={pool.id} value={pool.id}>
            {pool.name}, {count(pool.n_rows)} rows
          </option>
        ))}
      </SelectField>
      <TextField
        label="How many"
        inputMode="numeric"
        value={k}
        onChange={(event) => setK(event.target.value)}
      />
      <details>
        <summary>More: how they are scored and chosen</summary>
        {methods.data !== undefined && (
          <div className="stack">
            <MethodForm
              label="Score"
              methods={fittingMethods(methods.data.acquisitions, project.task)}
              choice={acquisition}
              onChange={setAcquisition}
              usual="How a row is scored: what goes with the task, or the project's own choice."
              problem={action.error}
              pointer="/acquisition"
            />
            <MethodForm
              label="Selection"
              methods={fittingMethods(methods.data.selections, project.task)}
              choice={selection}
              onChange={setSelection}
              usual="How rows are taken by their scores: what goes with the task."
              problem={action.error}
              pointer="/selection"
            />
          </div>
        )}
      </details>
      {action.error !== undefined && <Failure error={action.error} />}
      <div className="row">
        <Button
          kind="primary"
          isBusy={action.isBusy}
          forbidden={how.isWrong || which.isWrong ? "An option cannot be read." : undefined}
          onClick={() => void action.run()}
        >
          Rank
        </Button>
        <Button onClick={onClose}>Close</Button>
        <CopyAsCurl method="POST" address={`/v1/pools/${poolId}/rankings`} body={body} />
      </div>
    </Dialog>
  );
}

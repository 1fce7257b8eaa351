/** Goes to the round that is open, or opens one: of the only pool at once, of several after asking. */
import { useState } from "react";
import { useLocation } from "wouter";
import { api } from "../../api/client";
import type { Pool, Project, Round } from "../../api/types";
import { Button, ButtonLink } from "../../components/Button";
import { CopyAsCurl } from "../../components/CopyAsCurl";
import { Dialog } from "../../components/Dialog";
import { SelectField, TextField } from "../../components/Field";
import { Failure } from "../../components/Notice";
import { count } from "../../formats";
import { useAction } from "../../hooks/useAction";
import { useForbidden } from "../../hooks/useMe";
import type { Resource } from "../../hooks/useResource";

interface Props {
  project: Project;
  pools: Pool[] | undefined;
  rounds: Resource<Round[]>;
}

export const USUAL_K = 20;

export function LabelAction({ project, pools, rounds }: Props) {
  const [, go] = useLocation();
  const [isAsked, setAsked] = useState(false);
  const mayNot = useForbidden("write");
  const candidates = (pools ?? []).filter(
    ({ purpose, status }) => purpose === "candidates" && status === "ready",
  );
  const action = useAction(async (poolId: string, k: number) => {
    const made = await api.post("/v1/projects/{project_id}/rounds", {
      path: { project_id: project.id },
      body: { pool_id: poolId, k },
      headers: { Prefer: "wait=10" },
    });
    go(`/p/${project.id}/label/${made.round.id}`);
  });

  const open = rounds.data?.find(({ status }) => status === "open");
  if (open !== undefined) {
    return (
      <ButtonLink kind="primary" href={`/p/${project.id}/label/${open.id}`}>
        Label {count(open.n_items - open.n_done)} left
      </ButtonLink>
    );
  }
  const [only] = candidates;
  const isRanking = rounds.data?.some(({ status, error }) => status === "ranking" && error === null) === true;
  const forbidden =
    only === undefined && pools !== undefined
      ? "There is nothing to label: add a pool of candidates first."
      : mayNot;
  return (
    <>
      <Button
        kind="primary"
        forbidden={forbidden}
        isBusy={action.isBusy || isRanking || pools === undefined || rounds.data === undefined}
        onClick={() => (candidates.length > 1 ? setAsked(true) : void action.run(only?.id ?? "", USUAL_K))}
      >
        {action.isBusy || isRanking ? "Choosing items…" : "Label"}
      </Button>
      {action.error !== undefined && !isAsked && (
        <Dialog title="No round was opened" onClose={action.forget}>
          <Failure error={action.error} />
          <Button onClick={action.forget}>Close</Button>
        </Dialog>
      )}
      {isAsked && (
        <RoundDialog
          projectId={project.id}
          pools={candidates}
          error={action.error}
          isBusy={action.isBusy}
          onOpen={(poolId, k) => void action.run(poolId, k)}
          onClose={() => setAsked(false)}
        />
      )}
    </>
  );
}

interface DialogProps {
  projectId: string;
  pools: Pool[];
  error: unknown;
  isBusy: boolean;
  onOpen: (poolId: string, k: number) => void;
  onClose: () => void;
}

function RoundDialog({ projectId, pools, error, isBusy, onOpen, onClose }: DialogProps) {
  const [poolId, setPoolId] = useState(pools[0]?.id ?? "");
  const [k, setK] = useState(String(USUAL_K));
  const body = { pool_id: poolId, k: Number(k) };
  return (
    <Dialog title="What is to be labelled next?" onClose={onClose}>
      <SelectField label="Pool" value={poolId} onChange={(event) => setPoolId(event.target.value)}>
        {pools.map((pool) => (
          <option key={pool.id} value={pool.id}>
            {pool.name}, {count(pool.n_rows - pool.n_labelled - pool.n_skipped)} without a label
          </option>
        ))}
      </SelectField>
      <TextField
        label="Items"
        inputMode="numeric"
        value={k}
        onChange={(event) => setK(event.target.value)}
        help="So many are chosen; when all have labels a version is trained."
      />
      {error !== undefined && <Failure error={error} />}
      <div className="row">
        <Button kind="primary" isBusy={isBusy} onClick={() => onOpen(poolId, Number(k))}>
          {isBusy ? "Choosing items…" : "Open a round"}
        </Button>
        <Button onClick={onClose}>Close</Button>
        <CopyAsCurl method="POST" address={`/v1/projects/${projectId}/rounds`} body={body} />
      </div>
    </Dialog>
  );
}

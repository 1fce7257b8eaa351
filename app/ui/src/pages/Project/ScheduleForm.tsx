/** Asks when to train, and whether a round opens afterwards. */
import { useState } from "react";
import { api } from "../../api/client";
import { Problem } from "../../api/problem";
import type { Pool } from "../../api/types";
import { Button } from "../../components/Button";
import { CopyAsCurl } from "../../components/CopyAsCurl";
import { Dialog } from "../../components/Dialog";
import { SelectField, TextField } from "../../components/Field";
import { Failure } from "../../components/Notice";
import { useAction } from "../../hooks/useAction";
import { USUAL_K } from "./LabelAction";

interface Props {
  projectId: string;
  pools: Pool[];
  onMade: () => void;
  onClose: () => void;
}

type Trigger = "labels" | "round" | "time";

const TRIGGERS: Record<Trigger, string> = {
  labels: "after so many labels",
  round: "when a round is complete",
  time: "at a time of day or week",
};

export function ScheduleForm({ projectId, pools, onMade, onClose }: Props) {
  const [trigger, setTrigger] = useState<Trigger>("labels");
  const [every, setEvery] = useState("50");
  const [cron, setCron] = useState("0 3 * * *");
  const [timezone, setTimezone] = useState(() => Intl.DateTimeFormat().resolvedOptions().timeZone);
  const [poolId, setPoolId] = useState("");
  const [k, setK] = useState(String(USUAL_K));
  const body = {
    ...(trigger === "labels" ? { every_labels: Number(every) } : {}),
    ...(trigger === "round" ? { on_round_complete: true } : {}),
    ...(trigger === "time" ? { cron, timezone } : {}),
    ...(poolId === "" ? {} : { then_open_round: { pool_id: poolId, k: Number(k) } }),
  };
  const action = useAction(async () => {
    await api.post("/v1/projects/{project_id}/schedules", {
      path: { project_id: projectId },
      body: body,
    });
    onMade();
  });
  const at = (pointer: string) => (action.error instanceof Problem ? action.error.at(pointer) : undefined);
  return (
    <Dialog title="Train by itself" onClose={onClose}>
      <SelectField
        label="When"
        value={trigger}
        onChange={(event) => setTrigger(event.target.value as Trigger)}
      >
        {Object.entries(TRIGGERS).map(([value, words]) => (
          <option key={value} value={value}>
            {words}
          </option>
        ))}
      </SelectField>
      {trigger === "labels" && (
        <TextField
          label="Labels"
          inputMode="numeric"
          value={every}
          onChange={(event) => setEvery(event.target.value)}
          help="A correction counts as one too."
          error={at("/every_labels")}
        />
      )}
      {trigger === "time" && (
        <>
          <TextField
            label="Cron"
            value={cron}
            onChange={(event) => setCron(event.target.value)}
            help="Five fields: minute hour day month weekday. 0 3 * * * is every night at three."
            error={at("/cron")}
          />
          <TextField
            label="Time zone"
            value={timezone}
            onChange={(event) => setTimezone(event.target.value)}
            error={at("/timezone")}
          />
        </>
      )}
      <SelectField label="Then" value={poolId} onChange={(event) => setPoolId(event.target.value)}>
        <option value="">wait for somebody to open a round</option>
        {pools.map((pool) => (
          <option key={pool.id} value={pool.id}>
            open a round of {pool.name}
          </option>
        ))}
      </SelectField>
      {poolId !== "" && (
        <TextField
          label="Items a round"
          inputMode="numeric"
          value={k}
          onChange={(event) => setK(event.target.value)}
          error={at("/then_open_round/k")}
        />
      )}
      {action.error !== undefined && <Failure error={action.error} />}
      <div className="row">
        <Button kind="primary" isBusy={action.isBusy} onClick={() => void action.run()}>
          Add
        </Button>
        <Button onClick={onClose}>Close</Button>
        <CopyAsCurl method="POST" address={`/v1/projects/${projectId}/schedules`} body={body} />
      </div>
    </Dialog>
  );
}

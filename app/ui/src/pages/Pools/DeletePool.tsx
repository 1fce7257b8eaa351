/** Deletes a pool with its labels, rankings and rounds, once its name was typed. */
import { useState } from "react";
import { useLocation } from "wouter";
import { api } from "../../api/client";
import type { Pool, Project } from "../../api/types";
import { Button } from "../../components/Button";
import { Dialog } from "../../components/Dialog";
import { TextField } from "../../components/Field";
import { Failure } from "../../components/Notice";
import { useAction } from "../../hooks/useAction";
import { useForbidden } from "../../hooks/useMe";

export function DeletePool({ project, pool }: { project: Project; pool: Pool }) {
  const [, go] = useLocation();
  const [isAsked, setAsked] = useState(false);
  const [typed, setTyped] = useState("");
  const forbidden = useForbidden("write");
  const remove = useAction(async () => {
    await api.delete("/v1/pools/{pool_id}", { path: { pool_id: pool.id } });
    go(`/p/${project.id}/pools`);
  });
  return (
    <div>
      <Button kind="danger" forbidden={forbidden} onClick={() => setAsked(true)}>
        Delete this pool…
      </Button>
      {isAsked && (
        <Dialog title={`Delete “${pool.name}”?`} onClose={() => setAsked(false)}>
          <p>Its rows, labels, rankings and rounds go too, for ever.</p>
          <TextField
            label={`Type ${pool.name}`}
            value={typed}
            onChange={(event) => setTyped(event.target.value)}
            autoComplete="off"
          />
          {remove.error !== undefined && <Failure error={remove.error} />}
          <div className="row">
            <Button
              kind="danger"
              isBusy={remove.isBusy}
              forbidden={typed.trim() === pool.name ? undefined : "Type the name of the pool first."}
              onClick={() => void remove.run()}
            >
              Delete
            </Button>
            <Button onClick={() => setAsked(false)}>Keep it</Button>
          </div>
        </Dialog>
      )}
    </div>
  );
}

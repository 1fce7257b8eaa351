/** Deletes a project and all that belongs to it, once its name was typed. */
import { useState } from "react";
import { useLocation } from "wouter";
import { api } from "../../api/client";
import type { Project } from "../../api/types";
import { Button } from "../../components/Button";
import { Dialog } from "../../components/Dialog";
import { TextField } from "../../components/Field";
import { Failure } from "../../components/Notice";
import { useAction } from "../../hooks/useAction";
import { useForbidden } from "../../hooks/useMe";

export function DeleteProject({ project }: { project: Project }) {
  const [, go] = useLocation();
  const [isAsked, setAsked] = useState(false);
  const [typed, setTyped] = useState("");
  const forbidden = useForbidden("write");
  const remove = useAction(async () => {
    await api.delete("/v1/projects/{project_id}", { path: { project_id: project.id } });
    go("/");
  });
  return (
    <details className="folded">
      <summary>Delete this project</summary>
      <div className="stack">
        <p className="quiet">
          Its pools, labels, versions, rankings and rounds are deleted with it, for ever.
        </p>
        <div>
          <Button kind="danger" forbidden={forbidden} onClick={() => setAsked(true)}>
            Delete…
          </Button>
        </div>
      </div>
      {isAsked && (
        <Dialog title={`Delete “${project.name}”?`} onClose={() => setAsked(false)}>
          <p>All of its labels go too, and nobody can bring them back.</p>
          <TextField
            label={`Type ${project.name}`}
            value={typed}
            onChange={(event) => setTyped(event.target.value)}
            autoComplete="off"
          />
          {remove.error !== undefined && <Failure error={remove.error} />}
          <div className="row">
            <Button
              kind="danger"
              isBusy={remove.isBusy}
              forbidden={typed.trim() === project.name ? undefined : "Type the name of the project first."}
              onClick={() => void remove.run()}
            >
              Delete
            </Button>
            <Button onClick={() => setAsked(false)}>Keep it</Button>
          </div>
        </Dialog>
      )}
    </details>
  );
}

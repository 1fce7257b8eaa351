/** Trains a version of the labels there are; it is then shown among what is under way. */
import { api } from "../../api/client";
import type { Pool } from "../../api/types";
import { Button } from "../../components/Button";
import { Dialog } from "../../components/Dialog";
import { Failure } from "../../components/Notice";
import { useAction } from "../../hooks/useAction";
import { useForbidden } from "../../hooks/useMe";

interface Props {
  projectId: string;
  pools: Pool[] | undefined;
  onJob: () => void;
}

export function TrainAction({ projectId, pools, onJob }: Props) {
  const mayNot = useForbidden("write");
  const isEmpty =
    pools?.every(({ n_labelled, purpose }) => purpose === "evaluation" || n_labelled === 0) === true;
  const forbidden = isEmpty ? "There is nothing to learn from: label some items first." : mayNot;
  const action = useAction(async () => {
    await api.post("/v1/projects/{project_id}/ensembles", {
      path: { project_id: projectId },
      body: {},
    });
    onJob();
  });
  return (
    <>
      <Button forbidden={forbidden} isBusy={action.isBusy} onClick={() => void action.run()}>
        Train
      </Button>
      {action.error !== undefined && (
        <Dialog title="Nothing is trained" onClose={action.forget}>
          <Failure error={action.error} />
          <Button onClick={action.forget}>Close</Button>
        </Dialog>
      )}
    </>
  );
}

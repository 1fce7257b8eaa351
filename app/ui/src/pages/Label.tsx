/** Labelling a round: one key a label, and no wait between items. */
import { api } from "../api/client";
import { Loaded } from "../components/Loaded";
import { useMe } from "../hooks/useMe";
import { useResource } from "../hooks/useResource";
import { annotatorName } from "../labelling/annotator";
import { Bench } from "./Label/Bench";

export default function Label({ projectId, roundId }: { projectId: string; roundId: string }) {
  const me = useMe();
  const found = useResource(`${projectId} ${roundId}`, async (signal) => {
    const [project, round] = await Promise.all([
      api.get("/v1/projects/{project_id}", { path: { project_id: projectId }, signal }),
      api.get("/v1/rounds/{round_id}", { path: { round_id: roundId }, signal }),
    ]);
    return { project, round };
  });
  return (
    <Loaded of={found} lines={6}>
      {({ project, round }) => <Bench project={project} round={round} annotator={annotatorName(me.name)} />}
    </Loaded>
  );
}

/** What lies beside what, and what of it is labelled. */
import type { Pool, Project } from "../../api/types";
import { PoolMap } from "../../charts/PoolMap";
import { Loaded } from "../../components/Loaded";
import { usePoolMap } from "../../hooks/usePoolMap";

interface Props {
  project: Project;
  pool: Pool;
  onChoose: (row: number) => void;
}

export function MapPart({ project, pool, onChoose }: Props) {
  const map = usePoolMap(project.id, pool.id);
  return (
    <section aria-labelledby="map">
      <h2 id="map">What lies beside what?</h2>
      <Loaded of={map} lines={8}>
        {(known) => (
          <PoolMap
            map={known}
            nRows={pool.n_rows}
            isClasses={project.task.kind === "classification"}
            onChoose={onChoose}
          />
        )}
      </Loaded>
    </section>
  );
}

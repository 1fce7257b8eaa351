/** The pools of a project: add one, see what there is; and one of them, row by row. */
import { Link } from "wouter";
import { Loaded } from "../components/Loaded";
import { usePools } from "../hooks/usePools";
import { useProject } from "../hooks/useProject";
import "./Pools.css";
import { DropZone } from "./Pools/DropZone";
import { PoolTable } from "./Pools/PoolTable";
import { PoolView } from "./Pools/PoolView";

export default function Pools({ projectId, poolId }: { projectId: string; poolId?: string }) {
  const project = useProject(projectId);
  const pools = usePools(projectId);
  return (
    <Loaded of={project} lines={6}>
      {(known) => (
        <Loaded of={pools} lines={6}>
          {(all) => {
            const pool = all.find(({ id }) => id === poolId);
            if (pool !== undefined)
              return <PoolView key={pool.id} project={known} pool={pool} onChange={pools.reload} />;
            return (
              <div className="pools">
                <div>
                  <h1>{poolId === undefined ? "Pools" : "There is no such pool"}</h1>
                  <p className="quiet">
                    of <Link href={`/p/${projectId}`}>{known.name}</Link>
                  </p>
                </div>
                <DropZone projectId={projectId} onMade={pools.reload} />
                <PoolTable projectId={projectId} pools={all} />
              </div>
            );
          }}
        </Loaded>
      )}
    </Loaded>
  );
}

/** The three figures of a ranking, each read when it is shown. */
import { useMemo } from "react";
import { useLocation } from "wouter";
import type { Project, Ranking } from "../../api/types";
import { PoolMap } from "../../charts/PoolMap";
import { ScoreHistogram } from "../../charts/ScoreHistogram";
import { UncertaintyScatter } from "../../charts/UncertaintyScatter";
import { Loaded } from "../../components/Loaded";
import { Problem } from "../../api/problem";
import { usePoolMap } from "../../hooks/usePoolMap";
import { useSample, useScores } from "../../hooks/useRanking";
import type { Resource } from "../../hooks/useResource";

/** Rankings of before these figures were kept: nothing is wrong with them. */
function Kept<T>({ of, children }: { of: Resource<T>; children: (data: T) => React.ReactNode }) {
  if (of.error instanceof Problem && of.error.status === 409)
    return <p className="quiet">{of.error.detail}</p>;
  return (
    <Loaded of={of} lines={8}>
      {children}
    </Loaded>
  );
}

export function ScoresPanel({ ranking }: { ranking: Ranking }) {
  const scores = useScores(ranking.id);
  return (
    <Kept of={scores}>
      {(known) => <ScoreHistogram scores={known} name={String(ranking.acquisition.name)} />}
    </Kept>
  );
}

export function ScatterPanel({ ranking }: { ranking: Ranking }) {
  const sample = useSample(ranking.id);
  const [, go] = useLocation();
  return (
    <Kept of={sample}>
      {(known) =>
        known.aleatoric === null || known.epistemic === null ? (
          <p className="quiet">There was no version to say so.</p>
        ) : (
          <UncertaintyScatter
            sample={known}
            onChoose={(row) => go(`/p/${ranking.project_id}/pools/${ranking.pool_id}?row=${row}`)}
          />
        )
      }
    </Kept>
  );
}

export function MapPanel({ project, ranking }: { project: Project; ranking: Ranking }) {
  const map = usePoolMap(project.id, ranking.pool_id);
  const picks = useMemo(() => (ranking.items ?? []).map(({ row }) => row), [ranking.items]);
  return (
    <Kept of={map}>
      {(known) => (
        <PoolMap
          map={known}
          nRows={known.row.length}
          isClasses={project.task.kind === "classification"}
          picks={picks}
        />
      )}
    </Kept>
  );
}

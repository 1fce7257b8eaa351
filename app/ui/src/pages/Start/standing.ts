/** How a project stands, from its curve, pools and rounds. */
import type { LearningCurve, Pool, Project, Round } from "../../api/types";

export interface Standing {
  metric: "accuracy" | "rmse";
  points: { x: number; y: number | null | undefined }[];
  /** Of the newest point that was measured. */
  value: number | undefined;
  nCandidates: number;
  nLabels: number;
}

export function standing(
  project: Pick<Project, "task">,
  curve: LearningCurve,
  pools: readonly Pool[],
): Standing {
  const metric = project.task.kind === "classification" ? "accuracy" : "rmse";
  const points = curve.points.map(({ n_labels, metrics }) => ({ x: n_labels, y: metrics[metric] }));
  const candidates = pools.filter(({ purpose }) => purpose === "candidates");
  const total = (of: (pool: Pool) => number) => candidates.reduce((n, pool) => n + of(pool), 0);
  return {
    metric,
    points,
    value: points.findLast(({ y }) => typeof y === "number")?.y ?? undefined,
    nCandidates: total((pool) => pool.n_rows),
    nLabels: total((pool) => pool.n_labelled),
  };
}

/** The newest round with something left to label. */
export function openRound(rounds: readonly Round[]): Round | undefined {
  return rounds.find(({ status, n_items, n_done }) => status === "open" && n_done < n_items);
}

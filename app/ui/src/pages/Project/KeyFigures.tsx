/** The few numbers that say where a project stands. */
import type { Advice, LearningCurve as Curve, Ensemble, Pool, Project } from "../../api/types";
import { Figure, Figures } from "../../components/Figure";
import { ago, count, number } from "../../formats";
import { measureOf, metricOf, metricText, spreadText } from "../../metrics";

interface Props {
  project: Project;
  pools: Pool[] | undefined;
  curve: Curve | undefined;
  ensembles: Ensemble[] | undefined;
  advice: Advice | undefined;
}

const RMSE_WORDS = "root mean square error";

export function KeyFigures({ project, pools, curve, ensembles, advice }: Props) {
  const metric = metricOf(project.task);
  const current = ensembles?.find(({ is_current }) => is_current);
  const metrics = current?.metrics ?? curve?.points.at(-1)?.metrics ?? null;
  const measure = measureOf(metrics, metric);
  const nLabels = pools
    ?.filter(({ purpose }) => purpose === "candidates")
    .reduce((sum, { n_labelled }) => sum + n_labelled, 0);
  const saved = savedText(advice);
  const unit = project.display?.unit ?? null;
  return (
    <Figures>
      {measure !== null && (
        <Figure value={metricText(metric, measure.value)}>
          {metric === "accuracy" ? "accuracy" : RMSE_WORDS}
          {unit !== null && metric === "rmse" && ` in ${unit}`}
          {spreadText(measure) !== "" && `, ${spreadText(measure)}`}
          {measure.measuredOn === "estimate" && ", estimated"}
        </Figure>
      )}
      {metric === "rmse" && typeof metrics?.nll === "number" && measure?.measuredOn !== "estimate" && (
        <Figure value={number(metrics.nll)}>nats a row (nll)</Figure>
      )}
      {nLabels !== undefined && <Figure value={count(nLabels)}>{nLabels === 1 ? "label" : "labels"}</Figure>}
      {saved !== null && <Figure value={saved.value}>labels saved against random{saved.ends}</Figure>}
      {current !== undefined && (
        <Figure value={`v${current.version}`}>
          {project.is_pinned ? "pinned" : "current"}, {ago(current.created_at)}
        </Figure>
      )}
    </Figures>
  );
}

/** The median with the ends of its 95 % interval, or the one end that is known; null where nothing is. */
export function savedText(advice: Pick<Advice, "saved"> | undefined): { value: string; ends: string } | null {
  const { labels = null, low = null, high = null } = advice?.saved ?? {};
  const text = (n: number) => (n < 0 ? `−${count(-n)}` : count(n));
  if (labels === null) return low !== null && low > 0 ? { value: `> ${text(low)}`, ends: "" } : null;
  const ends =
    low !== null && high !== null
      ? `, ${text(low)} to ${text(high)}`
      : low !== null
        ? `, at least ${text(low)}`
        : high !== null
          ? `, at most ${text(high)}`
          : "";
  return { value: text(labels), ends };
}

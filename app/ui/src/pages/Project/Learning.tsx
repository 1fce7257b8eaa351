/** "Is it learning?": the curve, what it was measured on, and its figures as a table. */
import { useMemo } from "react";
import { Link } from "wouter";
import type { Advice, LearningCurve as Curve, Project } from "../../api/types";
import { curveNote, LearningCurve, type Saved } from "../../charts/LearningCurve";
import { ButtonLink } from "../../components/Button";
import { DataTable } from "../../components/DataTable";
import { Loaded } from "../../components/Loaded";
import { Notice } from "../../components/Notice";
import { count, date, many } from "../../formats";
import type { Resource } from "../../hooks/useResource";
import { comparable, controlOf, measureOf, metricOf, metricText, type MeasuredPoint } from "../../metrics";

interface Props {
  project: Project;
  curve: Resource<Curve>;
  advice: Advice | undefined;
  /** Undefined while nobody knows. */
  hasPools: boolean | undefined;
}

export function Learning({ project, curve, advice, hasPools }: Props) {
  return (
    <section aria-labelledby="learning">
      <h2 id="learning">Is it learning?</h2>
      <Loaded of={curve} lines={10}>
        {(known) => <Drawn project={project} curve={known} advice={advice} hasPools={hasPools} />}
      </Loaded>
    </section>
  );
}

function Drawn({ project, curve, advice, hasPools }: Omit<Props, "curve"> & { curve: Curve }) {
  const metric = metricOf(project.task);
  const points = useMemo(() => comparable(curve.points, metric), [curve, metric]);
  const control = useMemo(() => controlOf(curve.points, metric), [curve, metric]);
  const saved = useMemo(() => savedOf(advice, points.at(-1)), [advice, points]);
  if (curve.points.length === 0) {
    return (
      <div className="stack">
        <p className="quiet">No version yet. Give some labels, then train: the curve begins there.</p>
        {hasPools === false && (
          <div>
            <ButtonLink href={`/p/${project.id}/pools`}>Add a pool</ButtonLink>
          </div>
        )}
      </div>
    );
  }
  const last = points.at(-1);
  if (last === undefined) {
    return (
      <Notice kind="warn">
        <p>
          {many(curve.points.length, "version")}, none of them measured: there are no rows to measure on.{" "}
          <Link href={`/p/${project.id}/pools`}>Add an evaluation pool.</Link>
        </p>
      </Notice>
    );
  }
  const nOthers = curve.points.filter(
    (point) => !points.some(({ version }) => version === point.version),
  ).length;
  return (
    <div className="stack">
      {points.length === 1 && <p className="quiet">One point. Label a round to see it move.</p>}
      {last.measuredOn !== "evaluation" && (
        <Notice kind="warn">
          <p>
            {last.measuredOn === "holdout"
              ? `Measured on ${many(last.n, "label")}: rough. `
              : `Estimated from ${many(last.n, "label")}: rough. `}
            <Link href={`/p/${project.id}/pools`}>Add an evaluation pool.</Link>
          </p>
        </Notice>
      )}
      <LearningCurve
        metric={metric}
        points={points}
        control={control}
        saved={saved}
        table={
          <>
            <DataTable
              caption="The learning curve"
              rows={curve.points.toReversed()}
              keyOf={({ ensemble_id }) => ensemble_id}
              columns={[
                { title: "version", cell: ({ version }) => `v${version}` },
                { title: "labels", cell: ({ n_labels }) => count(n_labels), isNumber: true },
                {
                  title: metric,
                  cell: ({ metrics }) => metricText(metric, measureOf(metrics, metric)?.value),
                  isNumber: true,
                },
                {
                  title: "95 % interval",
                  cell: ({ metrics }) => intervalText(measureOf(metrics, metric)),
                  isNumber: true,
                },
                { title: "trained", cell: ({ created_at }) => date(created_at) },
              ]}
            />
            {control.length > 0 && (
              <DataTable
                caption="What random rows gave"
                isCaptionShown
                rows={control}
                keyOf={({ nLabels }) => nLabels}
                columns={[
                  { title: "random labels", cell: ({ nLabels }) => count(nLabels), isNumber: true },
                  { title: metric, cell: ({ value }) => metricText(metric, value), isNumber: true },
                ]}
              />
            )}
          </>
        }
      />
      <p className="quiet small">
        {curveNote(points)}
        {nOthers > 0 &&
          ` ${many(nOthers, "version")} with as many labels, or measured otherwise, ${nOthers === 1 ? "is" : "are"} in the table alone.`}
      </p>
    </div>
  );
}

function intervalText(measure: ReturnType<typeof measureOf>): string {
  if (measure === null || measure.low === null || measure.high === null) return "–";
  return `${metricText(measure.name, measure.low)} to ${metricText(measure.name, measure.high)}`;
}

/** Only where the advice speaks of the point that the curve ends with. */
export function savedOf(advice: Advice | undefined, last: MeasuredPoint | undefined): Saved | null {
  if (advice === undefined || last === undefined || advice.curve.n_labels !== last.nLabels) return null;
  const { labels, random_needs: needs } = advice.saved;
  return labels === null || needs === null ? null : { labels, randomNeeds: needs };
}

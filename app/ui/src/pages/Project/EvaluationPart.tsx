/** What the current version confuses, and whether it is as sure as it should be. */
import type { Ensemble, Evaluation, Project } from "../../api/types";
import { Confusion } from "../../charts/Confusion";
import { Coverage } from "../../charts/Coverage";
import { Reliability } from "../../charts/Reliability";
import { DataTable } from "../../components/DataTable";
import { Loaded } from "../../components/Loaded";
import { count, number, share } from "../../formats";
import { useEvaluation } from "../../hooks/useEvaluation";

export function EvaluationPart({
  project,
  ensembles,
}: {
  project: Project;
  ensembles: Ensemble[] | undefined;
}) {
  const current = ensembles?.find(({ is_current }) => is_current);
  const evaluation = useEvaluation(current?.id ?? null);
  const isClasses = project.task.kind === "classification";
  const nothing = ensembles === undefined ? "" : "Known once a version is trained.";
  return (
    <>
      <section aria-labelledby="errors">
        <h2 id="errors">{isClasses ? "What does it confuse?" : "How far is it off?"}</h2>
        {current === undefined ? (
          <p className="quiet">{nothing}</p>
        ) : isClasses ? (
          <Loaded of={evaluation} lines={8}>
            {(known) => <Confused evaluation={known} />}
          </Loaded>
        ) : (
          <Residuals ensemble={current} unit={project.display?.unit ?? null} />
        )}
      </section>
      <section aria-labelledby="sure">
        <h2 id="sure">Is it as sure as it should be?</h2>
        {current === undefined ? (
          <p className="quiet">{nothing}</p>
        ) : (
          <Loaded of={evaluation} lines={8}>
            {(known) => <Sure evaluation={known} />}
          </Loaded>
        )}
      </section>
    </>
  );
}

function Confused({ evaluation: { confusion, classes, note, n } }: { evaluation: Evaluation }) {
  if (confusion === null && classes === null) {
    return <p className="quiet">{note ?? "There are no rows to count on."}</p>;
  }
  return (
    <>
      {confusion === null ? (
        <p className="quiet">Too many classes to draw them all: see them one by one.</p>
      ) : (
        <Confusion classes={confusion.classes} counts={confusion.counts} />
      )}
      {classes !== null && (
        <details>
          <summary>By class, of {count(n)} rows</summary>
          <DataTable
            caption="Precision and recall by class"
            rows={classes}
            keyOf={({ name }) => name}
            columns={[
              { title: "class", cell: ({ name }) => name },
              { title: "precision", cell: ({ precision }) => share(precision), isNumber: true },
              { title: "recall", cell: ({ recall }) => share(recall), isNumber: true },
              { title: "rows", cell: (row) => count(row.n), isNumber: true },
            ]}
          />
        </details>
      )}
    </>
  );
}

function Sure({ evaluation: { reliability, coverage, note } }: { evaluation: Evaluation }) {
  if (reliability !== null && reliability.length > 0) return <Reliability bins={reliability} />;
  if (coverage !== null && coverage.length > 0) return <Coverage intervals={coverage} />;
  return <p className="quiet">{note ?? "There are no rows to count on."}</p>;
}

function Residuals({ ensemble: { metrics }, unit }: { ensemble: Ensemble; unit: string | null }) {
  if (metrics === null || metrics.n === 0) return <p className="quiet">There are no rows to measure on.</p>;
  const known = (
    [
      ["root mean square error", metrics.rmse, metrics.rmse_se, true],
      ["crps: mean distance of the forecast from what came", metrics.crps, metrics.crps_se, true],
      ["nll, nats a row", metrics.nll, metrics.nll_se, false],
    ] as const
  ).filter(([, value]) => typeof value === "number");
  return (
    <DataTable
      caption={`Errors on ${count(metrics.n ?? 0)} rows`}
      isCaptionShown
      rows={known}
      keyOf={([name]) => name}
      columns={[
        {
          title: "measure",
          cell: ([name, , , isInUnits]) => (isInUnits && unit !== null ? `${name}, ${unit}` : name),
        },
        { title: "value", cell: ([, value]) => number(value as number), isNumber: true },
        {
          title: "± 1.96 se",
          cell: ([, , se]) => (typeof se === "number" ? number(1.96 * se, 2) : "–"),
          isNumber: true,
        },
      ]}
    />
  );
}

/** What has been labelled so far, and by whom. */
import type { LabelSummary, Project } from "../../api/types";
import { ClassBars } from "../../charts/ClassBars";
import { DataTable } from "../../components/DataTable";
import { Loaded } from "../../components/Loaded";
import { ago, count, many, number } from "../../formats";
import { useLabelSummary } from "../../hooks/useLabelSummary";

export function LabelsPart({ project }: { project: Project }) {
  const summary = useLabelSummary(project.id);
  return (
    <section aria-labelledby="labels">
      <h2 id="labels">What is labelled?</h2>
      <Loaded of={summary} lines={8}>
        {(known) => <Known summary={known} unit={project.display?.unit ?? null} />}
      </Loaded>
    </section>
  );
}

function Known({ summary, unit }: { summary: LabelSummary; unit: string | null }) {
  const {
    n_labelled: n,
    n_skipped: nSkipped,
    n_open: nOpen,
    by_class: byClass,
    numbers,
    by_annotator: who,
  } = summary;
  if (n + nSkipped + nOpen === 0) return <p className="quiet">Nothing yet.</p>;
  return (
    <div className="stack">
      {byClass !== null && <ClassBars counts={byClass} />}
      {numbers !== null && (
        <DataTable
          caption={`${many(numbers.n, "label")}${unit === null ? "" : `, in ${unit}`}`}
          isCaptionShown
          rows={[numbers]}
          keyOf={() => "all"}
          columns={[
            { title: "mean", cell: ({ mean }) => number(mean), isNumber: true },
            { title: "sd", cell: ({ sd }) => number(sd), isNumber: true },
            { title: "least", cell: ({ min }) => number(min), isNumber: true },
            { title: "greatest", cell: ({ max }) => number(max), isNumber: true },
          ]}
        />
      )}
      {nSkipped + nOpen > 0 && (
        <p className="quiet small">
          {[nSkipped > 0 && `${count(nSkipped)} skipped`, nOpen > 0 && `${count(nOpen)} without agreement`]
            .filter(Boolean)
            .join(" · ")}
        </p>
      )}
      {who.length > 0 && (
        <details>
          <summary>By whom: {many(who.length, "annotator")}</summary>
          <DataTable
            caption="Labels by annotator"
            rows={who}
            keyOf={({ annotator }) => annotator}
            columns={[
              { title: "who", cell: ({ annotator }) => annotator },
              { title: "labels", cell: ({ n_labels }) => count(n_labels), isNumber: true },
              { title: "skips", cell: ({ n_skips }) => count(n_skips), isNumber: true },
              {
                title: "seconds each",
                cell: ({ median_lead_time: t }) => (t === null ? "–" : number(t, 2)),
                isNumber: true,
              },
              { title: "last", cell: ({ last_at }) => ago(last_at) },
            ]}
          />
        </details>
      )}
    </div>
  );
}

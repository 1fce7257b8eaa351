/** The versions, newest first: which one is used, what made it, and what it warns of itself. */
import { useState } from "react";
import { api } from "../../api/client";
import type { Ensemble, Project } from "../../api/types";
import { Button } from "../../components/Button";
import { Loaded } from "../../components/Loaded";
import { Failure } from "../../components/Notice";
import { ago, count, many } from "../../formats";
import { useAction } from "../../hooks/useAction";
import { useForbidden } from "../../hooks/useMe";
import type { Resource } from "../../hooks/useResource";
import { measureOf, metricOf, metricText } from "../../metrics";
import "./Versions.css";

interface Props {
  project: Project;
  ensembles: Resource<Ensemble[]>;
  onChange: () => void;
}

const FEW = 6;

export function Versions({ project, ensembles, onChange }: Props) {
  const [isLong, setLong] = useState(false);
  const action = useAction(async (ensembleId: string | null) => {
    await api.post("/v1/projects/{project_id}/current", {
      path: { project_id: project.id },
      body: { ensemble_id: ensembleId },
    });
    onChange();
  });
  return (
    <section className="versions" aria-labelledby="versions">
      <h2 id="versions">Versions</h2>
      <Loaded of={ensembles}>
        {(known) =>
          known.length === 0 ? (
            <p className="quiet">None yet.</p>
          ) : (
            <>
              <ul className="list">
                {(isLong ? known : known.slice(0, FEW)).map((ensemble) => (
                  <Version
                    key={ensemble.id}
                    project={project}
                    ensemble={ensemble}
                    isBusy={action.isBusy}
                    onPin={(id) => void action.run(id)}
                  />
                ))}
              </ul>
              {known.length > FEW && !isLong && (
                <Button kind="link" onClick={() => setLong(true)}>
                  Show all {known.length}
                </Button>
              )}
            </>
          )
        }
      </Loaded>
      {action.error !== undefined && <Failure error={action.error} />}
    </section>
  );
}

interface VersionProps {
  project: Project;
  ensemble: Ensemble;
  isBusy: boolean;
  onPin: (ensembleId: string | null) => void;
}

function Version({ project, ensemble, isBusy, onPin }: VersionProps) {
  const forbidden = useForbidden("write");
  const metric = metricOf(project.task);
  const { version, status, is_current: isCurrent, n_labels: nLabels } = ensemble;
  const isPinned = isCurrent && project.is_pinned;
  const name = String(ensemble.posterior.name);
  const warnings = ensemble.diagnostics?.warnings ?? [];
  return (
    <li>
      <div className="first">
        <span>
          v{version} {isCurrent && <span className="quiet">{isPinned ? "pinned" : "current"}</span>}
        </span>
        {status === "succeeded" ? (
          <>
            <span className="figures">
              <span className="hidden">labels </span>
              {nLabels === null ? "–" : count(nLabels)}
            </span>
            <span className="figures">
              <span className="hidden">{metric} </span>
              {metricText(metric, measureOf(ensemble.metrics, metric)?.value)}
            </span>
            <Button
              kind="link"
              forbidden={forbidden}
              isBusy={isBusy}
              aria-label={isPinned ? `Unpin v${version}: use the newest` : `Pin v${version}: go on using it`}
              onClick={() => onPin(isPinned ? null : ensemble.id)}
            >
              {isPinned ? "unpin" : "pin"}
            </Button>
          </>
        ) : (
          <>
            <span />
            <span className={`state ${status === "failed" ? "bad" : "quiet"}`}>{status}</span>
            <span />
          </>
        )}
      </div>
      <p className="quiet small">
        {name}, {many(ensemble.n_members, "member")} · {ago(ensemble.created_at)}
      </p>
      {warnings.length > 0 && (
        <details>
          <summary className="warn">{many(warnings.length, "warning")}</summary>
          {warnings.map((warning) => (
            <p key={warning} className="small">
              {warning}
            </p>
          ))}
        </details>
      )}
    </li>
  );
}

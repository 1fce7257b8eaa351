/** A ranking: which rows were chosen, by what, and what sets them apart. */
import { useState } from "react";
import { Link } from "wouter";
import { api } from "../api/client";
import type { Project, Ranking } from "../api/types";
import { JobLine } from "../components/JobLine";
import { Loaded } from "../components/Loaded";
import { Notice } from "../components/Notice";
import { Said } from "../components/Said";
import { ago, count, many, number } from "../formats";
import { useProject } from "../hooks/useProject";
import { useRanking } from "../hooks/useRanking";
import { useResource } from "../hooks/useResource";
import { isActive } from "../jobs";
import { Actions } from "./Ranking/Actions";
import { MapPanel, ScatterPanel, ScoresPanel } from "./Ranking/Panels";
import { Picks } from "./Ranking/Picks";
import "./Ranking.css";

export default function RankingPage({ projectId, rankingId }: { projectId: string; rankingId: string }) {
  const project = useProject(projectId);
  const ranking = useRanking(rankingId);
  return (
    <Loaded of={project} lines={6}>
      {(of) => (
        <Loaded of={ranking} lines={8}>
          {(known) => <Shown project={of} ranking={known} onEnd={ranking.reload} />}
        </Loaded>
      )}
    </Loaded>
  );
}

const PANELS = ["scores", "uncertainty", "map"] as const;

function Shown({ project, ranking, onEnd }: { project: Project; ranking: Ranking; onEnd: () => void }) {
  const [panel, setPanel] = useState<(typeof PANELS)[number]>("scores");
  const isMade = ranking.status === "succeeded";
  const classOf = (each: string) => (each === panel ? "" : "other");
  return (
    <div className="ranking">
      <header className="between">
        <div>
          <h1>{isMade ? `${count(ranking.items?.length ?? 0)} rows to label next` : "Ranking"}</h1>
          <p className="quiet">
            <Link href={`/p/${project.id}`}>{project.name}</Link> ·{" "}
            <Link href={`/p/${project.id}/pools/${ranking.pool_id}`}>its pool</Link> ·{" "}
            {ago(ranking.created_at)}
            {ranking.n_scored !== null && ` · ${many(ranking.n_scored, "row")} scored`}
            {ranking.seconds !== null && ` in ${number(ranking.seconds, 2)} s`}
          </p>
        </div>
        {isMade && <Actions project={project} ranking={ranking} />}
      </header>
      {ranking.notes.length > 0 && (
        <Notice>
          <ul className="notes">
            {ranking.notes.map((note) => (
              <li key={note}>
                <Said text={note} />
              </li>
            ))}
          </ul>
        </Notice>
      )}
      <p>
        {methodWords(ranking)}
        {ranking.replay_of !== null && (
          <>
            {" "}
            It makes <Link href={`/p/${project.id}/rankings/${ranking.replay_of}`}>an earlier one</Link>{" "}
            again.
          </>
        )}
      </p>
      {!isMade && <Job jobId={ranking.job_id} onEnd={onEnd} />}
      {isMade && (
        <>
          <div className="tabs" role="tablist" aria-label="Figures">
            {PANELS.map((each) => (
              <button
                key={each}
                type="button"
                role="tab"
                aria-selected={each === panel}
                aria-controls={`panel-${each}`}
                onClick={() => setPanel(each)}
              >
                {each}
              </button>
            ))}
          </div>
          <div className="columns">
            <section id="panel-scores" className={classOf("scores")} aria-labelledby="scores">
              <h2 id="scores">How do they score?</h2>
              <ScoresPanel ranking={ranking} />
            </section>
            <section id="panel-uncertainty" className={classOf("uncertainty")} aria-labelledby="uncertainty">
              <h2 id="uncertainty">Why are they uncertain?</h2>
              <ScatterPanel ranking={ranking} />
            </section>
            <section id="panel-map" className={classOf("map")} aria-labelledby="map">
              <h2 id="map">Where do they lie?</h2>
              <MapPanel project={project} ranking={ranking} />
            </section>
          </div>
          <hr />
          <Picks project={project} ranking={ranking} />
        </>
      )}
    </div>
  );
}

/** By which score and selection, and from which version. */
export function methodWords({
  acquisition,
  selection,
  ensemble_id: ensemble,
  seed,
}: Pick<Ranking, "acquisition" | "selection" | "ensemble_id" | "seed">): string {
  const by = ensemble === null ? "There was no version yet: nothing was scored by one." : "";
  return `Scored by ${specWords(acquisition)}, chosen by ${specWords(selection)}, seed ${count(seed)}. ${by}`.trim();
}

function specWords(spec: Record<string, unknown>): string {
  const { name, ...options } = spec;
  const given = Object.entries(options).filter(([, value]) => value !== null);
  return given.length === 0
    ? String(name)
    : `${String(name)} (${given.map(([key, value]) => `${key.replaceAll("_", " ")} ${String(value)}`).join(", ")})`;
}

function Job({ jobId, onEnd }: { jobId: string; onEnd: () => void }) {
  const job = useResource(`job ${jobId}`, (signal) =>
    api.get("/v1/jobs/{job_id}", { path: { job_id: jobId }, signal }),
  );
  return (
    <Loaded of={job}>{(known) => <JobLine job={known} onEnd={isActive(known) ? onEnd : undefined} />}</Loaded>
  );
}

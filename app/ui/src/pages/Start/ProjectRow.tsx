/** One project: its name, how much there is, how good it is by now, and the round to label. */
import { Link } from "wouter";
import { allItems, api } from "../../api/client";
import type { Project } from "../../api/types";
import { Sparkline } from "../../charts/Sparkline";
import { ButtonLink } from "../../components/Button";
import { count, many, number, share } from "../../formats";
import { useEvents } from "../../hooks/useEvents";
import { useResource } from "../../hooks/useResource";
import { openRound, standing } from "./standing";

export function ProjectRow({ project }: { project: Project }) {
  const path = { project_id: project.id };
  const state = useResource(`state of ${project.id}`, async (signal) => {
    const [curve, pools, rounds] = await Promise.all([
      api.get("/v1/projects/{project_id}/learning-curve", { path, signal }),
      allItems((cursor) =>
        api.get("/v1/projects/{project_id}/pools", { path, query: { cursor, limit: 100 }, signal }),
      ),
      api.get("/v1/projects/{project_id}/rounds", { path, query: { order: "desc", limit: 10 }, signal }),
    ]);
    return { curve, pools, rounds: rounds.items };
  });
  useEvents((news) => {
    const isOurs =
      news.event === "ready" ||
      (news.event !== "problem" && news.event !== "job" && news.data.project_id === project.id);
    if (isOurs) state.reload();
  });

  const known = state.data === undefined ? undefined : standing(project, state.data.curve, state.data.pools);
  const round = state.data === undefined ? undefined : openRound(state.data.rounds);
  return (
    <li className="project-row">
      <div className="about">
        <Link href={`/p/${project.id}`} className="name">
          {project.name}
        </Link>
        <p className="quiet small">
          {taskWords(project)}
          {known !== undefined &&
            ` · ${many(known.nCandidates, "candidate")} · ${many(known.nLabels, "label")}`}
        </p>
        {state.error !== undefined && <p className="bad small">Its figures could not be read.</p>}
      </div>
      <div className="curve">
        {known !== undefined && known.points.length > 0 && (
          <Sparkline points={known.points} label={`${known.metric} by number of labels`} />
        )}
      </div>
      <div>
        {known?.value !== undefined && (
          <>
            <span className="figure-line">
              {known.metric === "accuracy" ? share(known.value) : number(known.value)}
            </span>{" "}
            <span className="quiet small">{known.metric}</span>
          </>
        )}
        {known !== undefined && known.value === undefined && (
          <span className="quiet small">{known.nLabels === 0 ? "no labels yet" : "not trained yet"}</span>
        )}
      </div>
      <div className="action">
        {round !== undefined && (
          <ButtonLink href={`/p/${project.id}/label/${round.id}`}>
            Label {count(round.n_items - round.n_done)} left
          </ButtonLink>
        )}
      </div>
    </li>
  );
}

function taskWords({ task }: Project): string {
  return task.kind === "classification"
    ? many(task.classes.length, "class", "classes")
    : task.outputs === 1
      ? "a number"
      : `${count(task.outputs)} numbers`;
}

/** What there is to go on with, and the three ways to begin. */
import { Beginnings } from "./Start/Beginnings";
import { ProjectList } from "./Start/ProjectList";
import { RecentExperiments } from "./Start/RecentExperiments";
import { useMe } from "../hooks/useMe";
import "./Start/Start.css";

export default function Start() {
  const { project_ids } = useMe();
  return (
    <div className="start">
      <h1>What should we label, or measure, next?</h1>
      <Beginnings />
      <section aria-labelledby="projects">
        <h2 id="projects">Projects</h2>
        <ProjectList />
      </section>
      {project_ids === null && (
        <section aria-labelledby="experiments">
          <h2 id="experiments">Experiments</h2>
          <RecentExperiments />
        </section>
      )}
    </div>
  );
}

/** One experiment: what is measured, its sessions, and what a simulation says before anybody is recruited. */
import { Loaded } from "../components/Loaded";
import { ago } from "../formats";
import { useExperiment } from "../hooks/useExperiment";
import { useSessions } from "../hooks/useSessions";
import { Measured } from "./Experiment/Measured";
import { Sessions } from "./Experiment/Sessions";
import { Simulations } from "./Experiment/Simulations";
import "./Experiment.css";

export default function ExperimentPage({ experimentId }: { experimentId: string }) {
  const experiment = useExperiment(experimentId);
  const sessions = useSessions(experimentId);
  return (
    <Loaded of={experiment}>
      {(found) => (
        <div className="stack experiment">
          <div className="stack tight">
            <h1>{found.name}</h1>
            <p className="quiet">
              created {ago(found.created_at)}
              {typeof found.spec.description === "string" && ` · ${found.spec.description}`}
            </p>
          </div>
          <div className="columns">
            <Sessions experimentId={experimentId} sessions={sessions} />
            <Measured experiment={found} sessions={sessions.data} onChange={experiment.reload} />
          </div>
          <hr />
          <Simulations experimentId={experimentId} />
        </div>
      )}
    </Loaded>
  );
}

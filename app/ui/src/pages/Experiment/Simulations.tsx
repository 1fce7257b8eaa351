/** Before anybody is recruited: how much will be known after how many trials, and what adaptive trials gain. */
import { useState, type FormEvent } from "react";
import { api } from "../../api/client";
import type { Job, Simulation } from "../../api/types";
import { SimulationCurve } from "../../charts/SimulationCurve";
import { Button } from "../../components/Button";
import { CopyAsCurl } from "../../components/CopyAsCurl";
import { DataTable } from "../../components/DataTable";
import { SelectField, TextField } from "../../components/Field";
import { JobLine } from "../../components/JobLine";
import { Loaded } from "../../components/Loaded";
import { Failure } from "../../components/Notice";
import { ago, count, many, number } from "../../formats";
import { useForbidden } from "../../hooks/useMe";
import { useSimulations } from "../../hooks/useSimulations";

export function Simulations({ experimentId }: { experimentId: string }) {
  const simulations = useSimulations(experimentId);
  const forbidden = useForbidden("write");
  const [draws, setDraws] = useState("50");
  const [trials, setTrials] = useState("20");
  const [job, setJob] = useState<Job | null>(null);
  const [error, setError] = useState<unknown>();
  const [isBusy, setBusy] = useState(false);
  const body = {
    n_draws: Number(draws),
    trials: Number(trials),
    policies: ["adaptive" as const, "random" as const],
    seed: 0,
  };

  async function simulate(event: FormEvent): Promise<void> {
    event.preventDefault();
    if (forbidden !== undefined || isBusy) return;
    setBusy(true);
    setError(undefined);
    try {
      const made = await api.post("/v1/experiments/{experiment_id}/simulations", {
        path: { experiment_id: experimentId },
        body,
      });
      setJob(made.job);
      simulations.reload();
    } catch (reason) {
      setError(reason);
    } finally {
      setBusy(false);
    }
  }

  return (
    <section className="stack" aria-labelledby="simulations">
      <h2 id="simulations">Before anybody is recruited</h2>
      <p>
        Simulated participants, their truths drawn from the prior, go through the experiment: once with the
        designs that teach most, once with random ones.
      </p>
      <form onSubmit={(event) => void simulate(event)}>
        <TextField
          label="Participants"
          type="number"
          min={1}
          max={10000}
          required
          value={draws}
          onChange={(event) => setDraws(event.target.value)}
        />
        <TextField
          label="Trials of each"
          type="number"
          min={1}
          max={1000}
          required
          value={trials}
          onChange={(event) => setTrials(event.target.value)}
        />
        <Button type="submit" forbidden={forbidden} isBusy={isBusy}>
          Simulate
        </Button>
        <CopyAsCurl method="POST" address={`/v1/experiments/${experimentId}/simulations`} body={body} />
      </form>
      {error !== undefined && <Failure error={error} />}
      {job !== null && <JobLine key={job.id} job={job} title="Simulation" onEnd={simulations.reload} />}
      <Loaded of={simulations}>
        {(found) => {
          const newest = found.find(({ curves }) => curves !== null);
          if (newest === undefined)
            return <p className="quiet">None yet. Fifty participants take seconds to minutes.</p>;
          return <Found simulation={newest} />;
        }}
      </Loaded>
    </section>
  );
}

function Found({ simulation }: { simulation: Simulation }) {
  const curves = simulation.curves ?? [];
  const names = Object.keys(curves[0]?.sd ?? {});
  const [chosen, choose] = useState<string | null>(null);
  const name = chosen !== null && names.includes(chosen) ? chosen : (names[0] ?? "");
  return (
    <div className="split">
      <div className="stack">
        {names.length > 1 && (
          <SelectField label="Shown" value={name} onChange={(event) => choose(event.target.value)}>
            {names.map((each) => (
              <option key={each} value={each}>
                {each}
              </option>
            ))}
          </SelectField>
        )}
        <SimulationCurve curves={curves} name={name} />
      </div>
      <div className="stack">
        <DataTable
          caption={`${name} after ${many((curves[0]?.sd[name]?.length ?? 1) - 1, "trial")}, ${count(curves[0]?.n_truths ?? 0)} participants, ${ago(simulation.created_at)}`}
          isCaptionShown
          columns={[
            { title: "designs", cell: ({ policy }) => policy },
            { title: "sd", isNumber: true, cell: ({ sd }) => number(sd[name]?.at(-1)) },
            { title: "error", isNumber: true, cell: ({ rmse }) => number(rmse[name]?.at(-1)) },
            {
              title: "in 95 %",
              isNumber: true,
              cell: ({ coverage }) => `${number(100 * (coverage[name]?.at(-1) ?? NaN))} %`,
            },
          ]}
          rows={curves}
          keyOf={({ policy }) => policy}
        />
        <p className="quiet">
          sd: what is still unknown; error: how far the estimate is from the truth; in 95 %: how often the
          truth lies in the interval that should hold it 95 times of 100.
        </p>
      </div>
    </div>
  );
}

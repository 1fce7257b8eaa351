/** How what is known of one parameter has narrowed, trial by trial. */
import { useMemo } from "react";
import type { Posterior, Trial } from "../../api/types";
import { Trace } from "../../charts/Trace";
import { traceOf } from "../../experiments/trace";

interface Props {
  name: string;
  prior: Posterior | undefined;
  trials: readonly Trial[];
}

export function Narrowing({ name, prior, trials }: Props) {
  const points = useMemo(() => traceOf(name, prior?.posterior, trials), [name, prior, trials]);
  return (
    <section className="stack" aria-label="How does it narrow?">
      <h2>How does it narrow?</h2>
      {points.length < 2 ? (
        <p className="quiet">Shown after the first trial.</p>
      ) : (
        <>
          <Trace name={name} points={points} />
          <p className="quiet">The median after each trial, with the central 50 and 95 %.</p>
        </>
      )}
    </section>
  );
}

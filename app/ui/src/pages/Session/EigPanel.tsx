/** What each design would teach; while it is computed anew the old curve stays, faded. */
import type { Proposal, Session, Trial } from "../../api/types";
import { Eig } from "../../charts/Eig";
import { Loaded, Skeleton } from "../../components/Loaded";
import { shapeOf } from "../../experiments/shape";
import { useEig } from "../../hooks/useEig";

interface Props {
  session: Session;
  proposal: Proposal | null;
  past: readonly Trial[];
}

export function EigPanel({ session, proposal, past }: Props) {
  const eig = useEig(session.id, session.form.designs, proposal?.id ?? null);
  const isMap = shapeOf(session.form.designs).kind === "map";
  return (
    <section className="stack" aria-label="What would a trial teach?">
      <h2>What would a trial teach?</h2>
      <Loaded of={eig} lines={6}>
        {(items) =>
          items.length === 0 ? (
            eig.isLoading ? (
              <>
                <Skeleton lines={6} />
                <p className="quiet">Being computed, design by design.</p>
              </>
            ) : (
              <p className="quiet">Shown once a design is proposed.</p>
            )
          ) : (
            <div className={eig.isLoading ? "faded" : undefined} aria-busy={eig.isLoading}>
              <Eig designs={session.form.designs} items={items} proposal={proposal} past={past} />
              <p className="quiet">
                ◆ next{isMap ? "; ✕ run before" : ", ◇ runner-up; ticks: run before"}. A fair yes-or-no
                question teaches at most 0.69 nats.
              </p>
            </div>
          )
        }
      </Loaded>
    </section>
  );
}

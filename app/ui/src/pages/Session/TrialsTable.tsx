/** Every trial, the newest first, with what it taught; the last can be taken back. */
import { useState } from "react";
import { send } from "../../api/client";
import type { Session, Trial } from "../../api/types";
import { Button } from "../../components/Button";
import { DataTable, type Column } from "../../components/DataTable";
import { Loaded } from "../../components/Loaded";
import { Failure } from "../../components/Notice";
import { assignments } from "../../experiments/words";
import { number } from "../../formats";
import { useForbidden } from "../../hooks/useMe";
import type { Resource } from "../../hooks/useResource";

interface Props {
  session: Session;
  trials: Resource<Trial[]>;
  onUndo: (n: number) => void;
  isBusy: boolean;
}

export function TrialsTable({ session, trials, onUndo, isBusy }: Props) {
  const mayNotUndoAny = useForbidden("write");
  const mayNotUndoLast = useForbidden("label");
  const columns = (last: number | undefined): Column<Trial>[] => [
    { title: "trial", isNumber: true, cell: ({ n }) => n },
    { title: "run", cell: ({ design }) => <span className="one-line">{assignments(design)}</span> },
    { title: "came out", cell: ({ outcome }) => <span className="one-line">{assignments(outcome)}</span> },
    { title: "promised", isNumber: true, cell: ({ eig }) => number(eig) },
    { title: "taught", isNumber: true, cell: ({ kl, is_stale }) => (is_stale ? "…" : number(kl)) },
    {
      title: "change",
      cell: (trial) =>
        session.status === "open" && (
          <Button
            kind="link"
            isBusy={isBusy}
            forbidden={trial.n === last ? mayNotUndoLast : mayNotUndoAny}
            aria-label={`${trial.n === last ? "undo" : "take back"} trial ${trial.n}`}
            onClick={() => onUndo(trial.n)}
          >
            <span className="one-line">{trial.n === last ? "undo" : "take back"}</span>
          </Button>
        ),
    },
  ];
  return (
    <section className="stack" aria-label="Trials">
      <div className="between">
        <h2>Trials</h2>
        {session.n_observations > 0 && <Csv session={session} />}
      </div>
      <Loaded of={trials}>
        {(found) =>
          found.length === 0 ? (
            <p className="quiet">None yet. Run what is proposed and enter what came out.</p>
          ) : (
            <>
              <DataTable
                caption="Trials, the newest first"
                columns={columns(found.at(-1)?.n)}
                rows={[...found].reverse()}
                keyOf={({ n }) => n}
              />
              <p className="quiet">
                Promised and taught in nats. The CSV has more: times, surprise, posteriors.
              </p>
            </>
          )
        }
      </Loaded>
    </section>
  );
}

/** By a request with the key, which a plain link would not carry. */
function Csv({ session }: { session: Session }) {
  const [error, setError] = useState<unknown>();
  const [isBusy, setBusy] = useState(false);

  async function download(): Promise<void> {
    setBusy(true);
    setError(undefined);
    try {
      const response = await send(`/v1/sessions/${session.id}/trials?format=csv`);
      const address = URL.createObjectURL(await response.blob());
      const link = document.createElement("a");
      link.href = address;
      link.download = `${session.name.replace(/[^\w.-]+/g, "-")}.csv`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(address), 10_000);
    } catch (reason) {
      setError(reason);
    } finally {
      setBusy(false);
    }
  }

  return (
    <>
      {error !== undefined && <Failure error={error} />}
      <Button isBusy={isBusy} onClick={() => void download()}>
        Download CSV
      </Button>
    </>
  );
}

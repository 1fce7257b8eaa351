/** The sessions of an experiment, and a form that opens another. */
import { useEffect, useState, type FormEvent } from "react";
import { Link, useLocation } from "wouter";
import { api, newRequestKey } from "../../api/client";
import type { SessionItem } from "../../api/types";
import { Button } from "../../components/Button";
import { DataTable } from "../../components/DataTable";
import { SelectField, TextField } from "../../components/Field";
import { Loaded } from "../../components/Loaded";
import { Failure } from "../../components/Notice";
import { ago, many } from "../../formats";
import { useForbidden } from "../../hooks/useMe";
import type { Resource } from "../../hooks/useResource";

interface Props {
  experimentId: string;
  sessions: Resource<SessionItem[]>;
}

export function Sessions({ experimentId, sessions }: Props) {
  return (
    <section className="stack" aria-labelledby="sessions">
      <h2 id="sessions">Sessions</h2>
      <Loaded of={sessions}>
        {(found) => (
          <>
            <NewSession
              experimentId={experimentId}
              nth={found.length + 1}
              hasOthers={found.some((each) => each.n_observations > 0)}
            />
            {found.length === 0 ? (
              <p className="quiet">None yet. Open one for each participant or sample.</p>
            ) : (
              <DataTable
                caption="Sessions, the newest first"
                columns={[
                  { title: "session", cell: ({ id, name }) => <Link href={`/s/${id}`}>{name}</Link> },
                  { title: "trials", isNumber: true, cell: ({ n_observations }) => n_observations },
                  { title: "state", cell: ({ status }) => (status === "closed" ? "closed" : "open") },
                  {
                    title: "began with",
                    cell: ({ n_prior_observations: n }) => (n === 0 ? "the prior" : many(n, "observation")),
                  },
                  { title: "opened", cell: ({ created_at }) => ago(created_at) },
                ]}
                rows={found}
                keyOf={({ id }) => id}
              />
            )}
          </>
        )}
      </Loaded>
    </section>
  );
}

function NewSession({
  experimentId,
  nth,
  hasOthers,
}: {
  experimentId: string;
  nth: number;
  hasOthers: boolean;
}) {
  const [, go] = useLocation();
  const forbidden = useForbidden("write");
  const [name, setName] = useState(`participant ${nth}`);
  const [prior, setPrior] = useState<"spec" | "pooled">("spec");
  const [error, setError] = useState<unknown>();
  const [isBusy, setBusy] = useState(false);
  // One wish, however often the button is pressed; another name is another wish.
  const [requestKey, setRequestKey] = useState(newRequestKey);
  useEffect(() => setRequestKey(newRequestKey()), [name, prior]);

  async function open(event: FormEvent): Promise<void> {
    event.preventDefault();
    if (forbidden !== undefined || isBusy) return;
    setBusy(true);
    setError(undefined);
    try {
      const made = await api.post("/v1/experiments/{experiment_id}/sessions", {
        path: { experiment_id: experimentId },
        body: { name, prior },
        headers: { "Idempotency-Key": requestKey },
      });
      go(`/s/${made.id}`);
    } catch (reason) {
      setError(reason);
      setBusy(false);
    }
  }

  return (
    <form onSubmit={(event) => void open(event)}>
      <TextField
        label="Who, or what"
        value={name}
        maxLength={200}
        required
        onChange={(event) => setName(event.target.value)}
      />
      {hasOthers && (
        <SelectField
          label="Begins with"
          value={prior}
          onChange={(event) => setPrior(event.target.value as "spec" | "pooled")}
        >
          <option value="spec">the prior of the spec</option>
          <option value="pooled">what all other sessions observed</option>
        </SelectField>
      )}
      <Button kind="primary" type="submit" forbidden={forbidden} isBusy={isBusy}>
        Open a session
      </Button>
      {error !== undefined && <Failure error={error} />}
    </form>
  );
}

/** Who else may use the service: keys are made, handed on and revoked by admins. */
import { useState } from "react";
import { allItems, api } from "../../api/client";
import { sentence } from "../../api/problem";
import type { Key, NewKey } from "../../api/types";
import { Button } from "../../components/Button";
import { DataTable } from "../../components/DataTable";
import { Dialog } from "../../components/Dialog";
import { Loaded } from "../../components/Loaded";
import { ago, date, many } from "../../formats";
import { useForbidden, useMe } from "../../hooks/useMe";
import { useResource } from "../../hooks/useResource";
import { NewKeyForm } from "./NewKeyForm";
import { Secret } from "./Secret";

export function Keys() {
  const forbidden = useForbidden("admin");
  const { project_ids } = useMe();
  if (forbidden !== undefined) {
    return <p className="quiet">{forbidden} Ask whoever started the service for another key.</p>;
  }
  return project_ids === null ? <AllKeys /> : <OwnKeys />;
}

/** A key that is bound to projects can make keys for these, but not list all. */
function OwnKeys() {
  const [made, setMade] = useState<NewKey>();
  return (
    <>
      <p className="quiet">
        This key is bound to projects: it can make keys for them, but not list all keys.
      </p>
      <Making made={made} onMade={setMade} onClose={() => setMade(undefined)} />
    </>
  );
}

function AllKeys() {
  const keys = useResource("keys", (signal) =>
    allItems((cursor) => api.get("/v1/keys", { query: { cursor, limit: 100, order: "desc" }, signal })),
  );
  const [made, setMade] = useState<NewKey>();
  const [asked, setAsked] = useState<Key>();
  return (
    <>
      <Making
        made={made}
        onMade={(key) => {
          setMade(key);
          keys.reload();
        }}
        onClose={() => setMade(undefined)}
      />
      <Loaded of={keys}>
        {(all) => {
          const [valid, over] = [all.filter(isValid), all.filter((key) => !isValid(key))];
          return (
            <>
              <KeyTable caption="Keys in use" keys={valid} onRevoke={setAsked} />
              {over.length > 0 && (
                <details>
                  <summary>{many(over.length, "key")} revoked or expired</summary>
                  <KeyTable caption="Keys that are over" keys={over} />
                </details>
              )}
            </>
          );
        }}
      </Loaded>
      {asked !== undefined && (
        <Revoking asked={asked} onClose={() => setAsked(undefined)} onRevoked={keys.reload} />
      )}
    </>
  );
}

function isValid({ revoked_at, expires_at }: Key): boolean {
  return revoked_at === null && (expires_at === null || Date.parse(expires_at) > Date.now());
}

function KeyTable({
  caption,
  keys,
  onRevoke,
}: {
  caption: string;
  keys: Key[];
  onRevoke?: (key: Key) => void;
}) {
  const end = ({ revoked_at, expires_at }: Key) =>
    revoked_at !== null ? `revoked ${ago(revoked_at)}` : expires_at === null ? "never" : date(expires_at);
  const columns = [
    { title: "Name", cell: (key: Key) => key.name },
    { title: "May", cell: (key: Key) => key.scopes.join(", ") },
    {
      title: "Sees",
      cell: (key: Key) => (key.project_ids === null ? "all" : many(key.project_ids.length, "project")),
    },
    { title: "Made", cell: (key: Key) => ago(key.created_at) },
    { title: "Ends", cell: end },
  ];
  const revoke = {
    title: "Revoke",
    cell: (key: Key) => (
      <Button kind="link" onClick={() => onRevoke?.(key)} aria-label={`Revoke ${key.name}`}>
        Revoke
      </Button>
    ),
  };
  return (
    <DataTable
      caption={caption}
      columns={onRevoke === undefined ? columns : [...columns, revoke]}
      rows={keys}
      keyOf={({ id }) => id}
    />
  );
}

interface MakingProps {
  made: NewKey | undefined;
  onMade: (key: NewKey) => void;
  onClose: () => void;
}

function Making({ made, onMade, onClose }: MakingProps) {
  const [isOpen, setOpen] = useState(false);
  return (
    <>
      <div>
        <Button onClick={() => setOpen(true)}>Make a key</Button>
      </div>
      {isOpen && (
        <Dialog title="A new key" onClose={() => setOpen(false)}>
          <NewKeyForm
            onMade={(key) => {
              setOpen(false);
              onMade(key);
            }}
            onClose={() => setOpen(false)}
          />
        </Dialog>
      )}
      {made !== undefined && <Secret made={made} onClose={onClose} />}
    </>
  );
}

function Revoking({ asked, onClose, onRevoked }: { asked: Key; onClose: () => void; onRevoked: () => void }) {
  const [error, setError] = useState<string>();
  const [isBusy, setBusy] = useState(false);

  async function revoke(): Promise<void> {
    setBusy(true);
    try {
      await api.delete("/v1/keys/{key_id}", { path: { key_id: asked.id } });
      onRevoked();
      onClose();
    } catch (reason) {
      setError(sentence(reason));
      setBusy(false);
    }
  }

  return (
    <Dialog title={`Revoke “${asked.name}”?`} onClose={onClose}>
      <p>Whoever uses it is refused from now on, and it cannot be brought back. What it made stays.</p>
      {error !== undefined && (
        <p className="bad" role="alert">
          {error}
        </p>
      )}
      <div className="row">
        <Button kind="danger" isBusy={isBusy} onClick={() => void revoke()}>
          Revoke
        </Button>
        <Button onClick={onClose}>Keep</Button>
      </div>
    </Dialog>
  );
}

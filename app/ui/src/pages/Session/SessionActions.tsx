/** A session's link for its participant, and its end. */
import { useState } from "react";
import { api } from "../../api/client";
import { sentence } from "../../api/problem";
import type { Session } from "../../api/types";
import { Button } from "../../components/Button";
import { useForbidden } from "../../hooks/useMe";
import { ParticipantLink } from "./ParticipantLink";

export function SessionActions({ session, onChange }: { session: Session; onChange: () => void }) {
  const forbidden = useForbidden("write");
  const [isLinking, setLinking] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<string>();
  const isOpen = session.status === "open";

  async function toggle(): Promise<void> {
    setBusy(true);
    setError(undefined);
    try {
      await api.patch("/v1/sessions/{session_id}", {
        path: { session_id: session.id },
        body: { closed: isOpen },
      });
      onChange();
    } catch (reason) {
      setError(sentence(reason));
    } finally {
      setBusy(false);
    }
  }

  return (
    <div className="stack tight">
      <div className="row">
        {isOpen && (
          <Button forbidden={forbidden} onClick={() => setLinking(true)}>
            Participant link
          </Button>
        )}
        <Button forbidden={forbidden} isBusy={isBusy} onClick={() => void toggle()}>
          {isOpen ? "Close session" : "Open again"}
        </Button>
      </div>
      {error !== undefined && (
        <p className="bad" role="alert">
          {error}
        </p>
      )}
      {isLinking && <ParticipantLink sessionId={session.id} onClose={() => setLinking(false)} />}
    </div>
  );
}

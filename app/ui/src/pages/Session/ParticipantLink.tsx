/** A link with which somebody runs this session and sees nothing else; shown once. */
import { useState } from "react";
import { api } from "../../api/client";
import { sentence } from "../../api/problem";
import { Button } from "../../components/Button";
import { Dialog } from "../../components/Dialog";
import { Notice } from "../../components/Notice";

export function ParticipantLink({ sessionId, onClose }: { sessionId: string; onClose: () => void }) {
  const [link, setLink] = useState<string | null>(null);
  const [isRevoked, setRevoked] = useState(false);
  const [isCopied, setCopied] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<string>();
  const path = { session_id: sessionId };

  async function act(work: () => Promise<void>): Promise<void> {
    setBusy(true);
    setError(undefined);
    setCopied(false);
    try {
      await work();
    } catch (reason) {
      setError(sentence(reason));
    } finally {
      setBusy(false);
    }
  }

  const issue = () =>
    act(async () => {
      const { token } = await api.post("/v1/sessions/{session_id}/token", { path });
      setRevoked(false);
      setLink(`${location.origin}/run/${sessionId}#token=${token}`);
    });
  const revoke = () =>
    act(async () => {
      await api.delete("/v1/sessions/{session_id}/token", { path });
      setLink(null);
      setRevoked(true);
    });
  const copy = () =>
    navigator.clipboard?.writeText(link ?? "").then(
      () => setCopied(true),
      () => setError("The browser does not let the page copy. Select the link and copy it."),
    );

  return (
    <Dialog title="A link for the participant" onClose={onClose}>
      <p>Whoever opens it can run this session and nothing else. It is shown once.</p>
      {link === null ? (
        <p className="quiet">Making a new one ends the one before.</p>
      ) : (
        <pre className="secret" tabIndex={0} aria-label="The participant's link">
          {link}
        </pre>
      )}
      {isRevoked && <Notice kind="good">No link works any more.</Notice>}
      {error !== undefined && <Notice kind="bad">{error}</Notice>}
      <div className="row">
        {link !== null && navigator.clipboard !== undefined && (
          <Button kind="primary" onClick={() => void copy()}>
            {isCopied ? "Copied" : "Copy"}
          </Button>
        )}
        <Button kind={link === null ? "primary" : "plain"} isBusy={isBusy} onClick={() => void issue()}>
          {link === null ? "Make a link" : "Make another"}
        </Button>
        <Button kind="danger" isBusy={isBusy} onClick={() => void revoke()}>
          Revoke
        </Button>
        <Button onClick={onClose}>Close</Button>
      </div>
    </Dialog>
  );
}

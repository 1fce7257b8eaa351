/** The three ways to begin. */
import { useState } from "react";
import { useLocation } from "wouter";
import { api, newRequestKey } from "../../api/client";
import { Button, ButtonLink } from "../../components/Button";
import { CopyAsCurl } from "../../components/CopyAsCurl";
import { Failure } from "../../components/Notice";
import { useForbidden, useMe } from "../../hooks/useMe";

const DIGITS = { name: "digits" } as const;

export function Beginnings() {
  const [, go] = useLocation();
  const { name, project_ids } = useMe();
  const tooSmall = useForbidden("write");
  const isBound =
    project_ids === null ? undefined : `The key “${name}” is bound to projects and cannot make others.`;
  const forbidden = tooSmall ?? isBound;
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  // One wish, however often the button is pressed or the answer is lost.
  const [requestKey] = useState(newRequestKey);

  async function tryDigits(): Promise<void> {
    setBusy(true);
    setError(undefined);
    try {
      const { project } = await api.post("/v1/examples", {
        body: DIGITS,
        headers: { "Idempotency-Key": requestKey },
      });
      go(`/p/${project.id}`);
    } catch (reason) {
      setError(reason);
      setBusy(false);
    }
  }

  return (
    <>
      <div className="row beginnings">
        <Button kind="primary" forbidden={forbidden} isBusy={isBusy} onClick={() => void tryDigits()}>
          {isBusy ? "Making it…" : "Try it on digits"}
        </Button>
        {forbidden === undefined ? (
          <ButtonLink href="/new">Start your own</ButtonLink>
        ) : (
          <Button forbidden={forbidden}>Start your own</Button>
        )}
        <ButtonLink href="/experiments">Design an experiment</ButtonLink>
      </div>
      <p className="quiet small">
        Digits: 1,797 small pictures, 20 of them labelled. Label twenty more and watch it learn; it takes a
        minute, and no file. {forbidden !== undefined && <strong>{forbidden} </strong>}
        <CopyAsCurl method="POST" address="/v1/examples" body={DIGITS} />
      </p>
      {error !== undefined && <Failure error={error} onRetry={() => void tryDigits()} />}
    </>
  );
}

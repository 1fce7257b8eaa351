/** The request behind a button, to be pasted into a terminal: what the page can do, a script can do. */
import { useState } from "react";
import { Button } from "./Button";
import { Dialog } from "./Dialog";

interface Props {
  method: "GET" | "POST" | "PATCH" | "PUT" | "DELETE";
  /** From /v1 on. */
  address: string;
  body?: unknown;
}

export function curlOf({ method, address, body }: Props): string {
  const lines = [
    `curl -X ${method} "${location.origin}${address}"`,
    `  -H "Authorization: Bearer $BENSEMBLE_API_KEY"`,
  ];
  if (body !== undefined) {
    lines.push(
      `  -H "Content-Type: application/json"`,
      `  -d '${JSON.stringify(body).replaceAll("'", "'\\''")}'`,
    );
  }
  return lines.join(" \\\n");
}

export function CopyAsCurl(props: Props) {
  const [isShown, setShown] = useState(false);
  const [isCopied, setCopied] = useState(false);
  const text = curlOf(props);
  // http://lab-host has no clipboard: there the text is shown, to be selected.
  const copy = () =>
    navigator.clipboard?.writeText(text).then(
      () => setCopied(true),
      () => undefined,
    );
  return (
    <>
      <Button kind="link" onClick={() => setShown(true)}>
        Copy as curl
      </Button>
      {isShown && (
        <Dialog title="The same from a terminal" onClose={() => setShown(false)}>
          <pre tabIndex={0}>{text}</pre>
          <p className="quiet">Put your key into BENSEMBLE_API_KEY first.</p>
          <div className="row">
            {navigator.clipboard !== undefined && (
              <Button kind="primary" onClick={() => void copy()}>
                {isCopied ? "Copied" : "Copy"}
              </Button>
            )}
            <Button onClick={() => setShown(false)}>Close</Button>
          </div>
        </Dialog>
      )}
    </>
  );
}

/** A new key's secret: shown once, since the service keeps only its digest. */
import { useState } from "react";
import type { NewKey } from "../../api/types";
import { Button } from "../../components/Button";
import { Dialog } from "../../components/Dialog";

export function Secret({ made, onClose }: { made: NewKey; onClose: () => void }) {
  const [copied, setCopied] = useState("");
  const link = `${location.origin}/#key=${made.key}`;
  // http://lab-host has no clipboard: there the text is selected by hand.
  const copy = (name: string, text: string) =>
    void navigator.clipboard?.writeText(text).then(
      () => setCopied(name),
      () => undefined,
    );
  return (
    <Dialog title={`The key “${made.name}”`}>
      <p>Copy it now: it is shown this once, and the service keeps only its digest.</p>
      <pre tabIndex={0} aria-label="Key">
        {made.key}
      </pre>
      <p className="quiet">Or a link that signs in by itself. Whoever has it, has the key:</p>
      <pre tabIndex={0} aria-label="Link">
        {link}
      </pre>
      <div className="row">
        {navigator.clipboard !== undefined && (
          <>
            <Button kind="primary" onClick={() => copy("key", made.key)}>
              {copied === "key" ? "Copied" : "Copy key"}
            </Button>
            <Button onClick={() => copy("link", link)}>{copied === "link" ? "Copied" : "Copy link"}</Button>
          </>
        )}
        <Button onClick={onClose}>I have it</Button>
      </div>
    </Dialog>
  );
}

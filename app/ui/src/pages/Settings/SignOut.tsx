/** Forgets the key in every tab; labels that were not sent yet stay in this browser, and it says so. */
import { useState } from "react";
import { signOut, useCredentials } from "../../api/credentials";
import { Button } from "../../components/Button";
import { Dialog } from "../../components/Dialog";
import { many } from "../../formats";
import { unsentLabels } from "../../labelling/queue";

export function SignOut() {
  const { key } = useCredentials();
  const [waiting, setWaiting] = useState(0);
  const [isAsked, setAsked] = useState(false);

  function leave(): void {
    const unsent = unsentLabels(localStorage);
    if (unsent === 0) return signOut();
    setWaiting(unsent);
    setAsked(true);
  }

  if (key === null)
    return <p className="quiet">This service asks for no key: there is nothing to sign out of.</p>;
  return (
    <>
      <p className="quiet">All tabs of this browser forget the key. Closing the last tab does the same.</p>
      <div>
        <Button onClick={leave}>Sign out</Button>
      </div>
      {isAsked && (
        <Dialog title={`${many(waiting, "label")} not sent yet`} onClose={() => setAsked(false)}>
          <p>They stay in this browser, and are sent when the same annotator signs in here again.</p>
          <div className="row">
            <Button kind="primary" onClick={() => setAsked(false)}>
              Stay
            </Button>
            <Button kind="danger" onClick={signOut}>
              Sign out all the same
            </Button>
          </div>
        </Dialog>
      )}
    </>
  );
}

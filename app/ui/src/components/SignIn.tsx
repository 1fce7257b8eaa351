/** Asks for an API key, and tries it before it is taken. */
import { useState, type FormEvent, type ReactNode } from "react";
import { api } from "../api/client";
import { keyIn, signIn } from "../api/credentials";
import { Problem, sentence } from "../api/problem";
import { Button } from "./Button";
import { TextField } from "./Field";

const PRINTED = (
  <>
    Paste what <code>make up</code> printed: the key, or the whole link.
  </>
);

export function SignIn({ hint = PRINTED }: { hint?: ReactNode }) {
  const [text, setText] = useState("");
  const [error, setError] = useState<string>();
  const [isBusy, setBusy] = useState(false);

  async function open(event: FormEvent): Promise<void> {
    event.preventDefault();
    if (isBusy) return;
    const key = keyIn(text);
    if (key === "") return setError("Paste a key first.");
    setBusy(true);
    setError(undefined);
    try {
      await api.get("/v1/me", { token: key });
      signIn(key);
    } catch (reason) {
      const isWrong = reason instanceof Problem && reason.status === 401;
      setError(isWrong ? `The service does not take this key: ${reason.detail}.` : sentence(reason));
    } finally {
      setBusy(false);
    }
  }

  return (
    <form className="stack" onSubmit={(event) => void open(event)}>
      <TextField
        label="API key"
        type="password"
        autoComplete="current-password"
        value={text}
        onChange={(event) => setText(event.target.value)}
        help={hint}
        error={error}
      />
      <div>
        <Button kind="primary" type="submit" isBusy={isBusy}>
          Open
        </Button>
      </div>
    </form>
  );
}

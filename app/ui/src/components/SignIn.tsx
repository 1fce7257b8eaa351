/** Asks for an API key, and tries it before it is taken. */
import { useState, type FormEvent } from "react";
import { api } from "../api/client";
import { signIn } from "../api/credentials";
import { sentence } from "../api/problem";
import { Button } from "./Button";
import { TextField } from "./Field";

export function SignIn({ hint = "Paste what `make up` printed." }: { hint?: string }) {
  const [key, setKey] = useState("");
  const [error, setError] = useState<string>();
  const [isBusy, setBusy] = useState(false);

  async function open(event: FormEvent): Promise<void> {
    event.preventDefault();
    setBusy(true);
    try {
      await api.get("/v1/me", { token: key.trim() });
      signIn(key.trim());
    } catch (reason) {
      setError(sentence(reason));
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
        value={key}
        onChange={(event) => setKey(event.target.value)}
        help={hint}
        error={error}
        required
      />
      <div>
        <Button kind="primary" type="submit" isBusy={isBusy}>
          Open
        </Button>
      </div>
    </form>
  );
}

/** Something that a button asks of the service: whether it is under way, and what was refused. */
import { useState } from "react";

export interface Action<Args extends unknown[]> {
  run: (...args: Args) => Promise<void>;
  isBusy: boolean;
  error: unknown;
  forget: () => void;
}

export function useAction<Args extends unknown[]>(ask: (...args: Args) => Promise<void>): Action<Args> {
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(undefined);
  return {
    isBusy,
    error,
    forget: () => setError(undefined),
    run: async (...args) => {
      if (isBusy) return;
      setBusy(true);
      setError(undefined);
      try {
        await ask(...args);
      } catch (reason) {
        setError(reason);
      } finally {
        setBusy(false);
      }
    },
  };
}

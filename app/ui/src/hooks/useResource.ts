/** Something the service has, read when the address changes and whenever `reload` is called. */
import { useCallback, useEffect, useRef, useState } from "react";

export interface Resource<T> {
  data: T | undefined;
  error: unknown;
  isLoading: boolean;
  reload: () => void;
}

/**
 * `address` says what is read: another one forgets what was there; null reads nothing. While the same is read again,
 * what is there stays, and a failure then keeps it and is told beside it.
 */
export function useResource<T>(
  address: string | null,
  load: (signal: AbortSignal) => Promise<T>,
): Resource<T> {
  const [found, setFound] = useState<{ address: string | null; data?: T; error?: unknown }>({
    address: null,
  });
  const [isLoading, setLoading] = useState(address !== null);
  const [turn, setTurn] = useState(0);
  const newest = useRef(load);
  useEffect(() => {
    newest.current = load;
  });

  useEffect(() => {
    if (address === null) return;
    const stop = new AbortController();
    setLoading(true);
    newest
      .current(stop.signal)
      .then((data) => setFound({ address, data }))
      .catch((error: unknown) => {
        if (stop.signal.aborted) return;
        setFound((before) => (before.address === address ? { ...before, error } : { address, error }));
      })
      .finally(() => {
        if (!stop.signal.aborted) setLoading(false);
      });
    return () => stop.abort();
  }, [address, turn]);

  const reload = useCallback(() => setTurn((before) => before + 1), []);
  const isOurs = found.address === address && address !== null;
  return {
    data: isOurs ? found.data : undefined,
    error: isOurs ? found.error : undefined,
    isLoading: address !== null && (isLoading || !isOurs),
    reload,
  };
}

/** Server-sent events by `fetch`, since EventSource sends no Authorization header. */
export interface Message {
  event: string;
  data: string;
}

/** Takes pieces of text as they arrive and gives the messages that are complete; comments are passed over. */
export function messageReader(): (piece: string) => Message[] {
  let rest = "";
  return (piece) => {
    const blocks = (rest + piece.replaceAll("\r\n", "\n")).split("\n\n");
    rest = blocks.pop() ?? "";
    return blocks.map(messageOf).filter((message) => message !== null);
  };
}

function messageOf(block: string): Message | null {
  let event = "message";
  const data: string[] = [];
  for (const line of block.split("\n")) {
    const at = line.indexOf(":");
    const value = line.slice(at + 1).replace(/^ /, "");
    if (line.startsWith("event:")) event = value;
    else if (line.startsWith("data:")) data.push(value);
  }
  return data.length === 0 ? null : { event, data: data.join("\n") };
}

export const SILENCE_SECONDS = 40;

interface Following {
  open: (signal: AbortSignal) => Promise<Response>;
  onMessage: (message: Message) => void;
  /** True while messages can arrive. */
  onState?: (isOpen: boolean) => void;
  silenceSeconds?: number;
}

/** Follows a stream until it is stopped; opens it again when it ends, breaks or is silent for too long. */
export function follow({
  open,
  onMessage,
  onState,
  silenceSeconds = SILENCE_SECONDS,
}: Following): () => void {
  const stopped = new AbortController();
  void keepOpen();
  return () => stopped.abort();

  async function keepOpen(): Promise<void> {
    let failures = 0;
    while (!stopped.signal.aborted) {
      const heard = await once();
      onState?.(false);
      failures = heard ? 0 : failures + 1;
      await pause(Math.min(30, 2 ** failures) * 1000 * (heard ? 0.5 : 1), stopped.signal);
    }
  }

  /** Whether anything was heard before it ended. */
  async function once(): Promise<boolean> {
    const attempt = new AbortController();
    const stop = () => attempt.abort();
    stopped.signal.addEventListener("abort", stop);
    let silence = setTimeout(stop, silenceSeconds * 1000);
    let heard = false;
    try {
      const response = await open(attempt.signal);
      const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
      const read = messageReader();
      onState?.(true);
      for (;;) {
        const piece = await reader?.read();
        if (piece === undefined || piece.done) return heard;
        heard = true;
        clearTimeout(silence);
        silence = setTimeout(stop, silenceSeconds * 1000);
        for (const message of read(piece.value)) onMessage(message);
      }
    } catch {
      return heard; // whatever broke it: it is opened again
    } finally {
      clearTimeout(silence);
      stopped.signal.removeEventListener("abort", stop);
      attempt.abort();
    }
  }
}

function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}

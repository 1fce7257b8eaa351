import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { follow, messageReader, type Message } from "./stream";

describe("messages in pieces of text", () => {
  test("a message is given when it is complete", () => {
    const read = messageReader();
    expect(read("event: jo")).toEqual([]);
    expect(read('b\ndata: {"a":')).toEqual([]);
    expect(read(" 1}\n")).toEqual([]);
    expect(read("\nevent: ready\ndata: {}\n\n")).toEqual([
      { event: "job", data: '{"a": 1}' },
      { event: "ready", data: "{}" },
    ]);
  });

  test("comments are passed over, lines of data are joined", () => {
    const read = messageReader();
    expect(read(": still here\n\n: again\ndata: a\ndata: b\n\n")).toEqual([
      { event: "message", data: "a\nb" },
    ]);
  });
});

describe("a stream that is followed", () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  function bodyOf(text: string, signal: AbortSignal): ReadableStream<Uint8Array> {
    return new ReadableStream({
      start(controller) {
        controller.enqueue(new TextEncoder().encode(text));
        signal.addEventListener("abort", () => controller.error(new Error("stopped")));
      },
    });
  }

  test("silence opens it again, and stopping ends it", async () => {
    const heard: Message[] = [];
    const signals: AbortSignal[] = [];
    const stop = follow({
      open: async (signal) => {
        signals.push(signal);
        return new Response(bodyOf("data: hello\n\n", signal));
      },
      onMessage: (message) => heard.push(message),
    });
    await vi.advanceTimersByTimeAsync(1000);
    expect([signals.length, heard.length]).toEqual([1, 1]);
    await vi.advanceTimersByTimeAsync(38_000);
    expect(signals.length).toBe(1);
    await vi.advanceTimersByTimeAsync(4000);
    expect([signals.length, heard.length]).toEqual([2, 2]);
    expect(signals[0]?.aborted).toBe(true);
    stop();
    await vi.advanceTimersByTimeAsync(120_000);
    expect(signals.length).toBe(2);
  });

  test("what does not open is tried ever more rarely", async () => {
    let n = 0;
    const stop = follow({
      open: () => {
        n += 1;
        return Promise.reject(new Error("no service"));
      },
      onMessage: () => undefined,
    });
    await vi.advanceTimersByTimeAsync(15_000); // at 0, 2, 6, 14 s
    expect(n).toBe(4);
    stop();
  });
});

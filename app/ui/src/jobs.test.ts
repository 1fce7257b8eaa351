import { describe, expect, test } from "vitest";
import { jobTitle, progressWords, secondsLeft, trouble, withSample, type Sample } from "./jobs";

const steps = (...pairs: [number, number][]): Sample[] =>
  pairs.map(([at, done]) => ({ at, done, total: 500 }));

describe("time left", () => {
  test("is what remains at the pace of the samples, less what has passed since the last", () => {
    const samples = steps([0, 100], [5000, 200], [10_000, 310]);
    expect(secondsLeft(samples, 10_000)).toBeCloseTo(190 / 21);
    expect(secondsLeft(samples, 12_000)).toBeCloseTo(190 / 21 - 2);
    expect(secondsLeft(samples, 90_000)).toBe(0);
  });

  test("is not known from one sample, nor where nothing moves", () => {
    expect(secondsLeft([], 0)).toBeNull();
    expect(secondsLeft(steps([0, 100]), 1000)).toBeNull();
    expect(secondsLeft(steps([0, 100], [1000, 100]), 1000)).toBeNull();
  });

  test("rests on the last ten samples of a phase", () => {
    let samples: Sample[] = [];
    for (let i = 0; i < 14; i += 1) samples = withSample(samples, { at: 1000 * i, done: i, total: 500 });
    expect(samples.map(({ done }) => done)).toEqual([4, 5, 6, 7, 8, 9, 10, 11, 12, 13]);
    expect(withSample(samples, { at: 15_000, done: 0, total: 200 })).toHaveLength(1);
    expect(withSample(samples, { at: 15_000, done: 2, total: 500 })).toHaveLength(1);
    expect(withSample(samples, { at: 15_000, done: 13, total: 500 })).toEqual(samples);
  });
});

describe("words", () => {
  const progress = { done: 310, total: 500, message: "epoch 31 of 50" };

  test("say how far and how long yet", () => {
    expect(progressWords({ kind: "train_ensemble", progress }, 12)).toBe("310 of 500 steps · 0:12 left");
    expect(progressWords({ kind: "train_ensemble", progress }, null)).toBe("310 of 500 steps");
    expect(
      progressWords({ kind: "propose", progress: { done: 0, total: 1, message: "computing" } }, null),
    ).toBe("computing");
    const few = { done: 2.7, total: 5, message: "training on random rows, for comparison" };
    expect(progressWords({ kind: "train_ensemble", progress: few }, 3)).toBe("2 of 5 parts · 0:03 left");
  });

  test("name kinds that are not known by their own name", () => {
    expect(jobTitle("train_ensemble")).toBe("Training");
    expect(jobTitle("score_shard")).toBe("Score shard");
  });
});

describe("trouble", () => {
  const now = Date.parse("2026-11-18T12:00:00Z");
  const job = {
    status: "running" as const,
    attempts: 1,
    max_attempts: 5,
    error: null,
    heartbeat_at: "2026-11-18T11:59:55Z",
    run_at: "2026-11-18T11:59:00Z",
  };
  const lost = { type: "lease-lapsed", title: "Worker lost", detail: "worker a fell silent" };

  test("is none where a first attempt runs", () => expect(trouble(job, now, now)).toBeNull());

  test("tells of a second attempt and why there is one", () => {
    expect(trouble({ ...job, attempts: 2, error: lost }, now, now)).toBe(
      "worker lost, trying again · attempt 2 of 5",
    );
  });

  test("tells of the pause before the next attempt", () => {
    const waiting = { ...job, status: "queued" as const, error: lost, run_at: "2026-11-18T12:00:08Z" };
    expect(trouble(waiting, now, now)).toBe("worker lost, trying again in 0:08 · attempt 2 of 5");
  });

  test("tells of a silent worker only where this tab has heard nothing either", () => {
    const silent = { ...job, heartbeat_at: "2026-11-18T11:58:00Z" };
    expect(trouble(silent, now - 60_000, now)).toContain("no word from its worker for 1:00");
    expect(trouble(silent, now - 5000, now)).toBeNull();
  });
});

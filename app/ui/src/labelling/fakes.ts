/** A clock, a storage and a network that tests command. */
import type { Clock } from "./clock";

export class FakeClock implements Clock {
  time: number;
  private waiting: { at: number; call: () => void }[] = [];

  constructor(time = 1_000_000) {
    this.time = time;
  }

  now = () => this.time;

  after = (milliseconds: number, call: () => void) => {
    const timer = { at: this.time + milliseconds, call };
    this.waiting.push(timer);
    return () => {
      this.waiting = this.waiting.filter((other) => other !== timer);
    };
  };

  /** Lets time pass, and with it whatever answers were under way. */
  async pass(milliseconds: number): Promise<void> {
    const end = this.time + milliseconds;
    await settled();
    for (;;) {
      const due = this.waiting.filter(({ at }) => at <= end).sort((one, other) => one.at - other.at)[0];
      if (due === undefined) break;
      this.waiting = this.waiting.filter((other) => other !== due);
      this.time = Math.max(this.time, due.at);
      due.call();
      await settled();
    }
    this.time = end;
  }

  /** As a machine that slept: time has passed, and no timer was called. */
  sleep(milliseconds: number): void {
    this.time += milliseconds;
  }
}

/** Lets promises that are ready call on. */
export async function settled(): Promise<void> {
  for (let i = 0; i < 20; i++) await Promise.resolve();
}

/** Several tabs share one; `isFull` is a storage that takes no more. */
export class FakeStorage implements Storage {
  readonly texts = new Map<string, string>();
  isFull = false;
  nWrites = 0;
  [name: string]: unknown;

  get length(): number {
    return this.texts.size;
  }
  key = (index: number) => [...this.texts.keys()][index] ?? null;
  getItem = (name: string) => this.texts.get(name) ?? null;
  setItem = (name: string, text: string) => {
    if (this.isFull) throw new DOMException("full", "QuotaExceededError");
    this.nWrites += 1;
    this.texts.set(name, text);
  };
  removeItem = (name: string) => {
    this.texts.delete(name);
  };
  clear = () => this.texts.clear();
}

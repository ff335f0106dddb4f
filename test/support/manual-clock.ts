import type { Clock } from "../../src/lib/clock.js";

/** A clock that moves only by hand: sleeps end when `advance` passes their time. */
export class ManualClock implements Clock {
  #nowMs = 0;
  readonly #sleepers = new Set<{ readonly dueMs: number; readonly wake: () => void }>();
  #watchers: { readonly ms: number; readonly resolve: () => void }[] = [];

  now(): Date {
    return new Date(Date.UTC(2026, 0, 1) + this.#nowMs);
  }

  monotonicMs(): number {
    return this.#nowMs;
  }

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason as Error);
      const sleeper = { dueMs: this.#nowMs + ms, wake: () => settle(resolve) };
      const onAbort = (): void => settle(() => reject(signal?.reason as Error));
      const settle = (then: () => void): void => {
        this.#sleepers.delete(sleeper);
        signal?.removeEventListener("abort", onAbort);
        then();
      };
      signal?.addEventListener("abort", onAbort, { once: true });
      this.#sleepers.add(sleeper);
      this.#watchers = this.#watchers.filter((watcher) => watcher.ms !== ms || (watcher.resolve(), false));
    });
  }

  /** Resolves when the next sleep of exactly `ms` begins. */
  sleepBegins(ms: number): Promise<void> {
    return new Promise((resolve) => this.#watchers.push({ ms, resolve }));
  }

  /** Moves time on and wakes who is due, in the order of their times. */
  advance(ms: number): void {
    this.#nowMs += ms;
    const due = [...this.#sleepers].filter((sleeper) => sleeper.dueMs <= this.#nowMs);
    for (const sleeper of due.sort((a, b) => a.dueMs - b.dueMs)) sleeper.wake();
  }

  /** How many sleep now; 0 at the end of a test means that no timer was left behind. */
  get sleeping(): number {
    return this.#sleepers.size;
  }
}

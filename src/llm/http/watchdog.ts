/**
 * Ends a call whose provider keeps it waiting. Time counts only while we wait for the provider: a slow reader of ours
 * never looks like a stalled provider. One sleeping timer per call, whatever the number of reads.
 */
import type { Clock } from "../../lib/clock.js";

export interface WatchdogLimit {
  readonly ms: number;
  /** Called once when the wait was longer than `ms`. */
  readonly expire: () => void;
}

/** How soon an overdue limit is looked at again while nobody waits. */
const RECHECK_MS = 250;

export class Watchdog {
  readonly #clock: Clock;
  readonly #stopped = new AbortController();
  #limit: WatchdogLimit;
  /** When the limit began to count. */
  #since: number;
  #waiting = true;
  #wake: AbortController | undefined;

  constructor(clock: Clock, limit: WatchdogLimit) {
    this.#clock = clock;
    this.#limit = limit;
    this.#since = clock.monotonicMs();
    void this.#run();
  }

  /** Changes what is waited for; counts from now. */
  setLimit(limit: WatchdogLimit): void {
    this.#limit = limit;
    this.#since = this.#clock.monotonicMs();
    this.#wake?.abort();
  }

  /** A read begins. `restart` = the time before it does not count. */
  waiting(restart: boolean): void {
    this.#waiting = true;
    if (restart) this.#since = this.#clock.monotonicMs();
  }

  /** The read brought something. */
  arrived(): void {
    this.#waiting = false;
  }

  stop(): void {
    this.#stopped.abort();
    this.#wake?.abort();
  }

  async #run(): Promise<void> {
    while (!this.#stopped.signal.aborted) {
      const left = this.#since + this.#limit.ms - this.#clock.monotonicMs();
      if (left <= 0 && this.#waiting) {
        this.#limit.expire();
        return;
      }
      this.#wake = new AbortController();
      try {
        await this.#clock.sleep(left > 0 ? left : RECHECK_MS, this.#wake.signal);
      } catch {
        // Woken: the limit changed or the call is over.
      }
    }
  }
}

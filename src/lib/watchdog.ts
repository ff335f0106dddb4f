/**
 * Notices silence: ends what keeps its reader waiting. Time counts only while somebody waits: a slow reader of ours never
 * looks like a silent peer. At most one sleeping timer, whatever the number of reads, and none once nobody waits.
 */
import type { Clock } from "./clock.js";

export interface WatchdogLimit {
  readonly ms: number;
  /** Called once when the wait was longer than `ms`. */
  readonly expire: () => void;
}

interface Timer {
  readonly dueMs: number;
  readonly cancel: AbortController;
}

export class Watchdog {
  readonly #clock: Clock;
  #limit: WatchdogLimit;
  /** When the limit began to count. */
  #sinceMs: number;
  #waiting = true;
  #over = false;
  #timer: Timer | undefined;

  /** The wait begins now. */
  constructor(clock: Clock, limit: WatchdogLimit) {
    this.#clock = clock;
    this.#limit = limit;
    this.#sinceMs = clock.monotonicMs();
    this.#arm();
  }

  /** Changes what is waited for; counts from now. */
  setLimit(limit: WatchdogLimit): void {
    this.#limit = limit;
    this.#sinceMs = this.#clock.monotonicMs();
    this.#arm();
  }

  /** A read begins. `restart` = the time before it does not count. */
  waiting(restart: boolean): void {
    this.#waiting = true;
    if (restart) this.#sinceMs = this.#clock.monotonicMs();
    if (!this.#timer) this.#arm();
  }

  /** The read brought something. */
  arrived(): void {
    this.#waiting = false;
  }

  /** Ends the watch and its timer. */
  stop(): void {
    this.#over = true;
    this.#disarm();
  }

  /** A timer that fires too early is set again then; one that would fire too late is set anew. */
  #arm(): void {
    if (this.#over) return;
    const dueMs = this.#sinceMs + this.#limit.ms;
    if (this.#timer && this.#timer.dueMs <= dueMs) return;
    this.#disarm();
    const timer = { dueMs, cancel: new AbortController() };
    this.#timer = timer;
    this.#clock.sleep(Math.max(0, dueMs - this.#clock.monotonicMs()), timer.cancel.signal).then(
      () => this.#timer === timer && this.#look(),
      () => undefined, // not needed any more
    );
  }

  #look(): void {
    this.#timer = undefined;
    if (!this.#waiting) return; // the next wait sets it again
    if (this.#sinceMs + this.#limit.ms > this.#clock.monotonicMs()) return this.#arm();
    this.#over = true;
    this.#limit.expire();
  }

  #disarm(): void {
    this.#timer?.cancel.abort(NOT_NEEDED);
    this.#timer = undefined;
  }
}

/** Nobody reads it; without one the platform makes an exception with a stack. */
const NOT_NEEDED = "not needed";

import type { Clock } from "../lib/clock.js";

/**
 * Notices silence: calls `onSilence` once when the reader has waited `timeoutMs` for the network in one go. Time in which
 * the reader does something else does not count. One timer for the whole life, however many messages come.
 */
export class Watchdog {
  readonly #clock: Clock;
  readonly #timeoutMs: number;
  readonly #onSilence: () => void;
  readonly #over = new AbortController();
  #waitingSinceMs: number | undefined;

  constructor(clock: Clock, timeoutMs: number, onSilence: () => void) {
    this.#clock = clock;
    this.#timeoutMs = timeoutMs;
    this.#onSilence = onSilence;
    void this.#watch();
  }

  /** The reader waits for the network from now on. */
  waiting(): void {
    this.#waitingSinceMs = this.#clock.monotonicMs();
  }

  /** Something came, or the reader is busy with what came. */
  busy(): void {
    this.#waitingSinceMs = undefined;
  }

  /** Ends the watch and its timer. */
  close(): void {
    this.#over.abort();
  }

  async #watch(): Promise<void> {
    let waitMs = this.#timeoutMs;
    for (;;) {
      try {
        await this.#clock.sleep(waitMs, this.#over.signal);
      } catch {
        return; // closed: there is nothing left to watch
      }
      const since = this.#waitingSinceMs;
      const leftMs =
        since === undefined ? this.#timeoutMs : since + this.#timeoutMs - this.#clock.monotonicMs();
      if (leftMs <= 0) {
        this.#onSilence();
        return;
      }
      waitMs = leftMs;
    }
  }
}

/**
 * Leaves a provider alone that keeps failing. Owns the count of failures of one provider.
 * B1 closed: everybody asks. B2 open: nobody asks until `openMs` have passed. B3 half open: one call asks, its outcome decides.
 */
import type { Clock } from "../../lib/clock.js";

export interface BreakerOptions {
  /** Failures in a row that open it; 0 = it never opens. */
  readonly failures: number;
  readonly openMs: number;
}

/** What a call that was let through came to. "unknown" = it was cancelled: nothing was learnt. */
export type CallOutcome = "succeeded" | "failed" | "unknown";

type State =
  | { readonly kind: "closed"; readonly failures: number }
  | { readonly kind: "open"; readonly untilMs: number }
  | { readonly kind: "half_open" };

export class Breaker {
  readonly #clock: Clock;
  readonly #options: BreakerOptions;
  #state: State = { kind: "closed", failures: 0 };

  constructor(clock: Clock, options: BreakerOptions) {
    this.#clock = clock;
    this.#options = options;
  }

  get isClosed(): boolean {
    return this.#state.kind === "closed";
  }

  /** Milliseconds until the provider may be asked; 0 = now, and whoever is told so must call `settle` once. */
  admit(): number {
    const state = this.#state;
    if (state.kind === "closed") return 0;
    if (state.kind === "half_open") return this.#options.openMs;
    const leftMs = state.untilMs - this.#clock.monotonicMs();
    if (leftMs > 0) return leftMs;
    this.#state = { kind: "half_open" };
    return 0;
  }

  settle(outcome: CallOutcome): void {
    const state = this.#state;
    switch (outcome) {
      case "succeeded":
        this.#state = { kind: "closed", failures: 0 };
        break;
      case "failed": {
        const failures = state.kind === "closed" ? state.failures + 1 : this.#options.failures;
        if (state.kind === "open") break; // an older call: it is known already
        const opens = this.#options.failures > 0 && failures >= this.#options.failures;
        this.#state = opens ? this.#open() : { kind: "closed", failures };
        break;
      }
      case "unknown":
        // The next call asks instead.
        if (state.kind === "half_open") this.#state = { kind: "open", untilMs: this.#clock.monotonicMs() };
        break;
    }
  }

  #open(): State {
    return { kind: "open", untilMs: this.#clock.monotonicMs() + this.#options.openMs };
  }
}

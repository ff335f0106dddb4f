/** The time of one model call: one signal for the caller who leaves and for the deadline of all attempts together. */
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import type { Clock } from "../../lib/clock.js";
import { TurnError } from "../../lib/errors.js";

export class CallClock {
  readonly #clock: Clock;
  readonly #caller: AbortSignal;
  readonly #endMs: number;
  readonly #call = new AbortController();
  readonly #timer = new AbortController();
  #expired: TurnError | undefined;

  /** `late`: what the end of the time means. Default: DEADLINE_EXCEEDED. */
  constructor(clock: Clock, totalMs: number, caller: AbortSignal, late = deadlineExceeded) {
    this.#clock = clock;
    this.#caller = caller;
    this.#endMs = clock.monotonicMs() + totalMs;
    if (caller.aborted) this.#onLeave();
    caller.addEventListener("abort", this.#onLeave, { once: true });
    clock.sleep(totalMs, this.#timer.signal).then(
      () => {
        this.#expired = late();
        this.#call.abort(this.#expired);
      },
      () => undefined, // the call was over before
    );
  }

  /** Aborts when the caller leaves, when the time is up, and when the call is over. */
  get signal(): AbortSignal {
    return this.#call.signal;
  }

  /** Set when the time was up. */
  get expired(): TurnError | undefined {
    return this.#expired;
  }

  leftMs(): number {
    return Math.max(0, this.#endMs - this.#clock.monotonicMs());
  }

  /** The call is over: what still runs for it ends. */
  close(): void {
    this.#call.abort(OVER);
    this.#timer.abort(OVER);
    this.#caller.removeEventListener("abort", this.#onLeave);
  }

  readonly #onLeave = (): void => this.#call.abort(this.#caller.reason);
}

/** Nobody reads it; without one the platform makes an exception with a stack. */
const OVER = "over";

function deadlineExceeded(): TurnError {
  return new TurnError(ErrorCode.DEADLINE_EXCEEDED, {
    message: "the model call took longer than it may, all attempts together",
  });
}

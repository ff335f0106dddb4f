/** Repeats a call that can be made twice without harm. */
import { systemClock, type Clock } from "../lib/clock.js";
import { toClientError } from "./errors.js";
import { backoffMs } from "./resume-policy.js";

export interface RetryCallOptions {
  readonly signal?: AbortSignal;
  /** Default: the system's. */
  readonly clock?: Clock;
  /** Attempts in all. Default 8: about ten seconds. */
  readonly maxAttempts?: number;
  /** Longest wait between two, milliseconds, unless the service asks for more. Default 5,000. */
  readonly maxBackoffMs?: number;
  /** Chance for the back-off, 0..1. Default Math.random. */
  readonly random?: () => number;
}

/** Makes the call until it succeeds; throws what another attempt would not cure, or the last failure. */
export async function retryCall<T>(call: () => Promise<T>, options: RetryCallOptions = {}): Promise<T> {
  const {
    signal,
    clock = systemClock,
    maxAttempts = 8,
    maxBackoffMs = 5_000,
    random = Math.random,
  } = options;
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await call();
    } catch (thrown) {
      const error = toClientError(thrown);
      if (!error.retryable || attempt >= maxAttempts || signal?.aborted) throw error;
      await clock.sleep(Math.max(error.retryAfterMs, backoffMs(attempt, random(), maxBackoffMs)), signal);
    }
  }
}

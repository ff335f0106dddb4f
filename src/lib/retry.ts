import type { Clock } from "./clock.js";
import { TurnError } from "./errors.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";

/** Waits between attempts, ms: short first, because a restart of a store takes well under a second. */
const BACKOFF_MS = [25, 50, 100, 200, 250];

/**
 * Repeats an idempotent action while it fails with UNAVAILABLE (a store that restarts), until `signal` aborts. Any other
 * failure is thrown at once.
 */
export async function whileUnavailable<T>(
  action: () => Promise<T>,
  clock: Clock,
  signal: AbortSignal,
): Promise<T> {
  for (let attempt = 0; ; attempt++) {
    signal.throwIfAborted();
    try {
      return await action();
    } catch (error) {
      if (!(error instanceof TurnError) || error.code !== ErrorCode.UNAVAILABLE) throw error;
      const base = BACKOFF_MS[Math.min(attempt, BACKOFF_MS.length - 1)]!;
      await clock.sleep(base + Math.random() * base, signal);
    }
  }
}

/** A call that answers at once (embeddings, counts): one provider, its keys in turn, no waiting for better times. */
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import type { Clock } from "../../lib/clock.js";
import { TurnError } from "../../lib/errors.js";
import { CallClock } from "./call-clock.js";
import type { Place } from "./places.js";
import { failureRule } from "./retry-policy.js";
import type { Upstream } from "./upstream.js";

export interface PlainQuestion<T> {
  readonly upstream: Upstream;
  readonly ask: (apiKey: string | undefined, signal: AbortSignal) => Promise<T>;
  readonly clock: Clock;
  /** For all keys together. */
  readonly timeoutMs: number;
}

/**
 * What the provider answers. Throws its failure when no key helps, UPSTREAM_STALLED when the answer does not come in time,
 * the signal's reason when it aborts.
 */
export async function askUpstream<T>(
  { upstream, ask, clock, timeoutMs }: PlainQuestion<T>,
  signal: AbortSignal,
): Promise<T> {
  const time = new CallClock(clock, timeoutMs, signal, () => new TurnError(ErrorCode.UPSTREAM_STALLED));
  const tried = new Set<number>();
  try {
    for (;;) {
      const place = await upstream.enter(tried, time.signal);
      tried.add(place.keyIndex);
      const answer = await attempt(upstream, place, ask, time, signal);
      if (answer.kind === "answered") return answer.value;
      if (!failureRule(answer.error).otherKey || !upstream.hasOtherKey(tried)) throw answer.error;
    }
  } finally {
    time.close();
  }
}

type Answer<T> =
  { readonly kind: "answered"; readonly value: T } | { readonly kind: "failed"; readonly error: TurnError };

async function attempt<T>(
  upstream: Upstream,
  place: Place,
  ask: PlainQuestion<T>["ask"],
  time: CallClock,
  caller: AbortSignal,
): Promise<Answer<T>> {
  let failure: TurnError | "cancelled" | undefined = "cancelled";
  try {
    const value = await ask(place.key, time.signal);
    failure = undefined;
    return { kind: "answered", value };
  } catch (error) {
    caller.throwIfAborted();
    failure = time.expired ?? TurnError.from(error);
    return { kind: "failed", error: failure };
  } finally {
    upstream.leave(place, failure);
  }
}

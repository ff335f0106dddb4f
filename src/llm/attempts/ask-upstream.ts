/** A call that answers at once (embeddings, counts): one provider, its keys in turn, no waiting for better times. */
import { TurnError } from "../../lib/errors.js";
import type { Place } from "./places.js";
import { failureRule } from "./retry-policy.js";
import type { Upstream } from "./upstream.js";

/** What the provider answers. Throws its failure when no key helps, the signal's reason when it aborts. */
export async function askUpstream<T>(
  upstream: Upstream,
  ask: (apiKey: string | undefined) => Promise<T>,
  signal: AbortSignal,
): Promise<T> {
  const tried = new Set<number>();
  for (;;) {
    const place = await upstream.enter(tried, signal);
    tried.add(place.keyIndex);
    const answer = await attempt(upstream, place, ask, signal);
    if (answer.kind === "answered") return answer.value;
    if (!failureRule(answer.error).otherKey || !upstream.hasOtherKey(tried)) throw answer.error;
  }
}

type Answer<T> =
  { readonly kind: "answered"; readonly value: T } | { readonly kind: "failed"; readonly error: TurnError };

async function attempt<T>(
  upstream: Upstream,
  place: Place,
  ask: (apiKey: string | undefined) => Promise<T>,
  signal: AbortSignal,
): Promise<Answer<T>> {
  let failure: TurnError | "cancelled" | undefined = "cancelled";
  try {
    const value = await ask(place.key);
    failure = undefined;
    return { kind: "answered", value };
  } catch (error) {
    signal.throwIfAborted();
    failure = TurnError.from(error);
    return { kind: "failed", error: failure };
  } finally {
    upstream.leave(place, failure);
  }
}

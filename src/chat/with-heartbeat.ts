import type { Clock } from "../lib/clock.js";

/** A value of the source, or word that nothing came for the interval. */
export type Beat<T> = { readonly kind: "value"; readonly value: T } | { readonly kind: "idle" };

/**
 * Passes a source on and says "idle" whenever it was silent for `intervalMs`. The source is pulled once at a time and never
 * left behind: it ends by its own signal.
 */
export async function* withHeartbeat<T>(
  source: AsyncIterable<T>,
  intervalMs: number,
  clock: Clock,
): AsyncGenerator<Beat<T>, void> {
  const iterator = source[Symbol.asyncIterator]();
  let pending = iterator.next();
  try {
    for (;;) {
      const timer = new AbortController();
      const idle = clock.sleep(intervalMs, timer.signal).then(
        () => "idle" as const,
        () => "cancelled" as const,
      );
      const first = await Promise.race([pending, idle]);
      timer.abort();
      if (typeof first === "string") {
        yield { kind: "idle" };
        continue;
      }
      if (first.done) return;
      yield { kind: "value", value: first.value };
      pending = iterator.next();
    }
  } finally {
    pending.catch(() => undefined); // its failure has no reader any more
    void iterator.return?.(undefined)?.catch(() => undefined); // waits behind a pending next(): do not wait for it
  }
}

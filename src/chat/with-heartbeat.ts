import type { Clock } from "../lib/clock.js";

/** A value of the source, or word that nothing came for the interval. */
export type Beat<T> = { readonly kind: "value"; readonly value: T } | { readonly kind: "idle" };

/**
 * Passes a source on and says "idle" whenever it was silent for `intervalMs`. The source is pulled once at a time and never
 * left behind: it ends by its own signal. One timer serves the whole stream: when it fires, it sleeps on for what is left
 * of the silence, so a value costs no timer.
 */
export async function* withHeartbeat<T>(
  source: AsyncIterable<T>,
  intervalMs: number,
  clock: Clock,
): AsyncGenerator<Beat<T>, void> {
  const iterator = source[Symbol.asyncIterator]();
  const ended = new AbortController();
  let next: IteratorResult<T> | undefined;
  let failure: { readonly error: unknown } | undefined;
  let wake: (() => void) | undefined;
  let idle = false;
  let quietSinceMs = clock.monotonicMs();

  const pull = (): void => {
    iterator.next().then(
      (result) => {
        next = result;
        wake?.();
      },
      (error: unknown) => {
        failure = { error };
        wake?.();
      },
    );
  };
  const watch = (afterMs: number): void => {
    clock.sleep(afterMs, ended.signal).then(
      () => {
        const leftMs = quietSinceMs + intervalMs - clock.monotonicMs();
        if (leftMs <= 0) {
          idle = true;
          quietSinceMs = clock.monotonicMs();
          wake?.();
        }
        watch(leftMs > 0 ? leftMs : intervalMs);
      },
      () => undefined, // the stream ended
    );
  };

  watch(intervalMs);
  pull();
  try {
    for (;;) {
      if (failure) throw failure.error;
      if (next) {
        if (next.done) return;
        const { value } = next;
        next = undefined;
        idle = false;
        quietSinceMs = clock.monotonicMs();
        yield { kind: "value", value };
        pull();
      } else if (idle) {
        idle = false;
        yield { kind: "idle" };
      } else {
        await new Promise<void>((resolve) => (wake = resolve));
        wake = undefined;
      }
    }
  } finally {
    ended.abort();
    void iterator.return?.(undefined)?.catch(() => undefined); // waits behind a pending next(): do not wait for it
  }
}

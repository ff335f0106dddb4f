import { AsyncQueue } from "./async-queue.js";

/** What is merged. When `until` aborts the source counts as ended, also if it never hears of it itself. */
export interface MergeSource<T> {
  readonly values: AsyncIterable<T>;
  readonly until?: AbortSignal;
}

/**
 * Merges iterables in the order their values arrive, over one bounded queue (a repeated Promise.race costs a listener per
 * source and value). Fails with the first source's failure; a consumer that breaks, or `signal`, ends it at once, without
 * waiting for the sources: they hear of it by their own signals.
 */
export async function* merge<T>(
  sources: readonly MergeSource<T>[],
  signal: AbortSignal,
  maxQueued = 32,
): AsyncGenerator<T, void, undefined> {
  const queue = new AsyncQueue<T>(maxQueued);
  let open = sources.length;
  if (open === 0) return;
  const onAbort = (): void => {
    queue.drop();
    queue.fail(signal.reason);
  };
  if (signal.aborted) throw signal.reason;
  signal.addEventListener("abort", onAbort, { once: true });
  const pump = async ({ values, until }: MergeSource<T>): Promise<void> => {
    let left = false;
    const leave = (): void => {
      if (left) return;
      left = true;
      if (--open === 0) queue.close();
    };
    until?.addEventListener("abort", leave, { once: true });
    if (until?.aborted) leave();
    try {
      for await (const value of values) if (left || !(await queue.push(value))) return;
    } catch (error) {
      if (!left) queue.fail(error);
    } finally {
      until?.removeEventListener("abort", leave);
      leave();
    }
  };
  for (const source of sources) void pump(source);
  try {
    yield* queue;
    signal.throwIfAborted(); // the sources had ended, and what was left of them was thrown away
  } finally {
    signal.removeEventListener("abort", onAbort);
    queue.close();
    queue.drop();
  }
}

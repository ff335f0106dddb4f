/**
 * Iterates `source` until `signal` aborts: `next` then rejects with the signal's reason at once, also while the source
 * sits in an await of its own; the source is told to return and left to itself. One listener, however many items.
 */
export function untilAborted<T>(source: AsyncIterable<T>, signal: AbortSignal): AsyncIterableIterator<T> {
  const iterator = source[Symbol.asyncIterator]();
  let over = false;
  let reject: ((reason: unknown) => void) | undefined;
  const onAbort = (): void => {
    leave();
    reject?.(signal.reason);
  };
  const leave = (): void => {
    if (over) return;
    over = true;
    signal.removeEventListener("abort", onAbort);
    // what it throws while it is being ended is of no interest
    void Promise.resolve(iterator.return?.()).catch(() => undefined);
  };
  const ended = (): void => {
    over = true;
    signal.removeEventListener("abort", onAbort);
  };
  signal.addEventListener("abort", onAbort);

  return {
    [Symbol.asyncIterator]() {
      return this;
    },
    next() {
      if (signal.aborted) {
        leave();
        return Promise.reject(signal.reason);
      }
      if (over) return Promise.resolve({ done: true, value: undefined });
      return new Promise((resolve, fail) => {
        reject = fail;
        iterator.next().then(
          (result) => {
            if (result.done) ended();
            resolve(result);
          },
          (error: unknown) => {
            ended();
            fail(error);
          },
        );
      });
    },
    return() {
      leave();
      return Promise.resolve({ done: true, value: undefined });
    },
  };
}

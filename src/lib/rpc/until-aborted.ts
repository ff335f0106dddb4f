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

/**
 * Visits each item until the source ends or `signal` aborts (then rejects with its reason, as above). A visit that
 * returns a promise is awaited before the next item is asked for. Callbacks instead of a loop: the hot path of streams
 * pays for one promise per item, the source's own.
 */
export function visitUntilAborted<T>(
  source: AsyncIterable<T>,
  signal: AbortSignal,
  visit: (item: T) => Promise<void> | undefined,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const iterator = source[Symbol.asyncIterator]();
    let over = false;
    const finish = (settle: () => void, ended: boolean): void => {
      if (over) return;
      over = true;
      signal.removeEventListener("abort", onAbort);
      settle();
      if (!ended) void Promise.resolve(iterator.return?.()).catch(() => undefined);
    };
    const onAbort = (): void => finish(() => reject(signal.reason), false);
    const onFailure = (error: unknown): void => finish(() => reject(error), true);
    const step = (): void => {
      if (!over) iterator.next().then(onItem, onFailure);
    };
    const onItem = (result: IteratorResult<T>): void => {
      if (over) return;
      if (result.done) {
        finish(resolve, true);
        return;
      }
      try {
        const wait = visit(result.value);
        if (wait) wait.then(step, onVisitFailure);
        else step();
      } catch (error) {
        onVisitFailure(error);
      }
    };
    const onVisitFailure = (error: unknown): void => finish(() => reject(error), false);
    signal.addEventListener("abort", onAbort);
    if (signal.aborted) onAbort();
    else step();
  });
}

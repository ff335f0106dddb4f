/** Time as a dependency, so that tests move it by hand. */
export interface Clock {
  /** Wall-clock time. For timestamps that people read; never for durations. */
  now(): Date;
  /** Milliseconds on a clock that never goes back. For durations, leases and deadlines. */
  monotonicMs(): number;
  /** Resolves after `ms`; rejects with the signal's reason when it aborts first. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}

/** The longest delay that a timer of the platform takes; a longer one would fire at once. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

export const systemClock: Clock = {
  now: () => new Date(),
  monotonicMs: () => performance.now(),
  sleep(ms, signal) {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) {
        reject(signal.reason);
        return;
      }
      let timer: NodeJS.Timeout;
      const onAbort = (): void => {
        clearTimeout(timer);
        reject(signal?.reason);
      };
      const wait = (leftMs: number): void => {
        const stepMs = Math.min(leftMs, LONGEST_TIMER_MS);
        timer = setTimeout(() => {
          if (stepMs < leftMs) return wait(leftMs - stepMs);
          signal?.removeEventListener("abort", onAbort);
          resolve();
        }, stepMs);
      };
      wait(ms);
      signal?.addEventListener("abort", onAbort, { once: true });
    });
  },
};

/**
 * Batches what arrives to animation frames: however fast packets come, a UI draws once per frame.
 *
 * Owns: what has arrived and was not handed on, and the one frame and timer that will do so.
 * B1 everything pushed is handed on, once, in order. B2 whenever something is held, a flush is scheduled: a burst never
 * starves its last packets. B3 where no frames come (a hidden tab), a timer flushes. B4 at most `maxHeld` are held.
 */

/** Frames and timers, so that tests move them by hand. */
export interface FrameScheduler {
  requestFrame(run: () => void): number;
  cancelFrame(id: number): void;
  setTimer(run: () => void, delayMs: number): number;
  clearTimer(id: number): void;
}

/** The browser's frames and timers; where there are no frames (a worker, Node) the timer alone. */
export const browserFrames: FrameScheduler = {
  requestFrame: (run) => (typeof requestAnimationFrame === "function" ? requestAnimationFrame(run) : 0),
  cancelFrame: (id) => {
    if (typeof cancelAnimationFrame === "function") cancelAnimationFrame(id);
  },
  setTimer: (run, delayMs) => Number(setTimeout(run, delayMs)),
  clearTimer: (id) => clearTimeout(id),
};

export interface FrameBatcherOptions {
  /** Default: the browser's. */
  readonly scheduler?: FrameScheduler;
  /** When no frame comes for so long, a timer flushes. Milliseconds, default 100. */
  readonly maxDelayMs?: number;
  /** Items held before they are handed on at once. Default 10,000. */
  readonly maxHeld?: number;
}

/** Collects items and hands them on once per frame. */
export class FrameBatcher<T> {
  readonly #onFlush: (items: readonly T[]) => void;
  readonly #scheduler: FrameScheduler;
  readonly #maxDelayMs: number;
  readonly #maxHeld: number;
  #held: T[] = [];
  #scheduled: { readonly frame: number; readonly timer: number } | undefined;
  #closed = false;

  constructor(onFlush: (items: readonly T[]) => void, options: FrameBatcherOptions = {}) {
    this.#onFlush = onFlush;
    this.#scheduler = options.scheduler ?? browserFrames;
    this.#maxDelayMs = options.maxDelayMs ?? 100;
    this.#maxHeld = options.maxHeld ?? 10_000;
  }

  /** Takes items in; they are handed on with the next frame. After `close` nothing is taken in. */
  push(items: readonly T[]): void {
    if (this.#closed || items.length === 0) return;
    for (const item of items) this.#held.push(item);
    if (this.#held.length >= this.#maxHeld) this.flush();
    else this.#schedule();
  }

  /** Hands on now what is held: at the end of a turn, before a snapshot takes the place of everything. */
  flush(): void {
    this.#unschedule();
    if (this.#held.length === 0) return;
    const items = this.#held;
    this.#held = [];
    this.#onFlush(items);
  }

  /** Drops what is held and ends the schedule: nothing is handed on after this. */
  close(): void {
    this.#closed = true;
    this.#held = [];
    this.#unschedule();
  }

  #schedule(): void {
    if (this.#scheduled) return;
    const run = (): void => this.flush();
    this.#scheduled = {
      frame: this.#scheduler.requestFrame(run),
      timer: this.#scheduler.setTimer(run, this.#maxDelayMs),
    };
  }

  #unschedule(): void {
    if (!this.#scheduled) return;
    this.#scheduler.cancelFrame(this.#scheduled.frame);
    this.#scheduler.clearTimer(this.#scheduled.timer);
    this.#scheduled = undefined;
  }
}

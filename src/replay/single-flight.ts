/**
 * Calls that many want at once and one makes: `join` shares a call that is under way, `after` only one that began later
 * than the caller asked. The shared call runs under no caller's signal; a caller that gives up leaves it to the others.
 */
import { abortable } from "../lib/signals.js";

export class SingleFlight<T> {
  readonly #running = new Map<string, Promise<T>>();
  readonly #next = new Map<string, Promise<T>>();

  /** Calls under way or waiting to begin. */
  get size(): number {
    return this.#running.size + this.#next.size;
  }

  /** The result of the call under way for `key`, else of a new one. For answers that cannot grow old. */
  join(key: string, call: () => Promise<T>, signal: AbortSignal): Promise<T> {
    return abortable(this.#running.get(key) ?? this.#start(key, call), signal);
  }

  /** The result of a call for `key` that begins after this method was called. For answers that must be fresh. */
  after(key: string, call: () => Promise<T>, signal: AbortSignal): Promise<T> {
    const running = this.#running.get(key);
    if (!running) return abortable(this.#start(key, call), signal);
    let next = this.#next.get(key);
    if (!next) {
      const begin = (): Promise<T> => {
        this.#next.delete(key);
        return this.#start(key, call);
      };
      next = running.then(begin, begin);
      this.#next.set(key, next);
    }
    return abortable(next, signal);
  }

  #start(key: string, call: () => Promise<T>): Promise<T> {
    const done = (): void => {
      if (this.#running.get(key) === running) this.#running.delete(key);
    };
    const running: Promise<T> = call();
    this.#running.set(key, running);
    running.then(done, done);
    return running;
  }
}

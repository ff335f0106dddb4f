/**
 * A queue with one consumer that iterates it, bounded by weight: `push` waits while the queue holds more than `maxWeight`.
 * `close` ends the iteration after what is queued, `fail` after what is queued with an error, `drop` empties it.
 */
export class AsyncQueue<T> implements AsyncIterable<T> {
  readonly #items: { readonly value: T; readonly weight: number }[] = [];
  readonly #maxWeight: number;
  #weight = 0;
  #wakeConsumer: (() => void) | undefined;
  #wakeProducers: (() => void)[] = [];
  #end: { readonly error?: unknown } | undefined;

  constructor(maxWeight: number) {
    this.#maxWeight = maxWeight;
  }

  /** Sum of the weights of what is queued. */
  get weight(): number {
    return this.#weight;
  }

  get closed(): boolean {
    return this.#end !== undefined;
  }

  /** Queues a value at once; false when the queue is closed. Bounding is up to the caller (`push`, or `weight`). */
  offer(value: T, weight = 1): boolean {
    if (this.#end) return false;
    this.#items.push({ value, weight });
    this.#weight += weight;
    this.#wakeConsumer?.();
    return true;
  }

  /** Queues a value, then waits until the queue has room again. Resolves false when the queue is closed. */
  async push(value: T, weight = 1): Promise<boolean> {
    if (!this.offer(value, weight)) return false;
    while (this.#weight > this.#maxWeight && !this.#end) {
      await new Promise<void>((resolve) => this.#wakeProducers.push(resolve));
    }
    return true;
  }

  close(): void {
    this.#end ??= {};
    this.#wakeAll();
  }

  fail(error: unknown): void {
    this.#end ??= { error };
    this.#wakeAll();
  }

  /** Throws away what is queued and lets waiting producers go on. */
  drop(): void {
    this.#items.length = 0;
    this.#weight = 0;
    this.#wakeAll();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T, void, undefined> {
    for (;;) {
      const item = this.#items.shift();
      if (item) {
        this.#weight -= item.weight;
        if (this.#weight <= this.#maxWeight) this.#releaseProducers();
        yield item.value;
        continue;
      }
      if (this.#end) {
        if ("error" in this.#end) throw this.#end.error;
        return;
      }
      await new Promise<void>((resolve) => (this.#wakeConsumer = resolve));
      this.#wakeConsumer = undefined;
    }
  }

  #wakeAll(): void {
    this.#wakeConsumer?.();
    this.#releaseProducers();
  }

  #releaseProducers(): void {
    const waiting = this.#wakeProducers;
    this.#wakeProducers = [];
    for (const wake of waiting) wake();
  }
}

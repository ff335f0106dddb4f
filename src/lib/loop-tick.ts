/**
 * Work that waits for the same turn of the event loop goes on together: everybody who calls `next` before the loop has
 * gone round once gets the same promise, so what they then write to one socket leaves in one write.
 */
export class LoopTick {
  #next: Promise<void> | undefined;

  /** Resolves when the events that are already there have been handled; microseconds when nothing else is going on. */
  next(): Promise<void> {
    this.#next ??= new Promise((resolve) => {
      setImmediate(() => {
        this.#next = undefined;
        resolve();
      });
    });
    return this.#next;
  }
}

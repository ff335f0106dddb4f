import type { Logger } from "../lib/log.js";

/** What has to be closed, closed in reverse order of its opening; one failure does not keep the others open. */
export class Closers {
  readonly #logger: Logger;
  readonly #opened: { readonly name: string; readonly close: () => void | Promise<void> }[] = [];

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  add(name: string, close: () => void | Promise<void>): void {
    this.#opened.push({ name, close });
  }

  async closeAll(): Promise<void> {
    for (let next = this.#opened.pop(); next; next = this.#opened.pop()) {
      try {
        await next.close();
      } catch (error) {
        this.#logger.warn({ err: error, what: next.name }, "could not be closed cleanly");
      }
    }
  }
}

/** As Promise.all of two, but waits for both: what was opened beside a failure is known, and can be closed, then. */
export async function bothOpened<A, B>(first: Promise<A>, second: Promise<B>): Promise<[A, B]> {
  await Promise.allSettled([first, second]);
  return [await first, await second];
}

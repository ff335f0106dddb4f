/**
 * A process that can die: everything it reaches stores through stands behind a switch. Dead, each of its calls hangs for
 * ever, as those of a killed process do, and nothing of it is ever stored again.
 */
import type { ReplayLog } from "../../src/replay/replay-log.js";
import type { Store } from "../../src/store/store.js";

export class Mortal {
  /** Things it made durable: appends and rows. */
  durable = 0;
  dead = false;
  readonly #dieAt: number;
  /** Calls that had left when it died: what a store was told already may still be stored. */
  readonly #underWay = new Set<Promise<unknown>>();

  /** It dies right after it made its `dieAt`th thing durable, before it hears of it. */
  constructor(dieAt = Number.POSITIVE_INFINITY) {
    this.#dieAt = dieAt;
  }

  die(): void {
    this.dead = true;
  }

  /** Resolves when nothing that it had under way can change a store any more. */
  async settled(): Promise<void> {
    while (this.#underWay.size > 0) await Promise.allSettled(this.#underWay);
  }

  log(log: ReplayLog): ReplayLog {
    return this.#wrap(log, ["append"], ["read", "follow", "logId", "kind"]);
  }

  store(store: Store): Store {
    const writes = [
      "acceptTurn",
      "takeTurn",
      "saveCheckpoint",
      "saveArchivePart",
      "saveFile",
      "commitTurn",
      "markClosed",
    ];
    return this.#wrap(store, writes, ["readArchive", "readFile", "onCommand"]);
  }

  async #track<R>(running: Promise<R>): Promise<R> {
    this.#underWay.add(running);
    try {
      return await running;
    } finally {
      this.#underWay.delete(running);
    }
  }

  #wrap<T extends object>(target: T, writes: readonly string[], plain: readonly string[]): T {
    return new Proxy(target, {
      get: (original, name) => {
        const value = Reflect.get(original, name, original) as unknown;
        if (typeof value !== "function") return value;
        const call = (value as (...args: unknown[]) => unknown).bind(original);
        if (plain.includes(String(name))) return call;
        return async (...args: unknown[]) => {
          if (this.dead) await forever();
          const result = await this.#track(Promise.resolve(call(...args)));
          if (writes.includes(String(name)) && !this.dead && ++this.durable >= this.#dieAt) this.die();
          if (this.dead) await forever();
          return result;
        };
      },
    });
  }
}

function forever(): Promise<never> {
  return new Promise(() => undefined);
}

import { describe, expect, test } from "vitest";
import { merge, type MergeSource } from "./merge.js";
import { deferred } from "./signals.js";

const never = new AbortController().signal;
const turnOfTheLoop = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

const sources = <T>(...values: AsyncIterable<T>[]): MergeSource<T>[] =>
  values.map((each) => ({ values: each }));

async function* of<T>(...values: T[]): AsyncGenerator<T> {
  for (const value of values) yield value;
}

/** A source that says when it was pulled and when it was ended. */
function endless(name: string): {
  source: AsyncIterable<string>;
  pulls: () => number;
  ended: () => boolean;
} {
  let pulls = 0;
  let ended = false;
  return {
    pulls: () => pulls,
    ended: () => ended,
    source: {
      [Symbol.asyncIterator]: () => ({
        next: () => Promise.resolve({ done: false, value: `${name}${pulls++}` }),
        return: () => {
          ended = true;
          return Promise.resolve({ done: true, value: undefined });
        },
      }),
    },
  };
}

async function collect<T>(values: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const value of values) all.push(value);
  return all;
}

describe("merge", () => {
  test("nothing to merge ends at once", async () => {
    expect(await collect(merge([], never))).toEqual([]);
  });

  test("keeps each source's order and yields in the order of arrival", async () => {
    const gate = deferred();
    async function* gated(): AsyncGenerator<string> {
      await gate.promise;
      yield "late";
    }
    const merged = merge(sources(gated(), of("a", "b")), never);
    expect((await merged.next()).value).toBe("a");
    expect((await merged.next()).value).toBe("b");
    gate.resolve();
    expect((await merged.next()).value).toBe("late");
    expect((await merged.next()).done).toBe(true);
  });

  test("a failing source fails it after what came before", async () => {
    async function* failing(): AsyncGenerator<string> {
      yield "before";
      throw new Error("source broke");
    }
    const merged = merge(sources(failing(), endlessSilence()), never);
    expect((await merged.next()).value).toBe("before");
    await expect(merged.next()).rejects.toThrow("source broke");
  });

  test("a break ends it without waiting for silent sources, and lets noisy ones go", async () => {
    const noisy = endless("n");
    for await (const value of merge(sources(endlessSilence(), noisy.source), never)) {
      expect(value).toBe("n0");
      break;
    }
    await turnOfTheLoop();
    expect(noisy.ended()).toBe(true);
  });

  test("holds no more than its bound while nobody reads", async () => {
    const noisy = endless("n");
    const merged = merge(sources(noisy.source), never, 4);
    await merged.next();
    for (let i = 0; i < 20; i++) await turnOfTheLoop();
    expect(noisy.pulls()).toBeLessThanOrEqual(7);
    await merged.return();
  });

  test("an abort before the first value", async () => {
    const stop = new AbortController();
    stop.abort(new Error("early"));
    const noisy = endless("n");
    await expect(merge(sources(noisy.source), stop.signal).next()).rejects.toThrow("early");
    expect(noisy.pulls()).toBe(0);
  });

  test("an abort ends it at once, with what was queued thrown away, while the sources hang", async () => {
    const stop = new AbortController();
    const noisy = endless("n");
    const merged = merge(sources(endlessSilence(), noisy.source), stop.signal);
    await merged.next();
    await turnOfTheLoop();
    stop.abort(new Error("stopped"));
    await expect(merged.next()).rejects.toThrow("stopped");
    await turnOfTheLoop();
    expect(noisy.ended()).toBe(true);
  });

  test("an abort while it waits", async () => {
    const stop = new AbortController();
    const merged = merge(sources(endlessSilence()), stop.signal);
    const next = merged.next();
    await turnOfTheLoop();
    stop.abort(new Error("stopped"));
    await expect(next).rejects.toThrow("stopped");
  });

  test("an abort after the sources ended and before their values were read is not a quiet end", async () => {
    const stop = new AbortController();
    const merged = merge(sources(of(1, 2, 3)), stop.signal);
    expect((await merged.next()).value).toBe(1);
    await turnOfTheLoop();
    stop.abort(new Error("stopped"));
    await expect(merged.next()).rejects.toThrow("stopped");
  });
});

describe("a source that is let go of", () => {
  test("counts as ended, though it hangs: the others go on, and the last one ends it all", async () => {
    const letGo = new AbortController();
    const gate = deferred();
    async function* other(): AsyncGenerator<string> {
      await gate.promise;
      yield "other";
    }
    const merged = merge([{ values: endlessSilence(), until: letGo.signal }, { values: other() }], never);
    const first = merged.next();
    await turnOfTheLoop();
    letGo.abort();
    gate.resolve();
    expect((await first).value).toBe("other");
    expect((await merged.next()).done).toBe(true);
  });

  test("is not heard any more: neither a late value nor a late failure", async () => {
    for (const late of ["value", "failure"]) {
      const letGo = new AbortController();
      const gate = deferred();
      async function* slow(): AsyncGenerator<string> {
        await gate.promise;
        if (late === "failure") throw new Error("late");
        yield "late";
      }
      const merged = merge([{ values: slow(), until: letGo.signal }, { values: of("a") }], never);
      expect((await merged.next()).value).toBe("a");
      letGo.abort();
      gate.resolve();
      expect((await merged.next()).done).toBe(true);
    }
  });

  test("before it began", async () => {
    const letGo = new AbortController();
    letGo.abort();
    const noisy = endless("n");
    expect(await collect(merge([{ values: noisy.source, until: letGo.signal }], never))).toEqual([]);
    await turnOfTheLoop();
    expect(noisy.ended()).toBe(true);
  });
});

async function* endlessSilence(): AsyncGenerator<string> {
  await new Promise(() => undefined);
  yield "never";
}

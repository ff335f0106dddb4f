import { describe, expect, test } from "vitest";
import { merge } from "./merge.js";
import { deferred } from "./signals.js";

const never = new AbortController().signal;
const turnOfTheLoop = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

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
    const merged = merge([gated(), of("a", "b")], never);
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
    const merged = merge([failing(), endlessSilence()], never);
    expect((await merged.next()).value).toBe("before");
    await expect(merged.next()).rejects.toThrow("source broke");
  });

  test("a break ends it without waiting for silent sources, and lets noisy ones go", async () => {
    const noisy = endless("n");
    for await (const value of merge([endlessSilence(), noisy.source], never)) {
      expect(value).toBe("n0");
      break;
    }
    await turnOfTheLoop();
    expect(noisy.ended()).toBe(true);
  });

  test("holds no more than its bound while nobody reads", async () => {
    const noisy = endless("n");
    const merged = merge([noisy.source], never, 4);
    await merged.next();
    for (let i = 0; i < 20; i++) await turnOfTheLoop();
    expect(noisy.pulls()).toBeLessThanOrEqual(7);
    await merged.return();
  });

  test("an abort before the first value", async () => {
    const stop = new AbortController();
    stop.abort(new Error("early"));
    const noisy = endless("n");
    await expect(merge([noisy.source], stop.signal).next()).rejects.toThrow("early");
    expect(noisy.pulls()).toBe(0);
  });

  test("an abort ends it at once, with what was queued thrown away, while the sources hang", async () => {
    const stop = new AbortController();
    const noisy = endless("n");
    const merged = merge([endlessSilence(), noisy.source], stop.signal);
    await merged.next();
    await turnOfTheLoop();
    stop.abort(new Error("stopped"));
    await expect(merged.next()).rejects.toThrow("stopped");
    await turnOfTheLoop();
    expect(noisy.ended()).toBe(true);
  });

  test("an abort while it waits", async () => {
    const stop = new AbortController();
    const merged = merge([endlessSilence()], stop.signal);
    const next = merged.next();
    await turnOfTheLoop();
    stop.abort(new Error("stopped"));
    await expect(next).rejects.toThrow("stopped");
  });

  test("an abort after the sources ended and before their values were read is not a quiet end", async () => {
    const stop = new AbortController();
    const merged = merge([of(1, 2, 3)], stop.signal);
    expect((await merged.next()).value).toBe(1);
    await turnOfTheLoop();
    stop.abort(new Error("stopped"));
    await expect(merged.next()).rejects.toThrow("stopped");
  });
});

async function* endlessSilence(): AsyncGenerator<string> {
  await new Promise(() => undefined);
  yield "never";
}

import { expect, test } from "vitest";
import { deferred } from "../signals.js";
import { untilAborted } from "./until-aborted.js";

test("until aborted - passes items through and ends with its source", async () => {
  const source = (async function* () {
    yield 1;
    yield 2;
  })();
  const seen: number[] = [];
  for await (const item of untilAborted(source, new AbortController().signal)) seen.push(item);
  expect(seen).toEqual([1, 2]);
});

test("until aborted - an abort rejects a pending next at once and ends a source that listens", async () => {
  const ended = deferred();
  const controller = new AbortController();
  const source = (async function* () {
    try {
      yield 1;
      await new Promise((resolve) => controller.signal.addEventListener("abort", resolve));
      yield 2;
    } finally {
      ended.resolve();
    }
  })();
  const items = untilAborted(source, controller.signal);
  await items.next();
  const pending = items.next();
  controller.abort("enough");
  await expect(pending).rejects.toBe("enough");
  await ended.promise;
  await expect(items.next()).rejects.toBe("enough");
});

test("until aborted - a source that never settles does not hold the reader", async () => {
  const controller = new AbortController();
  const deaf: AsyncIterable<number> = {
    [Symbol.asyncIterator]: () => ({ next: () => new Promise(() => undefined) }),
  };
  const pending = untilAborted(deaf, controller.signal).next();
  controller.abort("gone");
  await expect(pending).rejects.toBe("gone");
});

test("until aborted - return ends the source", async () => {
  const ended = deferred();
  const source = (async function* () {
    try {
      for (;;) yield 0;
    } finally {
      ended.resolve();
    }
  })();
  for await (const _ of untilAborted(source, new AbortController().signal)) break;
  await ended.promise;
});

test("until aborted - a failing source fails its reader, then is done", async () => {
  const source = (async function* (): AsyncGenerator<number> {
    throw new Error("broken");
  })();
  const items = untilAborted(source, new AbortController().signal);
  await expect(items.next()).rejects.toThrow("broken");
  expect(await items.next()).toEqual({ done: true, value: undefined });
});

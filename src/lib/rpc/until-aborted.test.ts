import { expect, test } from "vitest";
import { deferred } from "../signals.js";
import { untilAborted, visitUntilAborted } from "./until-aborted.js";

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

test("visit until aborted - visits in order, waits when asked to, ends with its source", async () => {
  const gate = deferred();
  let produced = 0;
  const source = (async function* () {
    for (const item of [1, 2, 3]) {
      produced++;
      yield item;
    }
  })();
  const seen: number[] = [];
  const visiting = visitUntilAborted(source, new AbortController().signal, (item) => {
    seen.push(item);
    return item === 2 ? gate.promise : undefined;
  });
  await expect.poll(() => seen).toEqual([1, 2]);
  expect(produced).toBe(2);
  gate.resolve();
  await visiting;
  expect(seen).toEqual([1, 2, 3]);
});

test.each(["while the source waits", "while a visit waits", "before it began"])(
  "visit until aborted - an abort %s",
  async (when) => {
    const controller = new AbortController();
    const ended = deferred();
    if (when === "before it began") controller.abort("enough");
    const source = (async function* () {
      try {
        yield 1;
        await new Promise((resolve) => controller.signal.addEventListener("abort", resolve));
      } finally {
        ended.resolve();
      }
    })();
    const visited = deferred();
    const visiting = visitUntilAborted(source, controller.signal, () => {
      visited.resolve();
      return when === "while a visit waits" ? new Promise<void>(() => undefined) : undefined;
    });
    if (when !== "before it began") {
      await visited.promise;
      controller.abort("enough");
      await ended.promise;
    }
    await expect(visiting).rejects.toBe("enough");
  },
);

test("visit until aborted - a failing visit ends the source, a failing source fails the visit", async () => {
  const ended = deferred();
  const source = (async function* () {
    try {
      for (;;) yield 0;
    } finally {
      ended.resolve();
    }
  })();
  const visiting = visitUntilAborted(source, new AbortController().signal, () => {
    throw new Error("no");
  });
  await expect(visiting).rejects.toThrow("no");
  await ended.promise;
  const broken = (async function* (): AsyncGenerator<number> {
    throw new Error("broken");
  })();
  await expect(visitUntilAborted(broken, new AbortController().signal, () => undefined)).rejects.toThrow(
    "broken",
  );
});

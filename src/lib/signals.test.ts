import { getEventListeners } from "node:events";
import { describe, expect, test } from "vitest";
import { abortable, aborted, deferred } from "./signals.js";

describe("abortable", () => {
  test("settles as the promise does and leaves no listener", async () => {
    const { signal } = new AbortController();
    expect(await abortable(Promise.resolve(1), signal)).toBe(1);
    await expect(abortable(Promise.reject(new Error("own")), signal)).rejects.toThrow("own");
    await Promise.resolve();
    expect(getEventListeners(signal, "abort")).toHaveLength(0);
  });

  test("rejects with the reason as soon as the signal aborts, whatever the promise does later", async () => {
    const stop = new AbortController();
    const later = deferred<number>();
    const waiting = abortable(later.promise, stop.signal);
    stop.abort("because");
    await expect(waiting).rejects.toBe("because");
    later.reject(new Error("nobody listens"));
    await Promise.resolve();
    expect(getEventListeners(stop.signal, "abort")).toHaveLength(0);
  });

  test("a signal that has aborted wins over a promise that is settled; its rejection is nobody's", async () => {
    const stop = new AbortController();
    stop.abort("gone");
    await expect(abortable(Promise.resolve(1), stop.signal)).rejects.toBe("gone");
    await expect(abortable(Promise.reject(new Error("unheard")), stop.signal)).rejects.toBe("gone");
  });
});

test("aborted resolves at the abort, or at once", async () => {
  const stop = new AbortController();
  let seen = false;
  const waiting = aborted(stop.signal).then(() => (seen = true));
  await Promise.resolve();
  expect(seen).toBe(false);
  stop.abort();
  await waiting;
  await aborted(stop.signal);
});

test("deferred is settled by hand, once", async () => {
  const gate = deferred<string>();
  gate.resolve("first");
  gate.resolve("second");
  gate.reject(new Error("third"));
  expect(await gate.promise).toBe("first");
});

import { getEventListeners } from "node:events";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { systemClock } from "./clock.js";

describe("systemClock", () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  test("sleeps as long as it is told, and leaves neither timer nor listener", async () => {
    const { signal } = new AbortController();
    let awake = false;
    const sleeping = systemClock.sleep(1_000, signal).then(() => (awake = true));
    await vi.advanceTimersByTimeAsync(999);
    expect(awake).toBe(false);
    await vi.advanceTimersByTimeAsync(1);
    await sleeping;
    expect([vi.getTimerCount(), getEventListeners(signal, "abort").length]).toEqual([0, 0]);
  });

  test("an abort ends the sleep with its reason", async () => {
    const stop = new AbortController();
    const sleeping = systemClock.sleep(1_000, stop.signal);
    stop.abort("up");
    await expect(sleeping).rejects.toBe("up");
    await expect(systemClock.sleep(1_000, stop.signal)).rejects.toBe("up");
    expect(vi.getTimerCount()).toBe(0);
  });

  test("a sleep longer than a timer can be (24.8 days) is not over at once", async () => {
    const stop = new AbortController();
    const thirtyDaysMs = 30 * 24 * 3_600_000;
    let awake = false;
    const sleeping = systemClock.sleep(thirtyDaysMs, stop.signal).then(() => (awake = true));
    await vi.advanceTimersByTimeAsync(thirtyDaysMs - 1);
    expect(awake).toBe(false);
    await vi.advanceTimersByTimeAsync(1);
    await sleeping;
    expect([vi.getTimerCount(), getEventListeners(stop.signal, "abort").length]).toEqual([0, 0]);
  });
});

test("monotonic time never goes back", () => {
  let last = systemClock.monotonicMs();
  for (let i = 0; i < 1_000; i++) {
    const now = systemClock.monotonicMs();
    expect(now).toBeGreaterThanOrEqual(last);
    last = now;
  }
  expect(Math.abs(systemClock.now().getTime() - Date.now())).toBeLessThan(1_000);
});

import { describe, expect, test } from "vitest";
import type { Clock } from "./clock.js";
import { Watchdog } from "./watchdog.js";

/** A clock moved by hand: sleepers wake in order as time passes them. */
function handClock(): Clock & { advance(ms: number): Promise<void>; readonly sleepers: number } {
  let now = 0;
  let sleepers: { readonly at: number; wake(): void }[] = [];
  const settle = async (): Promise<void> => {
    for (let turn = 0; turn < 5; turn++) await Promise.resolve();
  };
  return {
    now: () => new Date(now),
    monotonicMs: () => now,
    sleep: (ms, signal) =>
      new Promise((resolve, reject) => {
        const sleeper = { at: now + ms, wake: resolve };
        sleepers.push(sleeper);
        signal?.addEventListener("abort", () => {
          sleepers = sleepers.filter((other) => other !== sleeper);
          reject(signal.reason as Error);
        });
      }),
    async advance(ms) {
      const stop = now + ms;
      for (;;) {
        await settle();
        const next = sleepers.filter(({ at }) => at <= stop).sort((a, b) => a.at - b.at)[0];
        if (!next) break;
        sleepers = sleepers.filter((other) => other !== next);
        now = Math.max(now, next.at);
        next.wake();
      }
      now = stop;
      await settle();
    },
    get sleepers() {
      return sleepers.length;
    },
  };
}

function start(ms: number) {
  const clock = handClock();
  let expired = 0;
  const limit = (limitMs: number) => ({ ms: limitMs, expire: () => void expired++ });
  const watchdog = new Watchdog(clock, limit(ms));
  return { clock, watchdog, limit, expired: () => expired };
}

describe("watchdog", () => {
  test("expires once, not before its time", async () => {
    const { clock, expired } = start(100);
    await clock.advance(99);
    expect(expired()).toBe(0);
    await clock.advance(1);
    expect(expired()).toBe(1);
    await clock.advance(1000);
    expect(expired()).toBe(1);
    expect(clock.sleepers).toBe(0);
  });

  test("reads that bring something start it anew", async () => {
    const { clock, watchdog, expired } = start(100);
    for (let read = 0; read < 10; read++) {
      watchdog.waiting(true);
      await clock.advance(60);
      watchdog.arrived();
    }
    watchdog.waiting(true);
    await clock.advance(99);
    expect(expired()).toBe(0);
    await clock.advance(1);
    expect(expired()).toBe(1);
  });

  test("the limit for the first token counts on over reads that bring nothing", async () => {
    const { clock, watchdog, expired } = start(100);
    await clock.advance(60);
    watchdog.arrived();
    watchdog.waiting(false);
    await clock.advance(40);
    expect(expired()).toBe(1);
  });

  test("time in which nobody waits for the provider does not count", async () => {
    const { clock, watchdog, expired } = start(100);
    watchdog.arrived();
    await clock.advance(10_000);
    expect(expired()).toBe(0);
    expect(clock.sleepers).toBe(0);
    watchdog.waiting(true);
    await clock.advance(99);
    expect(expired()).toBe(0);
    await clock.advance(300);
    expect(expired()).toBe(1);
  });

  test("a shorter limit holds at once", async () => {
    const { clock, watchdog, limit, expired } = start(100_000);
    await clock.advance(10);
    watchdog.setLimit(limit(20));
    await clock.advance(20);
    expect(expired()).toBe(1);
  });

  test("stopped - no timer is left, nothing expires", async () => {
    const { clock, watchdog, expired } = start(100);
    await clock.advance(1);
    watchdog.stop();
    await clock.advance(1000);
    expect(expired()).toBe(0);
    expect(clock.sleepers).toBe(0);
  });
});

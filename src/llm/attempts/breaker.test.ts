import { describe, expect, test } from "vitest";
import { ManualClock } from "../../../test/support/manual-clock.js";
import { Breaker } from "./breaker.js";

function opened(): { clock: ManualClock; breaker: Breaker } {
  const clock = new ManualClock();
  const breaker = new Breaker(clock, { failures: 3, openMs: 1_000 });
  for (let at = 0; at < 3; at++) breaker.settle("failed");
  return { clock, breaker };
}

describe("breaker", () => {
  test("failures in a row open it, a success between them does not count them together", () => {
    const breaker = new Breaker(new ManualClock(), { failures: 3, openMs: 1_000 });
    for (const outcome of ["failed", "failed", "succeeded", "failed", "failed"] as const)
      breaker.settle(outcome);
    expect(breaker.admit()).toBe(0);
    breaker.settle("failed");
    expect(breaker.admit()).toBe(1_000);
  });

  test("after its time one call may ask, the others wait for what comes of it", () => {
    const { clock, breaker } = opened();
    clock.advance(400);
    expect(breaker.admit()).toBe(600);
    clock.advance(600);
    expect(breaker.admit()).toBe(0);
    expect(breaker.admit()).toBeGreaterThan(0);
    breaker.settle("succeeded");
    expect([breaker.admit(), breaker.isClosed]).toEqual([0, true]);
  });

  test("the asking call fails - open again for the whole time", () => {
    const { clock, breaker } = opened();
    clock.advance(1_000);
    expect(breaker.admit()).toBe(0);
    breaker.settle("failed");
    expect(breaker.admit()).toBe(1_000);
  });

  test("the asking call is cancelled - the next one asks", () => {
    const { clock, breaker } = opened();
    clock.advance(1_000);
    expect(breaker.admit()).toBe(0);
    breaker.settle("unknown");
    expect(breaker.admit()).toBe(0);
  });

  test("older calls that fail do not prolong it, one that succeeds closes it", () => {
    const { clock, breaker } = opened();
    clock.advance(900);
    breaker.settle("failed");
    expect(breaker.admit()).toBe(100);
    breaker.settle("succeeded");
    expect(breaker.admit()).toBe(0);
  });

  test("0 failures - it never opens", () => {
    const breaker = new Breaker(new ManualClock(), { failures: 0, openMs: 1 });
    for (let at = 0; at < 100; at++) breaker.settle("failed");
    expect(breaker.admit()).toBe(0);
  });
});

import { describe, expect, test } from "vitest";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { ManualClock } from "../../test/support/manual-clock.js";
import { TurnError } from "./errors.js";
import { whileUnavailable } from "./retry.js";

const away = (): TurnError => new TurnError(ErrorCode.UNAVAILABLE);
const never = new AbortController().signal;
const turnOfTheLoop = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

describe("whileUnavailable", () => {
  test("repeats while the store is away, with pauses of 25 to 500 ms that grow", async () => {
    const clock = new ManualClock();
    const calledAt: number[] = [];
    const action = (): Promise<string> => {
      calledAt.push(clock.monotonicMs());
      return calledAt.length < 9 ? Promise.reject(away()) : Promise.resolve("there");
    };
    let result: string | undefined;
    const trying = whileUnavailable(action, clock, never).then((value) => (result = value));
    while (result === undefined) {
      await turnOfTheLoop();
      clock.advance(1);
    }
    await trying;
    expect(result).toBe("there");
    const pauses = calledAt.slice(1).map((at, index) => at - calledAt[index]!);
    expect(pauses).toHaveLength(8);
    expect(Math.min(...pauses)).toBeGreaterThanOrEqual(25);
    expect(Math.max(...pauses)).toBeLessThanOrEqual(502);
    expect(pauses.at(-1)).toBeGreaterThanOrEqual(250);
    expect(clock.sleeping).toBe(0);
  });

  test("any other failure is thrown at once", async () => {
    let calls = 0;
    const broken = (): Promise<never> => {
      calls++;
      return Promise.reject(new TurnError(ErrorCode.INTERNAL));
    };
    await expect(whileUnavailable(broken, new ManualClock(), never)).rejects.toMatchObject({
      code: ErrorCode.INTERNAL,
    });
    await expect(
      whileUnavailable(() => Promise.reject(new RangeError("no TurnError")), new ManualClock(), never),
    ).rejects.toThrow("no TurnError");
    expect(calls).toBe(1);
  });

  test("an abort ends the pause, and nothing is tried after it", async () => {
    const clock = new ManualClock();
    const stop = new AbortController();
    let calls = 0;
    const trying = whileUnavailable(
      () => {
        calls++;
        return Promise.reject(away());
      },
      clock,
      stop.signal,
    );
    await turnOfTheLoop();
    stop.abort(new Error("given up"));
    await expect(trying).rejects.toThrow("given up");
    await expect(whileUnavailable(() => Promise.resolve(++calls), clock, stop.signal)).rejects.toThrow(
      "given up",
    );
    expect([calls, clock.sleeping]).toEqual([1, 0]);
  });
});

import { describe, expect, test } from "vitest";
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { ManualClock } from "../../../test/support/manual-clock.js";
import { TurnError } from "../../lib/errors.js";
import { Places } from "./places.js";

const NEW = new Set<number>();
const never = new AbortController().signal;
const limits = { maxConcurrent: 2, maxConcurrentPerKey: 2, maxQueued: 2, queueTimeoutMs: 1_000 };

function places(keys: string[], set: Partial<typeof limits> = {}): { clock: ManualClock; all: Places } {
  const clock = new ManualClock();
  return { clock, all: new Places(keys, { ...limits, ...set }, clock) };
}

describe("places", () => {
  test("P1 no more than allowed, over all and with one key", async () => {
    const { all } = places(["a", "b"], { maxConcurrent: 3, maxConcurrentPerKey: 2 });
    const taken = [await all.take(NEW, never), await all.take(NEW, never), await all.take(NEW, never)];
    expect(taken.map(({ key }) => key).sort()).not.toEqual(["a", "a", "a"]);
    void all.take(NEW, never);
    expect([all.taken, all.waiting]).toEqual([3, 1]);
  });

  test("the key that is used least comes next, one outside those tried before all", async () => {
    const { all } = places(["a", "b"], { maxConcurrent: 9, maxConcurrentPerKey: 9 });
    const first = await all.take(NEW, never);
    const second = await all.take(NEW, never);
    expect(second.key).not.toBe(first.key);
    expect((await all.take(new Set([0]), never)).key).toBe("b");
    expect((await all.take(new Set([0]), never)).key).toBe("b");
  });

  test("P2 who waits is served in order; the queue and the wait are bounded", async () => {
    const { clock, all } = places([], { maxConcurrent: 1 });
    const first = await all.take(NEW, never);
    const order: number[] = [];
    const second = all.take(NEW, never).then((place) => (order.push(2), place));
    const third = all.take(NEW, never).then((place) => (order.push(3), place));
    await expect(all.take(NEW, never)).rejects.toMatchObject({ code: ErrorCode.OVERLOADED });
    first.release();
    first.release(); // once is enough
    (await second).release();
    await third;
    expect(order).toEqual([2, 3]);
    const late = all.take(NEW, never);
    clock.advance(1_000);
    await expect(late).rejects.toMatchObject({ code: ErrorCode.OVERLOADED, details: { not_asked: "queue" } });
    expect([all.taken, all.waiting, clock.sleeping]).toEqual([1, 0, 0]);
  });

  test("P2 who leaves stops waiting at once", async () => {
    const { clock, all } = places([], { maxConcurrent: 1 });
    await all.take(NEW, never);
    const leaving = new AbortController();
    const waiting = all.take(NEW, leaving.signal);
    leaving.abort(new Error("gone"));
    await expect(waiting).rejects.toThrow("gone");
    expect([all.waiting, clock.sleeping]).toEqual([0, 0]);
  });

  test("P3 a key that rests is not used until its time is over", async () => {
    const { clock, all } = places(["a", "b"], { maxConcurrent: 9, maxConcurrentPerKey: 9 });
    all.rest(0, 500, new TurnError(ErrorCode.RATE_LIMIT));
    expect(all.hasOther(new Set([1]))).toBe(false);
    for (let at = 0; at < 3; at++) expect((await all.take(NEW, never)).key).toBe("b");
    clock.advance(500);
    expect((await all.take(NEW, never)).key).toBe("a");
  });

  test("P3 every key rests - those who come and those who wait are told why and how long", async () => {
    const { all } = places(["a", "b"], { maxConcurrent: 1 });
    await all.take(NEW, never);
    const waiting = all.take(NEW, never);
    all.rest(0, 700, new TurnError(ErrorCode.UPSTREAM_AUTH));
    all.rest(1, 300, new TurnError(ErrorCode.RATE_LIMIT));
    const why = { code: ErrorCode.RATE_LIMIT, retryAfterMs: 300, details: { not_asked: "key" } };
    await expect(waiting).rejects.toMatchObject(why);
    await expect(all.take(NEW, never)).rejects.toMatchObject(why);
  });
});

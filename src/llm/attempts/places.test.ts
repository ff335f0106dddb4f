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

  test("P3 a key whose rest is over is given to who waits, without anybody else giving back a place", async () => {
    const { clock, all } = places(["a", "b"], {
      maxConcurrent: 2,
      maxConcurrentPerKey: 1,
      queueTimeoutMs: 9_000,
    });
    const busy = await all.take(NEW, never);
    all.rest(1 - busy.keyIndex, 5_000, new TurnError(ErrorCode.RATE_LIMIT));
    const waiting = all.take(NEW, never);
    clock.advance(5_000);
    expect((await waiting).keyIndex).toBe(1 - busy.keyIndex);
    expect([all.waiting, clock.sleeping]).toEqual([0, 0]);
  });

  test("P4 who waits for another key holds nobody up who may have this one", async () => {
    const { all } = places(["a", "b"], { maxConcurrent: 4, maxConcurrentPerKey: 1 });
    const [one, two] = [await all.take(NEW, never), await all.take(NEW, never)];
    const other = all.take(new Set([one.keyIndex]), never);
    const any = all.take(NEW, never);
    one.release();
    expect((await any).keyIndex).toBe(one.keyIndex);
    two.release();
    expect((await other).keyIndex).toBe(two.keyIndex);
  });

  test("P1 to P4 hold over random takes, releases, rests, leavings and times", async () => {
    let seed = 3;
    const random = (below: number): number => (seed = (seed * 48_271) % 2_147_483_647) % below;
    for (let run = 0; run < 40; run++) {
      const keys = ["a", "b", "c"].slice(0, 1 + random(3));
      const set = {
        maxConcurrent: 1 + random(4),
        maxConcurrentPerKey: 1 + random(2),
        maxQueued: 1 + random(5),
      };
      const { clock, all } = places(keys, set);
      const held: { keyIndex: number; release(): void }[] = [];
      const restsUntil = keys.map(() => 0);
      const leaving: AbortController[] = [];
      for (let step = 0; step < 120; step++) {
        const what = random(10);
        if (what < 5) {
          const leave = new AbortController();
          const avoid = random(3) === 0 ? new Set([random(keys.length)]) : NEW;
          const fullBefore = all.waiting >= set.maxQueued;
          void all.take(avoid, leave.signal).then(
            (place) => {
              expect(restsUntil[place.keyIndex]!).toBeLessThanOrEqual(clock.monotonicMs()); // P3
              held.push(place);
            },
            (error: unknown) => expect(fullBefore || error instanceof Error).toBe(true),
          );
          leaving.push(leave);
        } else if (what < 8 && held.length > 0) held.splice(random(held.length), 1)[0]!.release();
        else if (what === 8 && keys.length > 1) {
          const key = random(keys.length);
          const ms = 1 + random(700);
          restsUntil[key] = Math.max(restsUntil[key]!, clock.monotonicMs() + ms);
          all.rest(key, ms, new TurnError(ErrorCode.RATE_LIMIT));
        } else if (random(2) === 0) clock.advance(1 + random(400));
        else leaving[random(leaving.length + 1)]?.abort(new Error("gone"));
        for (let tick = 0; tick < 8; tick++) await Promise.resolve();
        expect(all.taken).toBe(held.length);
        expect(all.taken).toBeLessThanOrEqual(set.maxConcurrent);
        for (const key of keys.keys())
          expect(held.filter(({ keyIndex }) => keyIndex === key).length).toBeLessThanOrEqual(
            set.maxConcurrentPerKey,
          );
        expect(all.waiting).toBeLessThanOrEqual(set.maxQueued);
      }
      for (const leave of leaving) leave.abort(new Error("gone"));
      for (const place of held.splice(0)) place.release();
      for (let tick = 0; tick < 8; tick++) await Promise.resolve();
      for (const place of held.splice(0)) place.release();
      expect([all.taken, all.waiting, clock.sleeping]).toEqual([0, 0, 0]);
    }
  });
});

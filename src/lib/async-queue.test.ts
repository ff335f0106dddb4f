import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { AsyncQueue } from "./async-queue.js";

async function drain<T>(queue: AsyncQueue<T>): Promise<T[]> {
  const values: T[] = [];
  for await (const value of queue) values.push(value);
  return values;
}

/** Lets everything that is ready run. */
const turnOfTheLoop = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

describe("AsyncQueue", () => {
  test("yields in order and ends after what is queued when closed", async () => {
    const queue = new AsyncQueue<number>(10);
    for (const value of [1, 2, 3]) expect(queue.offer(value)).toBe(true);
    queue.close();
    expect(queue.closed).toBe(true);
    expect(queue.offer(4)).toBe(false);
    expect(await queue.push(5)).toBe(false);
    expect(await drain(queue)).toEqual([1, 2, 3]);
  });

  test("fails after what is queued; the first end holds", async () => {
    const queue = new AsyncQueue<number>(10);
    queue.offer(1);
    queue.fail(new Error("broken"));
    queue.close();
    queue.fail(new Error("later"));
    const seen: number[] = [];
    const reading = (async () => {
      for await (const value of queue) seen.push(value);
    })();
    await expect(reading).rejects.toThrow("broken");
    expect(seen).toEqual([1]);
  });

  test("a failure of undefined is a failure", async () => {
    const queue = new AsyncQueue<number>(1);
    queue.fail(undefined);
    await expect(drain(queue).then(() => "ended")).rejects.toBe(undefined);
  });

  test("a consumer that waits is woken by a value, a close and a failure", async () => {
    for (const end of ["close", "fail"] as const) {
      const queue = new AsyncQueue<number>(1);
      const reading = drain(queue);
      await turnOfTheLoop();
      queue.offer(7);
      await turnOfTheLoop();
      if (end === "close") {
        queue.close();
        expect(await reading).toEqual([7]);
      } else {
        queue.fail(new Error("woken"));
        await expect(reading).rejects.toThrow("woken");
      }
    }
  });

  test("push waits while the queue is over its weight, and goes on when there is room", async () => {
    const queue = new AsyncQueue<string>(10);
    let pushed = false;
    const pushing = queue.push("heavy", 11).then((taken) => {
      pushed = true;
      return taken;
    });
    await turnOfTheLoop();
    expect(pushed).toBe(false);
    expect(queue.weight).toBe(11);
    const reader = queue[Symbol.asyncIterator]();
    expect((await reader.next()).value).toBe("heavy");
    expect(await pushing).toBe(true);
    expect(queue.weight).toBe(0);
  });

  test.each(["drop", "close", "fail"] as const)("%s lets waiting producers go on", async (end) => {
    const queue = new AsyncQueue<number>(0);
    const waiting = Promise.all([queue.push(1), queue.push(2)]);
    await turnOfTheLoop();
    if (end === "fail") queue.fail(new Error("over"));
    else queue[end]();
    expect(await waiting).toEqual([true, true]);
    expect(queue.weight).toBe(end === "drop" ? 0 : 2);
  });

  test("holds no more than its weight and one push per producer; loses and doubles nothing", async () => {
    const plans = fc.array(fc.array(fc.integer({ min: 1, max: 9 }), { maxLength: 12 }), {
      minLength: 1,
      maxLength: 4,
    });
    await fc.assert(
      fc.asyncProperty(plans, fc.integer({ min: 0, max: 20 }), async (producers, maxWeight) => {
        const queue = new AsyncQueue<string>(maxWeight);
        const done = producers.map(async (weights, producer) => {
          for (const [index, weight] of weights.entries()) {
            await queue.push(`${producer}.${index}`, weight);
          }
        });
        void Promise.all(done).then(() => queue.close());
        const seen: string[] = [];
        for await (const value of queue) {
          seen.push(value);
          expect(queue.weight).toBeLessThanOrEqual(maxWeight + 9 * producers.length);
        }
        await Promise.all(done);
        producers.forEach((weights, producer) => {
          const own = seen.filter((value) => value.startsWith(`${producer}.`));
          expect(own).toEqual(weights.map((_, index) => `${producer}.${index}`));
        });
      }),
      { numRuns: 60 },
    );
  });
});

import { describe, expect, test } from "vitest";
import { ManualClock } from "../../test/support/manual-clock.js";
import { AsyncQueue } from "../lib/async-queue.js";
import { withHeartbeat, type Beat } from "./with-heartbeat.js";

const turnOfTheLoop = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** A stream over a queue that the test fills, and all beats it gave so far. */
function bench(): {
  queue: AsyncQueue<string>;
  clock: ManualClock;
  beats: AsyncGenerator<Beat<string>, void>;
  seen: string[];
  reading: Promise<void>;
} {
  const queue = new AsyncQueue<string>(100);
  const clock = new ManualClock();
  const beats = withHeartbeat(queue, 1_000, clock);
  const seen: string[] = [];
  const reading = (async () => {
    for await (const beat of beats) seen.push(beat.kind === "value" ? beat.value : "idle");
  })();
  return { queue, clock, beats, seen, reading };
}

async function pass(clock: ManualClock, ms: number): Promise<void> {
  await turnOfTheLoop();
  clock.advance(ms);
  await turnOfTheLoop();
}

describe("withHeartbeat", () => {
  test("says idle once per interval of silence", async () => {
    const { queue, clock, seen, reading } = bench();
    await pass(clock, 999);
    expect(seen).toEqual([]);
    await pass(clock, 1);
    expect(seen).toEqual(["idle"]);
    await pass(clock, 1_000);
    await pass(clock, 1_000);
    expect(seen).toEqual(["idle", "idle", "idle"]);
    queue.close();
    await reading;
    expect(clock.sleeping).toBe(0);
  });

  test("a value begins the silence anew", async () => {
    const { queue, clock, seen, reading } = bench();
    await pass(clock, 900);
    queue.offer("a");
    await pass(clock, 900);
    queue.offer("b");
    await pass(clock, 999);
    expect(seen).toEqual(["a", "b"]);
    await pass(clock, 1);
    expect(seen).toEqual(["a", "b", "idle"]);
    queue.close();
    await reading;
    expect(clock.sleeping).toBe(0);
  });

  test("a clock that jumps gives one beat, not many", async () => {
    const { queue, clock, seen, reading } = bench();
    await pass(clock, 60_000);
    expect(seen).toEqual(["idle"]);
    queue.close();
    await reading;
  });

  test("a busy source is never idle and costs no timer per value", async () => {
    const { queue, clock, seen, reading } = bench();
    for (let i = 0; i < 200; i++) {
      queue.offer("v");
      await pass(clock, 400);
      expect(clock.sleeping).toBe(1);
    }
    expect(new Set(seen)).toEqual(new Set(["v"]));
    queue.close();
    await reading;
    expect([seen.length, clock.sleeping]).toEqual([200, 0]);
  });

  test("the source's failure comes through, after its values", async () => {
    const { queue, clock, seen, reading } = bench();
    queue.offer("a");
    queue.fail(new Error("source broke"));
    await expect(reading).rejects.toThrow("source broke");
    expect([seen, clock.sleeping]).toEqual([["a"], 0]);
  });

  test("a source that was empty", async () => {
    const { queue, clock, seen, reading } = bench();
    queue.close();
    await reading;
    expect([seen, clock.sleeping]).toEqual([[], 0]);
  });

  test("a break ends the source and leaves no timer", async () => {
    const clock = new ManualClock();
    let ended = false;
    async function* source(): AsyncGenerator<number> {
      try {
        for (let i = 0; ; i++) yield i;
      } finally {
        ended = true;
      }
    }
    for await (const beat of withHeartbeat(source(), 1_000, clock)) {
      expect(beat).toEqual({ kind: "value", value: 0 });
      break;
    }
    await turnOfTheLoop();
    expect([ended, clock.sleeping]).toEqual([true, 0]);
  });

  test("a break at an idle beat does not wait for a source that hangs", async () => {
    const clock = new ManualClock();

    async function* hanging(): AsyncGenerator<number> {
      await new Promise(() => undefined);
    }
    const beats = withHeartbeat(hanging(), 1_000, clock);
    const first = beats.next();
    await pass(clock, 1_000);
    expect((await first).value).toEqual({ kind: "idle" });
    await beats.return();
    expect(clock.sleeping).toBe(0);
  });

  test("a slow reader gets the value first; the silence counts from when it was taken", async () => {
    const clock = new ManualClock();
    const queue = new AsyncQueue<string>(10);
    const beats = withHeartbeat(queue, 1_000, clock);
    queue.offer("a");
    expect((await beats.next()).value).toEqual({ kind: "value", value: "a" });
    queue.offer("b");
    await pass(clock, 5_000);
    const second = (await beats.next()).value as Beat<string>;
    const third = second.kind === "idle" ? ((await beats.next()).value as Beat<string>) : second;
    expect(third).toEqual({ kind: "value", value: "b" });
    await beats.return();
    expect(clock.sleeping).toBe(0);
  });
});

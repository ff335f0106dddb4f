import { describe, expect, it } from "vitest";
import { FrameBatcher, type FrameScheduler } from "./frames.js";

/** Frames and timers that come when the test says so. */
class ManualFrames implements FrameScheduler {
  readonly frames = new Map<number, () => void>();
  readonly timers = new Map<number, { readonly run: () => void; readonly delayMs: number }>();
  #ids = 0;

  requestFrame(run: () => void): number {
    this.frames.set(++this.#ids, run);
    return this.#ids;
  }
  cancelFrame(id: number): void {
    this.frames.delete(id);
  }
  setTimer(run: () => void, delayMs: number): number {
    this.timers.set(++this.#ids, { run, delayMs });
    return this.#ids;
  }
  clearTimer(id: number): void {
    this.timers.delete(id);
  }

  frame(): void {
    const due = [...this.frames.values()];
    this.frames.clear();
    for (const run of due) run();
  }
  timer(): void {
    const due = [...this.timers.values()];
    this.timers.clear();
    for (const { run } of due) run();
  }
  get idle(): boolean {
    return this.frames.size === 0 && this.timers.size === 0;
  }
}

function batcher(options: { maxHeld?: number; onFlush?: (items: readonly number[]) => void } = {}) {
  const frames = new ManualFrames();
  const flushed: (readonly number[])[] = [];
  const onFlush = options.onFlush ?? ((items: readonly number[]) => void flushed.push(items));
  const batch = new FrameBatcher<number>(onFlush, { scheduler: frames, maxHeld: options.maxHeld });
  return { frames, flushed, batch };
}

describe("FrameBatcher", () => {
  it("hands on once per frame what came since the last one, in order", () => {
    const { frames, flushed, batch } = batcher();
    batch.push([1]);
    batch.push([2, 3]);
    expect(flushed).toEqual([]);
    frames.frame();
    batch.push([4]);
    frames.frame();
    frames.frame();
    expect(flushed).toEqual([[1, 2, 3], [4]]);
  });

  it("schedules one frame and one timer, however much comes", () => {
    const { frames, batch } = batcher();
    for (let i = 0; i < 1_000; i++) batch.push([i]);
    expect([frames.frames.size, frames.timers.size]).toEqual([1, 1]);
  });

  it("hands on the last of a burst without anything coming after it", () => {
    const { frames, flushed, batch } = batcher();
    for (let i = 0; i < 500; i++) {
      batch.push([i]);
      if (i % 7 === 0) frames.frame();
    }
    frames.frame();
    expect(flushed.flat()).toEqual(Array.from({ length: 500 }, (_, i) => i));
    expect(frames.idle).toBe(true);
  });

  it("keeps what is pushed while it hands on, for the next frame", () => {
    const seen: number[] = [];
    const { frames, batch } = batcher({
      onFlush: (items) => {
        seen.push(...items);
        if (items[0] === 1) batch.push([2]);
      },
    });
    batch.push([1]);
    frames.frame();
    expect(seen).toEqual([1]);
    frames.frame();
    expect(seen).toEqual([1, 2]);
  });

  it("goes by its timer where no frames come, and not twice", () => {
    const { frames, flushed, batch } = batcher();
    batch.push([1, 2]);
    expect([...frames.timers.values()].map(({ delayMs }) => delayMs)).toEqual([100]);
    frames.timer();
    frames.frame();
    expect(flushed).toEqual([[1, 2]]);
    expect(frames.idle).toBe(true);
  });

  it("holds no more than it may", () => {
    const { frames, flushed, batch } = batcher({ maxHeld: 3 });
    batch.push([1, 2]);
    batch.push([3, 4]);
    expect(flushed).toEqual([[1, 2, 3, 4]]);
    expect(frames.idle).toBe(true);
  });

  it("goes on after a consumer that threw", () => {
    const seen: number[] = [];
    const { frames, batch } = batcher({
      onFlush: (items) => {
        if (items[0] === 1) throw new Error("no");
        seen.push(...items);
      },
    });
    batch.push([1]);
    expect(() => frames.frame()).toThrow("no");
    batch.push([2]);
    frames.frame();
    expect(seen).toEqual([2]);
  });

  it("hands on nothing after it was closed, and leaves nothing scheduled", () => {
    const { frames, flushed, batch } = batcher();
    batch.push([1]);
    batch.close();
    batch.push([2]);
    batch.flush();
    frames.frame();
    frames.timer();
    expect(flushed).toEqual([]);
    expect(frames.idle).toBe(true);
  });
});

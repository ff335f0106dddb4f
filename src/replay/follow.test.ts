import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { systemClock } from "../lib/clock.js";
import { TurnError } from "../lib/errors.js";
import { silentLogger } from "../lib/log.js";
import { TurnTails, type TurnTailsOptions } from "./follow.js";
import type { LoggedEntry, Position, TurnLogKey } from "./replay-log.js";

const turn: TurnLogKey = { turnId: "turn-1", partition: 0 };

/** A store whose entries are put there by hand, which counts what is asked of it. */
class HandStore {
  entries: LoggedEntry[] = [];
  asked = { head: 0, page: 0, heads: 0 };
  watching = 0;
  down = false;

  /** Stores the next entry of `count` packets, `bytes` long; positions leave room, as those of a shared stream do. */
  put(count: number, options: { readonly bytes?: number; readonly terminal?: boolean } = {}): LoggedEntry {
    const last = this.entries.at(-1);
    const entry: LoggedEntry = {
      position: ((last?.position ?? 0) + 10) as Position,
      epoch: 1,
      incarnation: "w",
      firstSeq: (last?.lastSeq ?? 0) + 1,
      lastSeq: (last?.lastSeq ?? 0) + count,
      terminal: options.terminal ?? false,
      batch: new Uint8Array(options.bytes ?? 10),
    };
    this.entries.push(entry);
    return entry;
  }

  head(): Promise<LoggedEntry | undefined> {
    this.asked.head += 1;
    return this.#answer(this.entries.at(-1));
  }
  locate(): Promise<Position> {
    return this.#answer(0 as Position);
  }
  page(_turn: TurnLogKey, after: Position, upTo: Position): Promise<readonly LoggedEntry[]> {
    this.asked.page += 1;
    return this.#answer(
      this.entries.filter(({ position }) => position > after && position <= upTo).slice(0, 5),
    );
  }
  heads(): Promise<ReadonlyMap<string, Position>> {
    this.asked.heads += 1;
    const head = this.entries.at(-1);
    return this.#answer(new Map(head ? [[turn.turnId, head.position]] : []));
  }
  watch(): () => void {
    this.watching += 1;
    return () => (this.watching -= 1);
  }

  #answer<T>(value: T): Promise<T> {
    return this.down ? Promise.reject(new TurnError(ErrorCode.UNAVAILABLE)) : Promise.resolve(value);
  }
}

let store: HandStore;
let tails: TurnTails;
let stop: AbortController;

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setInterval", "clearInterval", "setTimeout", "clearTimeout", "performance"] });
  store = new HandStore();
  tails = open();
  stop = new AbortController();
});
afterEach(() => {
  expect(tails.counts.followers).toBe(0);
  tails.close(new TurnError(ErrorCode.UNAVAILABLE));
  expect(store.watching).toBe(0);
  vi.useRealTimers();
});

function open(options: Partial<TurnTailsOptions> = {}): TurnTails {
  return new TurnTails({ store, clock: systemClock, logger: silentLogger, ...options });
}

/** A reader whose seqs, or failure, can be looked at while it runs. */
function start(afterSeq = 0, signal = AbortSignal.any([stop.signal])) {
  const seqs: number[] = [];
  const done = (async () => {
    let cursor = afterSeq;
    for await (const entry of tails.follow(turn, afterSeq, { signal })) {
      for (; cursor < entry.lastSeq; cursor += 1) seqs.push(cursor + 1);
    }
    return "ended";
  })().catch((error: unknown) => (error instanceof TurnError ? ErrorCode[error.code] : error));
  return { seqs, done };
}

/** Lets everything run that waits for nothing but promises. */
const settle = (): Promise<unknown> => vi.advanceTimersByTimeAsync(0);

const upTo = (seq: number): number[] => Array.from({ length: seq }, (_, index) => index + 1);

describe("follow", () => {
  test("takes what connects from memory, without asking the store again", async () => {
    const first = store.put(2);
    const reader = start();
    await settle();
    const asked = { ...store.asked };
    let previous = first.position;
    for (let round = 0; round < 5; round += 1) {
      const entry = store.put(1, { terminal: round === 4 });
      tails.heard(turn.turnId, entry, previous);
      previous = entry.position;
      await settle();
    }
    expect(reader.seqs).toEqual(upTo(7));
    expect(store.asked).toEqual(asked);
    expect(await reader.done).toBe("ended");
  });

  test("reads the log where the feed has a gap", async () => {
    store.put(1);
    const reader = start();
    await settle();
    const missed = store.put(2);
    const heard = store.put(1);
    tails.heard(turn.turnId, heard, missed.position);
    await settle();
    expect(reader.seqs).toEqual(upTo(4));
    const last = store.put(1, { terminal: true });
    tails.heard(turn.turnId, last, heard.position);
    expect(await reader.done).toBe("ended");
    expect(reader.seqs).toEqual(upTo(5));
  });

  test("what comes twice, late or from both feeds is taken once", async () => {
    const first = store.put(1);
    const reader = start();
    await settle();
    const asked = { ...store.asked };
    const second = store.put(1);
    tails.heard(turn.turnId, second, first.position);
    tails.appended(turn, second, first.position);
    tails.heard(turn.turnId, first, 0 as Position);
    await settle();
    expect(store.asked, "without looking at the log").toEqual(asked);
    const third = store.put(1, { terminal: true });
    tails.appended(turn, third, second.position);
    tails.heard(turn.turnId, third, second.position);
    expect(await reader.done).toBe("ended");
    expect(reader.seqs).toEqual(upTo(3));
  });

  test("finds an entry that was never reported, when the feed was silent for a while", async () => {
    store.put(1);
    const reader = start();
    await settle();
    store.put(1, { terminal: true });
    await settle();
    expect(reader.seqs).toEqual(upTo(1));
    await vi.advanceTimersByTimeAsync(1_000);
    expect(reader.seqs).toEqual(upTo(2));
    expect(await reader.done).toBe("ended");
  });

  test("compares a silent turn ever less often, up to the bound", async () => {
    store.put(1);
    const reader = start();
    await vi.advanceTimersByTimeAsync(60_000);
    expect(store.asked.heads).toBeGreaterThanOrEqual(12);
    expect(store.asked.heads).toBeLessThanOrEqual(16);
    stop.abort("enough");
    expect(await reader.done).toBe("enough");
  });

  test("the writer's own readers need no watch, until the writer is silent", async () => {
    const first = store.put(1);
    tails.appended(turn, first, 0 as Position);
    const reader = start();
    await settle();
    expect(store.watching).toBe(0);
    expect(store.asked.head).toBe(0);
    const second = store.put(1);
    tails.appended(turn, second, first.position);
    await settle();
    expect(reader.seqs).toEqual(upTo(2));
    // Another process takes over; nothing is reported here.
    const other = store.put(1);
    await vi.advanceTimersByTimeAsync(1_500);
    expect(store.watching).toBe(1);
    expect(reader.seqs).toEqual(upTo(3));
    // Handed back: the first own append ends the watch.
    const own = store.put(1);
    tails.appended(turn, own, other.position);
    expect(store.watching).toBe(0);
    const last = store.put(1, { terminal: true });
    tails.appended(turn, last, own.position);
    expect(await reader.done).toBe("ended");
    expect(reader.seqs).toEqual(upTo(5));
  });

  test("a refused writer's readers look at the log at once", async () => {
    const first = store.put(1);
    tails.appended(turn, first, 0 as Position);
    const reader = start();
    await settle();
    store.put(3, { terminal: true });
    tails.localLost(turn.turnId);
    expect(await reader.done).toBe("ended");
    expect(reader.seqs).toEqual(upTo(4));
  });

  test("a reader that does not come back for more keeps 1 MiB at most, then reads the log", async () => {
    const first = store.put(1);
    const reading = tails.follow(turn, 0, { signal: stop.signal })[Symbol.asyncIterator]();
    const got = [(await reading.next()).value as LoggedEntry];
    let previous = first.position;
    const report = (terminal = false): void => {
      const entry = store.put(1, { bytes: 200 * 1024, terminal });
      tails.heard(turn.turnId, entry, previous);
      previous = entry.position;
    };
    for (let round = 0; round < 5; round += 1) report();
    const pages = store.asked.page;
    for (let round = 0; round < 5; round += 1) got.push((await reading.next()).value as LoggedEntry);
    expect(store.asked.page, "1,000 KiB were kept").toBe(pages);
    for (let round = 0; round < 20; round += 1) report(round === 19);
    for (let next = await reading.next(); !next.done; next = await reading.next()) got.push(next.value);
    expect(store.asked.page, "4,000 KiB were not").toBeGreaterThan(pages);
    expect(got.map((entry) => entry.firstSeq)).toEqual(upTo(26));
  });

  test("a hundred readers that start together share the reads", async () => {
    for (let round = 0; round < 20; round += 1) store.put(1);
    store.put(1, { terminal: true });
    const readers = Array.from({ length: 100 }, () => start());
    await Promise.all(readers.map((reader) => reader.done));
    for (const reader of readers) expect(reader.seqs).toEqual(upTo(21));
    expect(store.asked.head).toBeLessThanOrEqual(2);
    expect(store.asked.page).toBeLessThanOrEqual(12);
  });

  test("what one reader has found tells the others that they are behind, hint or no hint", async () => {
    const first = store.put(1);
    const early = start();
    await settle();
    const last = store.put(1, { terminal: true });
    const late = start(); // finds the end in the log before the store's feed tells of it
    await vi.advanceTimersByTimeAsync(0);
    expect(late.seqs).toEqual(upTo(2));
    tails.behind(turn.turnId, last.position);
    await vi.advanceTimersByTimeAsync(10_000);
    expect(early.seqs, `waits at ${first.position}`).toEqual(upTo(2));
    expect(await early.done).toBe("ended");
  });

  test("waits for a store that is away, and fails as UNAVAILABLE when that takes too long", async () => {
    store.put(1);
    const [patient, late] = [start(), start()];
    await settle();
    store.down = true;
    tails.resync();
    store.put(1);
    await vi.advanceTimersByTimeAsync(20_000);
    store.down = false;
    await vi.advanceTimersByTimeAsync(1_000);
    expect(patient.seqs).toEqual(upTo(2));
    store.down = true;
    tails.resync();
    await vi.advanceTimersByTimeAsync(31_000);
    expect(await patient.done).toBe("UNAVAILABLE");
    expect(await late.done).toBe("UNAVAILABLE");
  });

  test("a log that ends before what was served is LOG_TRUNCATED, a gap in it CURSOR_EXPIRED", async () => {
    store.put(1);
    store.put(1);
    const [truncated] = [start()];
    await settle();
    store.entries.pop();
    tails.resync();
    expect(await truncated.done).toBe("LOG_TRUNCATED");
    const expired = start();
    await settle();
    store.put(1);
    store.put(1);
    store.entries.splice(1, 1);
    tails.resync();
    expect(await expired.done).toBe("CURSOR_EXPIRED");
    expect(expired.seqs).toEqual(upTo(1));
  });

  test("a log that lost a claim at its end is LOG_TRUNCATED too", async () => {
    store.put(1);
    store.put(0);
    const reader = start();
    await settle();
    store.entries.pop();
    tails.resync();
    expect(await reader.done).toBe("LOG_TRUNCATED");
  });

  test("a failure of the log as a whole reaches all readers, those that are reading it too", async () => {
    store.put(1);
    const [waiting, reading] = [start(), start()];
    await settle();
    store.down = true;
    tails.resync();
    const starting = start();
    await settle();
    tails.fail(new TurnError(ErrorCode.LOG_REPLACED));
    store.down = false;
    await vi.advanceTimersByTimeAsync(1_000);
    for (const reader of [waiting, reading, starting]) expect(await reader.done).toBe("LOG_REPLACED");
  });
});

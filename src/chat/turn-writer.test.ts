import { fromBinary } from "@bufbuild/protobuf";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { PacketBatchSchema } from "../../gen/turnwire/log/v1/log_pb.js";
import { StopReason, TurnOutcome } from "../../gen/turnwire/packet/v1/common_pb.js";
import type { Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import { ManualClock } from "../../test/support/manual-clock.js";
import { LoopTick } from "../lib/loop-tick.js";
import { deferred } from "../lib/signals.js";
import { claimTurn } from "../replay/claim.js";
import { createMemoryReplayLog, type AppendFate, type MemoryReplayLog } from "../replay/memory-replay-log.js";
import type { Entry, LoggedEntry } from "../replay/replay-log.js";
import type { ArchivePart } from "../store/store.js";
import { closeOpen, overallStop } from "../turn/close-open.js";
import { fold } from "../turn/fold.js";
import { answerDelta, packet } from "../turn/packets.js";
import { lanePlacementOf, placementOf, turnPlacement } from "../turn/placement.js";
import { bytesOf } from "../turn/test-support.js";
import { FencedError, TurnWriter, type TurnWriterOptions } from "./turn-writer.js";

const KEY = { turnId: "turn", partition: 0 };
const never = new AbortController().signal;
const turnOfTheLoop = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
const block = (lane = 0) => placementOf(0, 0, undefined, lane, undefined);
const say = (text: string, lane = 0): Packet => answerDelta(text, block(lane));

interface Bench {
  readonly writer: TurnWriter;
  readonly log: MemoryReplayLog;
  readonly clock: ManualClock;
  /** Entries with packets that an append was tried with. */
  readonly tried: Entry[];
  readonly parts: ArchivePart[];
  readonly events: string[];
  entries(): Promise<LoggedEntry[]>;
  packets(): Promise<Packet[]>;
}

/** A claimed turn and its writer; `fate` is asked about every entry that is not a claim. */
async function bench(
  fate: (entry: Entry, nth: number) => AppendFate | Promise<AppendFate> = () => "normal",
  changes: Partial<TurnWriterOptions> = {},
): Promise<Bench> {
  const tried: Entry[] = [];
  const parts: ArchivePart[] = [];
  const events: string[] = [];
  const clock = new ManualClock();
  const log = createMemoryReplayLog({
    onAppend: (_turn, _expected, entry) => {
      if (entry.batch.length === 0) return "normal";
      tried.push(entry);
      return fate(entry, tried.length);
    },
  });
  const claim = await claimTurn(log, KEY, {
    minEpoch: 1,
    incarnation: "me",
    signal: never,
    firstClaim: true,
  });
  const writer = new TurnWriter({
    log,
    key: KEY,
    clock,
    tick: new LoopTick(),
    incarnation: "me",
    epoch: claim.epoch,
    position: claim.position,
    startedAtMs: clock.now().getTime(),
    maxTurnBytes: 1024 * 1024,
    saveArchive: (part) => {
      parts.push(part);
      return Promise.resolve();
    },
    onSizeLimit: () => events.push("size"),
    onLogLost: () => events.push("lost"),
    onFailure: (error) => events.push(`failed: ${(error as Error).name}`),
    ...changes,
  });
  const entries = async (): Promise<LoggedEntry[]> => {
    const all: LoggedEntry[] = [];
    for await (const entry of log.read(KEY, 0, { signal: never })) all.push(entry);
    return all;
  };
  const packets = async (): Promise<Packet[]> =>
    (await entries()).flatMap((entry) => fromBinary(PacketBatchSchema, entry.batch).packets);
  return { writer, log, clock, tried, parts, events, entries, packets };
}

async function begin({ writer }: Bench, lanes = 1): Promise<void> {
  const started = packet(
    "turnStarted",
    {
      turnId: "turn",
      lanes: Array.from({ length: lanes }, (_, modelIndex) => ({ modelIndex, modelId: "m" })),
    },
    turnPlacement(),
  );
  const each = Array.from({ length: lanes }, (_, lane) => [
    packet("laneStarted", { modelId: "m" }, lanePlacementOf(lane)),
    packet("cycleStarted", { cycle: 1, modelId: "m", attempt: 1 }, lanePlacementOf(lane)),
    packet("agentResponseStart", {}, block(lane)),
  ]);
  await writer.write([started, ...each.flat()]);
  await writer.flush();
}

const texts = (packets: readonly Packet[]): string[] =>
  packets.flatMap(({ payload }) => (payload.case === "agentResponseDelta" ? [payload.value.content] : []));
const stopped = { kind: "stopped", stopReason: StopReason.USER_CANCELLED } as const;

describe("group commit", () => {
  test("what comes while an append is in flight joins the next entry", async () => {
    const gate = deferred();
    const all = await bench(async (_entry, nth): Promise<AppendFate> => {
      if (nth === 1) await gate.promise;
      return "normal";
    });
    await all.writer.write([say("a")]);
    await all.writer.write([say("b")]);
    await turnOfTheLoop();
    for (const text of ["c", "d", "e"]) await all.writer.write([say(text)]);
    await turnOfTheLoop();
    expect([all.tried.length, all.writer.ackedSeq]).toEqual([1, 0]);
    gate.resolve();
    await all.writer.flush();
    expect(all.tried.map(({ firstSeq, lastSeq }) => [firstSeq, lastSeq])).toEqual([
      [1, 2],
      [3, 5],
    ]);
    expect(all.writer.ackedSeq).toBe(5);
    expect(texts(await all.packets())).toEqual(["a", "b", "c", "d", "e"]);
  });

  test("acked moves only after the append", async () => {
    const gate = deferred();
    const all = await bench(async (): Promise<AppendFate> => {
      await gate.promise;
      return "normal";
    });
    await all.writer.write([say("a")]);
    await turnOfTheLoop();
    expect([all.writer.state.seq, all.writer.ackedSeq]).toEqual([1, 0]);
    gate.resolve();
    await all.writer.flush();
    expect(all.writer.ackedSeq).toBe(1);
  });

  test("entries stay below 256 KiB, packets are whole, seqs dense, whatever the sizes", async () => {
    const sizes = fc.array(
      fc.oneof(fc.integer({ min: 1, max: 300 }), fc.integer({ min: 100_000, max: 130_900 })),
      {
        minLength: 1,
        maxLength: 12,
      },
    );
    await fc.assert(
      fc.asyncProperty(sizes, fc.integer({ min: 1, max: 4 }), async (lengths, perWrite) => {
        const all = await bench(() => "normal", { maxTurnBytes: 32 * 1024 * 1024 });
        const packets = lengths.map((length) => say("x".repeat(length)));
        for (let at = 0; at < packets.length; at += perWrite)
          await all.writer.write(packets.slice(at, at + perWrite));
        await all.writer.flush();
        for (const entry of all.tried) expect(entry.batch.length).toBeLessThanOrEqual(256 * 1024);
        const logged = await all.packets();
        expect(logged.map(({ seq }) => seq)).toEqual(lengths.map((_, index) => index + 1));
        expect(texts(logged).map((text) => text.length)).toEqual(lengths);
        expect(bytesOf(all.writer.state)).toBe(bytesOf(fold(logged)));
      }),
      { numRuns: 25 },
    );
  });

  test("two packets of 128 KiB make no entry over its limit", async () => {
    const all = await bench();
    const largest = 128 * 1024 - 40;
    await all.writer.write([say("a".repeat(largest)), say("b".repeat(largest)), say("c".repeat(largest))]);
    await all.writer.flush();
    for (const entry of all.tried) expect(entry.batch.length).toBeLessThanOrEqual(256 * 1024);
    expect(all.writer.ackedSeq).toBe(3);
  });

  test("t_ms counts from the start of the turn and never goes back", async () => {
    const all = await bench(() => "normal", { lastTMs: 40 });
    for (const ms of [0, 25, 50]) {
      all.clock.advance(ms);
      await all.writer.write([say("x")]);
      await all.writer.flush();
    }
    expect((await all.packets()).map(({ tMs }) => tMs)).toEqual([40, 40, 75]);
  });

  test("a long queue makes write wait", async () => {
    const gate = deferred();
    const all = await bench(async (): Promise<AppendFate> => {
      await gate.promise;
      return "normal";
    });
    let through = false;
    const many = Array.from({ length: 3_000 }, (_, index) => say(`${index} `));
    await all.writer.write([say("first")]);
    await turnOfTheLoop();
    const writing = all.writer.write(many).then(() => (through = true));
    await turnOfTheLoop();
    expect(through).toBe(false);
    gate.resolve();
    await writing;
    expect(all.writer.ackedSeq).toBeGreaterThan(900);
  });
});

describe("appends that go wrong", () => {
  test.each(["stored_unknown", "lost_unknown"] as const)(
    "an unknown outcome (%s) is repeated with the same bytes",
    async (fate) => {
      const all = await bench((_entry, nth) => (nth === 1 ? fate : "normal"));
      const retried = all.clock.sleepBegins(50);
      await all.writer.write([say("a")]);
      await retried;
      await all.writer.write([say("b")]);
      expect(all.writer.ackedSeq).toBe(0);
      all.clock.advance(50);
      await all.writer.flush();
      expect(all.tried.slice(0, 2).map(({ firstSeq, lastSeq }) => [firstSeq, lastSeq])).toEqual([
        [1, 1],
        [1, 1],
      ]);
      expect(Buffer.from(all.tried[0]!.batch).equals(all.tried[1]!.batch)).toBe(true);
      expect(texts(await all.packets())).toEqual(["a", "b"]);
      expect([all.clock.sleeping, all.events.length]).toEqual([0, 0]);
    },
  );

  test("fenced: everything after it throws, nothing is emitted, it is said once (I5)", async () => {
    const all = await bench();
    await begin(all);
    await claimTurn(all.log, KEY, { minEpoch: 1, incarnation: "other", signal: never });
    await all.writer.write([say("too late")]);
    await expect(all.writer.flush()).rejects.toThrow(FencedError);
    await expect(all.writer.write([say("more")])).rejects.toThrow(FencedError);
    await expect(all.writer.seal()).rejects.toThrow(FencedError);
    await expect(all.writer.encodeTerminal(overallStop(all.writer.state))).rejects.toThrow(FencedError);
    expect(() => all.writer.close(() => [])).toThrow(FencedError);
    await turnOfTheLoop();
    expect(texts(await all.packets())).toEqual([]);
    expect([all.events, all.writer.failed]).toEqual([["failed: FencedError"], true]);
  });

  test("fenced while others wait: each of them hears of it", async () => {
    const gate = deferred();
    const all = await bench(async (): Promise<AppendFate> => {
      await gate.promise;
      return "normal";
    });
    await all.writer.write([say("a")]);
    await turnOfTheLoop();
    const waiting = [all.writer.seal(), all.writer.seal(0), all.writer.flush()];
    await claimTurn(all.log, KEY, { minEpoch: 1, incarnation: "other", signal: never });
    gate.resolve();
    for (const each of await Promise.allSettled(waiting)) expect(each.status).toBe("rejected");
  });

  test("abandoned: an append that is retried ends, and no failure is reported", async () => {
    const all = await bench(() => "lost_unknown");
    const retrying = all.clock.sleepBegins(50);
    await all.writer.write([say("a")]);
    await retrying;
    all.writer.abandon();
    await expect(all.writer.flush()).rejects.toThrow(FencedError);
    expect([all.clock.sleeping, all.events.length]).toEqual([0, 0]);
  });

  test("a full log is tried again, and the turn is told to end", async () => {
    const all = await bench((_entry, nth) => (nth <= 2 ? "full" : "normal"));
    const first = all.clock.sleepBegins(500);
    await all.writer.write([say("a")]);
    await first;
    const second = all.clock.sleepBegins(500);
    await all.writer.write([say("dropped")]);
    all.clock.advance(500);
    await second;
    all.clock.advance(500);
    await all.writer.flush();
    expect([texts(await all.packets()), all.events]).toEqual([["a"], ["size"]]);
  });

  test("an archive that cannot be stored fails the writer", async () => {
    const all = await bench(() => "normal", { saveArchive: () => Promise.reject(new RangeError("disk")) });
    for (let i = 0; i < 3; i++) await all.writer.write([say("x".repeat(100_000))]);
    await all.writer.flush().catch(() => undefined);
    await turnOfTheLoop();
    expect(all.events).toEqual(["failed: RangeError"]);
    await expect(all.writer.write([say("y")])).rejects.toThrow("disk");
  });
});

describe("seal (I4)", () => {
  test("drops what is queued, settles what is in flight, says the seq; at once and again", async () => {
    const gate = deferred();
    let held = false;
    const all = await bench(async (): Promise<AppendFate> => {
      if (held) await gate.promise;
      return "normal";
    });
    await begin(all);
    held = true;
    await all.writer.write([say("shown")]);
    await turnOfTheLoop();
    await all.writer.write([say("dropped")]);
    const seals = [all.writer.seal(), all.writer.seal(), all.writer.seal(0)];
    await all.writer.write([say("ignored")]);
    all.writer.close((state) => closeOpen(state, stopped));
    const later = all.writer.seal(); // must not drop the closing
    gate.resolve();
    expect(await Promise.all([...seals, later])).toEqual([5, 5, 5, 5]);
    await all.writer.flush();
    const packets = await all.packets();
    expect(texts(packets)).toEqual(["shown"]);
    expect(packets.slice(5).map(({ payload }) => payload.case)).toEqual([
      "agentResponseDone",
      "cycleEnd",
      "laneEnd",
    ]);
    expect(await Promise.all([all.writer.seal(), all.writer.seal(0)])).toEqual([5, 5]); // closed since, still the same
  });

  test("of a queue that was not taken up yet: nothing of it is shown", async () => {
    const all = await bench();
    await begin(all);
    await all.writer.write([say("not yet")]);
    expect(await all.writer.seal()).toBe(4);
    await all.writer.flush();
    expect(texts(await all.packets())).toEqual([]);
  });

  test("of a lane drops only its packets, queued or written later", async () => {
    const gate = deferred();
    let held = false;
    const all = await bench(async (): Promise<AppendFate> => {
      if (held) await gate.promise;
      return "normal";
    });
    await begin(all, 2);
    held = true;
    await all.writer.write([say("one", 0)]);
    await turnOfTheLoop();
    await all.writer.write([say("gone", 0), say("stays", 1)]);
    const sealed = all.writer.seal(0);
    all.writer.close((state) => closeOpen(state, { ...stopped, modelIndex: 0 }));
    await all.writer.write([say("gone too", 0), say("stays too", 1)]);
    gate.resolve();
    expect(await sealed).toBe(8);
    await all.writer.flush();
    const packets = await all.packets();
    expect(texts(packets)).toEqual(["one", "stays", "stays too"]);
    const state = fold(packets);
    expect(state.lanes.map((lane) => lane.end?.outcome)).toEqual([TurnOutcome.STOPPED, undefined]);
  });

  test("however many close, at whatever time, everything is closed once", async () => {
    const acts = fc.array(
      fc.constantFrom("seal", "seal 0", "seal 1", "close", "close 0", "close 1", "write", "wait"),
      { maxLength: 12 },
    );
    await fc.assert(
      fc.asyncProperty(acts, async (plan) => {
        const all = await bench(async (): Promise<AppendFate> => {
          await turnOfTheLoop();
          return "normal";
        });
        await begin(all, 2);
        const doing: Promise<unknown>[] = [];
        for (const act of plan) {
          const [what, lane] = act.split(" ");
          const modelIndex = lane === undefined ? undefined : Number(lane);
          if (what === "write") doing.push(all.writer.write([say("x", 0), say("y", 1)]));
          else if (what === "wait") await turnOfTheLoop();
          else {
            doing.push(all.writer.seal(modelIndex));
            if (what === "close") all.writer.close((state) => closeOpen(state, { ...stopped, modelIndex }));
          }
        }
        await Promise.all(doing);
        void all.writer.seal();
        all.writer.close((state) => closeOpen(state, stopped));
        await all.writer.flush();
        const ends = (await all.packets()).map(
          ({ payload, placement }) => `${payload.case} ${placement?.modelIndex}`,
        );
        for (const lane of [0, 1])
          for (const end of ["agentResponseDone", "cycleEnd", "laneEnd"])
            expect(ends.filter((each) => each === `${end} ${lane}`)).toHaveLength(1);
      }),
      { numRuns: 60 },
    );
  });

  test("what is too long for one entry is closed over several", async () => {
    const all = await bench();
    await begin(all);
    await all.writer.seal();
    all.writer.close(() => Array.from({ length: 6 }, (_, index) => say(`${index}`.repeat(60_000))));
    await all.writer.flush();
    expect(texts(await all.packets()).map((text) => text[0])).toEqual(["0", "1", "2", "3", "4", "5"]);
    for (const entry of all.tried) expect(entry.batch.length).toBeLessThanOrEqual(256 * 1024);
  });
});

describe("the size limit (I14)", () => {
  test("seals the turn by itself, once, leaving room to close it", async () => {
    const all = await bench(() => "normal", { maxTurnBytes: 100_000 });
    await begin(all);
    for (let i = 0; i < 300; i++) await all.writer.write([say(`${i} `.padEnd(1_000))]);
    await all.writer.flush();
    expect(all.events).toEqual(["size"]);
    all.writer.close((state) => closeOpen(state, { kind: "stopped", stopReason: StopReason.SIZE_LIMIT }));
    await all.writer.flush();
    const bytes = (await all.entries()).reduce((sum, entry) => sum + entry.batch.length, 0);
    expect(bytes).toBeLessThanOrEqual(100_000);
    const numbers = texts(await all.packets()).map(Number);
    expect(numbers).toEqual(numbers.map((_, index) => index));
    expect(all.writer.state.lanes[0]!.end).toBeDefined();
  });

  test("a stop that comes out of it knows where the content ends", async () => {
    const stop: { writer?: TurnWriter; seq?: Promise<number> } = {};
    const onSizeLimit = (): void => {
      stop.seq = stop.writer!.seal();
    };
    const all = await bench(() => "normal", { maxTurnBytes: 20_000, onSizeLimit });
    stop.writer = all.writer;
    await all.writer.write(Array.from({ length: 30 }, () => say("x".repeat(1_000))));
    await all.writer.flush();
    expect(await stop.seq).toBe(all.writer.ackedSeq);
    expect(all.writer.ackedSeq).toBeGreaterThan(5);
  });
});

describe("a log that lost what it had", () => {
  test("is written no more; the rest goes into the archive, and the turn still ends", async () => {
    const all = await bench();
    await begin(all);
    await all.writer.write([say("acked")]);
    await all.writer.flush();
    all.log.replace();
    await all.writer.write([say("for the archive")]);
    await all.writer.flush();
    expect(all.events).toEqual(["lost"]);
    expect(await all.writer.seal()).toBe(6);
    all.writer.close((state) => closeOpen(state, stopped));
    await all.writer.flush();
    const terminal = await all.writer.encodeTerminal(overallStop(all.writer.state, stopped));
    const part = (await all.writer.lastArchivePart())!;
    await all.writer.publishTerminal(terminal, never);
    const archived = fromBinary(PacketBatchSchema, part.batch).packets;
    expect([part.firstSeq, part.lastSeq]).toEqual([1, 9]);
    expect(archived.map(({ seq }) => seq)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9]);
    expect(texts(archived)).toEqual(["acked", "for the archive"]);
    expect(await all.log.head(KEY, never)).toBeUndefined();
  });

  test("known beforehand: nothing is appended", async () => {
    const all = await bench(() => "normal", { logLost: true });
    await begin(all);
    expect([all.tried.length, all.writer.ackedSeq, all.events.length]).toEqual([0, 4, 0]);
    expect((await all.writer.lastArchivePart())!.lastSeq).toBe(4);
  });
});

describe("the archive", () => {
  test("grows in parts of 256 KiB that are dense and, put together, the log's bytes", async () => {
    const all = await bench(() => "normal", { maxTurnBytes: 32 * 1024 * 1024 });
    await begin(all);
    for (let i = 0; i < 40; i++) {
      await all.writer.write([say("x".repeat(i * 700)), say("y")]);
      if (i % 3 === 0) await all.writer.flush();
    }
    await all.writer.write([say("the rest")]);
    await all.writer.flush();
    const last = (await all.writer.lastArchivePart())!;
    expect(all.parts.length).toBeGreaterThan(1);
    let seq = 0;
    for (const part of [...all.parts, last]) {
      expect(part.firstSeq).toBe(seq + 1);
      seq = part.lastSeq;
      const packets = fromBinary(PacketBatchSchema, part.batch).packets;
      expect([packets[0]!.seq, packets.at(-1)!.seq]).toEqual([part.firstSeq, part.lastSeq]);
    }
    expect(seq).toBe(all.writer.ackedSeq);
    const archived = Buffer.concat([...all.parts, last].map(({ batch }) => batch));
    expect(archived.equals(Buffer.concat((await all.entries()).map(({ batch }) => batch)))).toBe(true);
    expect(await all.writer.lastArchivePart()).toBeUndefined();
  });

  test("of an earlier owner is gone on with, wherever it ended", async () => {
    for (const archivedSeq of [0, 1, 4, 6]) {
      const first = await bench();
      await begin(first);
      await first.writer.write([say("a"), say("b")]);
      await first.writer.flush();
      const claim = await claimTurn(first.log, KEY, { minEpoch: 1, incarnation: "next", signal: never });
      const next = await bench(() => "normal", {
        log: first.log,
        incarnation: "next",
        ...claim,
        state: fold(await first.packets()),
        archivedSeq,
      });
      await next.writer.rearchive(first.log.read(KEY, archivedSeq, { signal: never }));
      await next.writer.write([say("c")]);
      await next.writer.flush();
      const part = (await next.writer.lastArchivePart())!;
      expect([part.firstSeq, part.lastSeq]).toEqual([archivedSeq + 1, 7]);
      const seqs = fromBinary(PacketBatchSchema, part.batch).packets.map(({ seq }) => seq);
      expect(seqs).toEqual(Array.from({ length: 7 - archivedSeq }, (_, index) => archivedSeq + 1 + index));
    }
  });
});

test("the terminal is numbered and folded, and appended only when told, with those bytes", async () => {
  const all = await bench();
  await begin(all);
  void all.writer.seal();
  all.writer.close((state) => closeOpen(state, stopped));
  await all.writer.flush();
  const terminal = await all.writer.encodeTerminal(overallStop(all.writer.state, stopped));
  expect(all.writer.ackedSeq).toBe(7);
  expect(await all.writer.seal()).toBe(4); // a stop now: where the content ended
  expect((await all.entries()).at(-1)!.terminal).toBe(false);
  await all.writer.publishTerminal(terminal, never);
  const last = (await all.entries()).at(-1)!;
  expect([last.terminal, last.firstSeq, last.lastSeq]).toEqual([true, 8, 8]);
  expect(Buffer.from(last.batch).equals(terminal)).toBe(true);
});

/** Reading a turn from a cursor (I1, I11): the same bytes from the log and the archive, or a typed refusal. */
import { fromBinary } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { SendMessageResponseSchema } from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import { PacketBatchSchema } from "../../gen/turnwire/log/v1/log_pb.js";
import { ErrorCode, FinishReason, StopReason } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnReader, type Cursor, type ReadBatch } from "../../src/chat/read-turn.js";
import { FROM_THE_START, foldTurn, packetFrames } from "../../src/chat/turn-streams.js";
import { deferred } from "../../src/lib/signals.js";
import { createMemoryReplayLog, type MemoryReplayLog } from "../../src/replay/memory-replay-log.js";
import type { TurnRow } from "../../src/store/store.js";
import { bytesOf, content, finish } from "../../src/turn/test-support.js";
import {
  answer,
  chat,
  never,
  scriptedModels,
  turnOfTheLoop,
  until,
  untilStopped,
  type Chat,
  type ChatOptions,
} from "../support/chat-fixture.js";
import { ManualClock } from "../support/manual-clock.js";
import { usePostgres } from "../support/postgres.js";
import { ALICE, collect, useStore } from "../support/store-fixtures.js";

const postgres = usePostgres();
const stores = useStore(postgres);

function newChat(options: Partial<ChatOptions> = {}): Chat {
  return chat({ store: stores.store, databaseUrl: postgres.url, ...options });
}

const readerOf = (process: Chat): TurnReader => new TurnReader(process.deps, process.turns);
const at = (afterSeq: number, logId = ""): Cursor => ({ afterSeq, logId, hint: undefined });
const rowOf = async (turnId: string): Promise<TurnRow> => (await stores.store.loadTurn(turnId))!;
const hexOf = (batches: readonly ReadBatch[]): string =>
  Buffer.concat(batches.map(({ bytes }) => bytes)).toString("hex");
const seqsOf = (batches: readonly { bytes: Uint8Array }[]): number[] =>
  batches.flatMap(({ bytes }) => fromBinary(PacketBatchSchema, bytes).packets.map(({ seq }) => seq));
const heartbeatsOf = ({ bytes }: { bytes: Uint8Array }): number[] =>
  fromBinary(SendMessageResponseSchema, bytes).packets.flatMap(({ payload }) =>
    payload.case === "chatHeartbeat" ? [payload.value.headSeq] : [],
  );
const range = (from: number, to: number): number[] =>
  Array.from({ length: to - from + 1 }, (_, index) => from + index);

const words = (count: number): string =>
  Array.from({ length: count }, (_, index) => `word${index}`).join(" ");
const big = () =>
  scriptedModels(async function* () {
    for (let i = 0; i < 120; i++) {
      yield content(`${i} `.padEnd(6_000, "."));
      await turnOfTheLoop();
    }
    yield finish(FinishReason.STOP);
  });
/** Says some words, then waits for a gate, then goes on. */
const halting = (gate: Promise<void>, first = 20) =>
  scriptedModels(async function* () {
    for (const each of answer(words(first)).slice(0, -1)) yield each;
    await gate;
    for (const each of answer("and so on and so forth")) yield each;
  });

/** Drops what the log has of a turn up to a seq. */
async function expire(log: MemoryReplayLog, row: TurnRow, upToSeq: number): Promise<void> {
  const entries = await collect(
    log.read({ turnId: row.turnId, partition: row.partition }, 0, { signal: never }),
  );
  const last = entries.filter((entry) => entry.lastSeq <= upToSeq).at(-1);
  if (last) log.expire(row.turnId, last.position);
}

describe("an ended turn", () => {
  test("from every cursor, from the archive as from the log", async () => {
    const log = createMemoryReplayLog();
    const process = newChat({ log, models: big() });
    const { turnId, entries, packets } = await process.run();
    const row = await rowOf(turnId);
    const reader = readerOf(process);
    const whole = Buffer.concat(entries.map((entry) => entry.batch)).toString("hex");
    await log.erase({ turnId, partition: row.partition }, never);
    expect(hexOf(await collect(reader.read(row, at(0), true, never)))).toBe(whole);
    expect((await collect(stores.store.readArchive(turnId, 0))).length).toBeGreaterThan(2);
    for (let afterSeq = 0; afterSeq <= packets.length; afterSeq++) {
      const batches = await collect(reader.read(row, at(afterSeq), true, never));
      expect(seqsOf(batches)).toEqual(range(afterSeq + 1, packets.length));
      expect(whole.endsWith(hexOf(batches))).toBe(true);
      expect(batches.at(-1)?.lastSeq ?? packets.length).toBe(packets.length);
    }
  });

  test("committed, with a terminal that never reached the log, has its end", async () => {
    const process = newChat({ onAppend: (_turn, _expected, entry) => (entry.terminal ? "full" : "normal") });
    const turn = await process.start();
    await until(() => turn.state.stop !== undefined);
    let row = await rowOf(turn.row.turnId);
    while (row.phase === "running") row = await rowOf(turn.row.turnId);
    expect(row.phase).toBe("committed");
    const batches = await collect(readerOf(process).read(row, at(0), true, never));
    expect(seqsOf(batches)).toEqual(range(1, row.terminalSeq));
    turn.giveUp(turn.fenced());
  });

  test("the same, for a reader that came while it ran", async () => {
    const clock = new ManualClock();
    const gate = deferred();
    const process = newChat({
      models: halting(gate.promise),
      deps: { clock },
      onAppend: (_turn, _expected, entry) => (entry.terminal ? "full" : "normal"),
    });
    const turn = await process.start();
    await until(() => turn.writer.ackedSeq > 20);
    const reader = readerOf(process);
    const stop = new AbortController();
    const seen: number[] = [];
    const reading = (async () => {
      for await (const frame of packetFrames(
        process.deps,
        reader,
        turn.row,
        FROM_THE_START,
        true,
        stop.signal,
      ))
        seen.push(...seqsOf([frame]).filter((seq) => seq > 0));
    })();
    const refused = clock.sleepBegins(500);
    gate.resolve();
    await refused;
    while ((await rowOf(turn.row.turnId)).phase === "running") await turnOfTheLoop();
    let over = false;
    void reading.then(() => (over = true));
    for (let i = 0; i < 200 && !over; i++) {
      clock.advance(500);
      for (let j = 0; j < 20; j++) await turnOfTheLoop();
      await rowOf(turn.row.turnId);
    }
    await reading;
    expect(seen).toEqual(range(1, (await rowOf(turn.row.turnId)).terminalSeq));
    stop.abort();
    turn.giveUp(turn.fenced());
  });
});

describe("a running turn", () => {
  test("readers that come at any time see the same bytes; ahead, foreign and replaced cursors are refused", async () => {
    const log = createMemoryReplayLog();
    const gate = deferred();
    const process = newChat({ log, models: halting(gate.promise) });
    const turn = await process.start();
    await until(() => turn.writer.ackedSeq > 20);
    const { row } = turn;
    const reader = readerOf(process);
    const head = await reader.headSeq(row, never);
    expect(head).toBe(turn.writer.ackedSeq);
    const early = [0, 1, 7, head].map((afterSeq) => collect(reader.read(row, at(afterSeq), true, never)));
    await expect(reader.check(row, at(head + 1), never)).rejects.toMatchObject({
      code: ErrorCode.CURSOR_AHEAD,
    });
    await expect(reader.check(row, at(3, "another log"), never)).rejects.toMatchObject({
      code: ErrorCode.LOG_REPLACED,
    });
    await reader.check(row, at(head, row.logId), never);
    expect(seqsOf(await collect(reader.read(row, at(2), false, never)))).toEqual(range(3, head));
    gate.resolve();
    await turn.ended;
    const { packets, state } = await process.judge(row.turnId);
    for (const [index, afterSeq] of [0, 1, 7, head].entries())
      expect(seqsOf(await early[index]!)).toEqual(range(afterSeq + 1, packets.length));
    expect(bytesOf(await foldTurn(reader, await rowOf(row.turnId), 0, never))).toBe(bytesOf(state));
    expect(log.counts.followers).toBe(0);
  });

  test("whose log expired in the middle: the archive goes on with the same bytes, then the log", async () => {
    const log = createMemoryReplayLog();
    const models = scriptedModels(async function* (_request, signal) {
      for (let i = 0; i < 60; i++) {
        yield content(`${i} `.padEnd(6_000, "."));
        await turnOfTheLoop();
      }
      await untilStopped(signal);
    });
    const process = newChat({ log, models });
    const turn = await process.start();
    await until(() => turn.writer.ackedSeq >= 64);
    let row = await rowOf(turn.row.turnId);
    while (row.archivedSeq === 0) row = await rowOf(turn.row.turnId);
    const reader = readerOf(process);
    const whole = await collect(reader.read(row, at(0), false, never));
    await expire(log, row, row.archivedSeq - 3);
    for (const afterSeq of [0, 1, row.archivedSeq - 4, row.archivedSeq, row.archivedSeq + 1]) {
      const batches = await collect(reader.read(row, at(afterSeq), false, never));
      expect(seqsOf(batches)).toEqual(range(afterSeq + 1, 64));
      expect(hexOf(whole).endsWith(hexOf(batches))).toBe(true);
    }
    await turn.stop(StopReason.USER_CANCELLED);
    await turn.ended;
  });

  test("whose log lost what nothing else has: refused by type, not skipped", async () => {
    const log = createMemoryReplayLog();
    const gate = deferred();
    const process = newChat({ log, models: halting(gate.promise, 60) });
    const turn = await process.start();
    await until(() => turn.writer.ackedSeq >= 60);
    const { row } = turn;
    const reader = readerOf(process);
    const entries = await collect(
      log.read({ turnId: row.turnId, partition: row.partition }, 0, { signal: never }),
    );
    log.expire(row.turnId, entries.at(-2)!.position);
    await expect(collect(reader.read(row, at(0), true, never))).rejects.toMatchObject({
      code: ErrorCode.CURSOR_EXPIRED,
    });
    gate.resolve();
    await turn.ended;
    const later = await rowOf(row.turnId);
    expect(seqsOf(await collect(reader.read(later, at(0), true, never)))).toEqual(
      range(1, later.terminalSeq),
    );
  });

  test("whose log was replaced: it ends, and its readers get that from the archive", async () => {
    const log = createMemoryReplayLog();
    const gate = deferred();
    const models = scriptedModels(async function* (_request, signal) {
      for (const each of answer(words(20)).slice(0, -1)) yield each;
      await gate.promise;
      yield content("for the archive");
      await untilStopped(signal);
    });
    const process = newChat({ log, models });
    const turn = await process.start();
    await until(() => turn.writer.ackedSeq > 20);
    const reader = readerOf(process);
    const reading = collect(reader.read(turn.row, at(0), true, never));
    await until(() => log.counts.followers > 0);
    log.replace();
    gate.resolve();
    await turn.ended;
    const row = await rowOf(turn.row.turnId);
    expect(row.phase).toBe("closed");
    expect(seqsOf(await reading)).toEqual(range(1, row.terminalSeq));
    const state = await foldTurn(reader, row, 0, never);
    expect(state.stop!.error!.code).toBe(ErrorCode.LOG_TRUNCATED);
  });

  test("a reader that leaves in the middle leaves nothing behind", async () => {
    const log = createMemoryReplayLog();
    const process = newChat({ log, models: halting(new Promise(() => undefined)) });
    const turn = await process.start();
    await until(() => turn.writer.ackedSeq > 20);
    const reader = readerOf(process);
    const leave = new AbortController();
    const reading = collect(reader.read(turn.row, at(0), true, leave.signal));
    await until(() => log.counts.followers === 1);
    leave.abort(new Error("left"));
    await expect(reading).rejects.toThrow("left");
    expect(log.counts.followers).toBe(0);
    await turn.stop(StopReason.USER_CANCELLED);
    await turn.ended;
  });

  test("idle: heartbeats say the head, only when the reader is at it", async () => {
    const clock = new ManualClock();
    const process = newChat({ models: halting(new Promise(() => undefined)), deps: { clock } });
    const turn = await process.start();
    await until(() => turn.writer.ackedSeq > 20);
    const leave = new AbortController();
    const heads: number[] = [];
    const reading = (async () => {
      for await (const frame of packetFrames(
        process.deps,
        readerOf(process),
        turn.row,
        FROM_THE_START,
        true,
        leave.signal,
      ))
        heads.push(...heartbeatsOf(frame));
    })();
    await turnOfTheLoop();
    for (let beats = 1; beats <= 3; beats++) {
      clock.advance(15_000);
      await until(() => heads.length === beats);
    }
    expect(new Set(heads)).toEqual(new Set([turn.writer.ackedSeq]));
    leave.abort(new Error("left"));
    await expect(reading).rejects.toThrow("left");
    await turn.stop(StopReason.USER_CANCELLED);
    await turn.ended;
    expect(clock.sleeping).toBe(0);
  });

  test("that was deleted is not found", async () => {
    const process = newChat();
    const { turnId, state } = await process.run();
    const row = await rowOf(turnId);
    await stores.store.deleteSession(ALICE, state.started!.sessionId);
    await expect(readerOf(process).reload(row)).rejects.toMatchObject({ code: ErrorCode.NOT_FOUND });
  });
});

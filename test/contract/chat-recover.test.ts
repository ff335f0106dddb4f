/** Turns whose owner died at any point are ended by others (recover-turn.ts), also when those die or race in turn. */
import { fromBinary } from "@bufbuild/protobuf";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { PacketBatchSchema } from "../../gen/turnwire/log/v1/log_pb.js";
import { StopReason, TurnOutcome } from "../../gen/turnwire/packet/v1/common_pb.js";
import { ToolCallStatus } from "../../gen/turnwire/packet/v1/tools_pb.js";
import { createMemoryReplayLog, type MemoryReplayLog } from "../../src/replay/memory-replay-log.js";
import type { Entry, ReplayLog } from "../../src/replay/replay-log.js";
import { deferred } from "../../src/lib/signals.js";
import { packet } from "../../src/turn/packets.js";
import { content, reasoning } from "../../src/turn/test-support.js";
import {
  answer,
  calls,
  chat,
  hasResults,
  never,
  scriptedModels,
  scriptedTools,
  tapStore,
  toolPacket,
  toolResult,
  turnOfTheLoop,
  until,
  type Chat,
  type ChatOptions,
  type JudgedTurn,
} from "../support/chat-fixture.js";
import { ManualClock } from "../support/manual-clock.js";
import { Mortal } from "../support/mortal.js";
import { usePostgres } from "../support/postgres.js";
import { ALICE, collect, useStore } from "../support/store-fixtures.js";

const postgres = usePostgres();
const stores = useStore(postgres);

function newChat(log: MemoryReplayLog, mortal = new Mortal(), options: Partial<ChatOptions> = {}): Chat {
  return chat({
    databaseUrl: postgres.url,
    ...options,
    log: mortal.log(log),
    store: mortal.store(options.store ?? stores.store),
  });
}

/** Reasoning, three calls (one streams, one is long, one does not exist), an answer. */
function owner(log: MemoryReplayLog, mortal: Mortal): Chat {
  const models = scriptedModels(async function* (request) {
    const said = hasResults(request)
      ? answer("so it is and so be it")
      : [
          reasoning("well, "),
          content("let me see "),
          ...calls(["t", '{"a":"b"}'], ["long", "{}"], ["nothing", "{}"]),
        ];
    for (const each of said) {
      await turnOfTheLoop();
      yield each;
    }
  });
  const tools = scriptedTools({
    t: async function* () {
      for (const data of ["one", "two"]) {
        yield toolPacket(packet("customToolDelta", { toolName: "t", data }, undefined));
        await turnOfTheLoop();
      }
      yield toolResult("ok");
    },
    long: () => [toolResult("x".repeat(70_000))],
  });
  return newChat(log, mortal, { models, tools, deps: { clock: new ManualClock() } });
}

/** Runs a turn until its owner is dead; its id, or undefined when it ended before. */
async function runUntilDead(process: Chat, mortal: Mortal): Promise<string> {
  let turnId = "";
  let over = false;
  void process.accept({ text: "x".repeat(70_000) }).then(async (accepted) => {
    if (accepted.kind !== "accepted") throw new Error("not accepted");
    turnId = accepted.turn.turnId;
    const { turn, plan } = accepted;
    process.turns.start(turn, plan, () => Promise.resolve([]), false);
    await (await process.turns.find(turnId))!.ended;
    over = true;
  });
  await until(() => over || mortal.dead);
  await mortal.settled();
  for (let i = 0; i < 5; i++) await turnOfTheLoop();
  if (turnId !== "") return turnId;
  const [row] = await stores.store.listOwnedTurns([process.deps.incarnation], 1);
  return row!.turnId;
}

async function recover(process: Chat, turnId: string): Promise<number | undefined> {
  const row = (await stores.store.loadTurn(turnId))!;
  return process.turns.recover(row, { kind: "interrupted" });
}

async function logged(log: MemoryReplayLog, turnId: string): Promise<Buffer> {
  const { partition } = (await stores.store.loadTurn(turnId))!;
  const entries = await collect(log.read({ turnId, partition }, 0, { signal: never }));
  return Buffer.concat(entries.map((entry) => entry.batch));
}

/** What was shown stays, then legal packets to one end. */
async function expectEnded(
  process: Chat,
  log: MemoryReplayLog,
  turnId: string,
  shown: Buffer,
): Promise<JudgedTurn> {
  const judged = await process.judge(turnId);
  expect((await logged(log, turnId)).subarray(0, shown.length).equals(shown)).toBe(true);
  expect([TurnOutcome.INTERRUPTED, TurnOutcome.COMPLETED]).toContain(judged.state.stop!.outcome);
  if (judged.state.stop!.outcome === TurnOutcome.INTERRUPTED)
    expect(judged.state.stop!.stopReason).toBe(StopReason.OWNER_LOST);
  return judged;
}

async function countDurable(): Promise<number> {
  const mortal = new Mortal();
  await runUntilDead(owner(createMemoryReplayLog(), mortal), mortal);
  return mortal.durable;
}

describe("recovery", () => {
  test("after a crash at every point", async () => {
    const total = await countDurable();
    expect(total).toBeGreaterThan(20);
    const outcomes: string[] = [];
    for (let dieAt = 1; dieAt <= total; dieAt++) {
      const log = createMemoryReplayLog();
      const mortal = new Mortal(dieAt);
      const turnId = await runUntilDead(owner(log, mortal), mortal);
      const shown = await logged(log, turnId);
      const checkpoints = await stores.store.listCheckpoints(turnId);
      const before = (await stores.store.loadTurn(turnId))!;
      const next = newChat(log);
      await recover(next, turnId);
      const { state } = await expectEnded(next, log, turnId, shown);
      outcomes.push(TurnOutcome[state.stop!.outcome]!);
      if (before.phase !== "running") {
        const after = (await stores.store.loadTurn(turnId))!;
        expect(Buffer.from(after.terminalBatch!).equals(Buffer.from(before.terminalBatch!))).toBe(true);
        expect(state.stop!.outcome).toBe(TurnOutcome.COMPLETED);
      }
      const inDoubt = checkpoints.flatMap((each) => (each.kind === "dispatching" ? [each.callId] : []));
      const settled = checkpoints.flatMap((each) => (each.kind === "result" ? [each.callId] : []));
      for (const { block } of state.lanes[0]!.blocks) {
        if (block.case !== "tool") continue;
        const callId = block.value.call!.callId;
        const known = block.value.call!.toolId !== "";
        const expected = settled.includes(callId)
          ? known
            ? ToolCallStatus.OK
            : ToolCallStatus.ERROR
          : inDoubt.includes(callId)
            ? ToolCallStatus.UNKNOWN_OUTCOME
            : ToolCallStatus.ERROR;
        expect([block.value.result!.status, dieAt]).toEqual([expected, dieAt]);
      }
      // The long message can be had, though its owner may have died before it was stored.
      const file = state.started!.input!.textFileId;
      expect(Buffer.concat(await collect(stores.store.readFile(ALICE, file, 0n))).length).toBe(70_000);
    }
    expect(outcomes).toContain("INTERRUPTED");
    expect(outcomes.at(-1)).toBe("COMPLETED");
  });

  test("that crashes itself at every point is recovered in turn", async () => {
    const total = await countDurable();
    for (const dieAt of [1, 2, Math.floor(total / 3), Math.floor(total / 2), total - 3, total - 1]) {
      for (let again = 1; ; again++) {
        const log = createMemoryReplayLog();
        const first = new Mortal(dieAt);
        const turnId = await runUntilDead(owner(log, first), first);
        const second = new Mortal(again);
        let done = false;
        void recover(newChat(log, second), turnId).then(() => (done = true));
        await until(() => done || second.dead);
        for (let i = 0; i < 3; i++) await turnOfTheLoop();
        const shown = await logged(log, turnId);
        const last = newChat(log);
        await recover(last, turnId);
        await expectEnded(last, log, turnId, shown);
        if (done || second.durable < again) break;
      }
    }
  });

  test("of a turn that its owner is only slow with: the owner is fenced, and leaves no trace", async () => {
    const log = createMemoryReplayLog();
    let held = false;
    const mortal = new Mortal();
    const slow = newChat(log, mortal, {
      models: scriptedModels(async function* () {
        yield content("before ");
        while (held) await turnOfTheLoop();
        for (const each of answer("after it was taken")) yield each;
      }),
    });
    held = true;
    const turn = await slow.start();
    await until(() => turn.writer.ackedSeq >= 5);
    const next = newChat(log);
    await recover(next, turn.row.turnId);
    const ended = await logged(log, turn.row.turnId);
    held = false;
    await turn.ended;
    expect((await logged(log, turn.row.turnId)).equals(ended)).toBe(true);
    const { state } = await next.judge(turn.row.turnId);
    expect(state.lanes[0]!.text).toBe("before ");
    await turnOfTheLoop();
    expect(slow.turns.size).toBe(0);
  });

  test("a stop that the dead owner was asked for holds", async () => {
    const log = createMemoryReplayLog();
    const mortal = new Mortal(9);
    const turnId = await runUntilDead(owner(log, mortal), mortal);
    await stores.store.requestStop(ALICE, { kind: "turn", turnId }, undefined);
    const next = newChat(log);
    await recover(next, turnId);
    const { state } = await next.judge(turnId);
    expect([state.stop!.outcome, state.stop!.stopReason]).toEqual([
      TurnOutcome.STOPPED,
      StopReason.USER_CANCELLED,
    ]);
  });

  test("time goes on from the log, also on a machine whose clock is behind", async () => {
    const log = createMemoryReplayLog();
    const mortal = new Mortal();
    const clock = new ManualClock();
    const models = scriptedModels(async function* () {
      clock.advance(60_000);
      yield content("late ");
      await turnOfTheLoop();
      await new Promise(() => undefined);
    });
    const process = newChat(log, mortal, { models, deps: { clock } });
    const turn = await process.start();
    await until(() => turn.writer.ackedSeq >= 5);
    mortal.die();
    const next = newChat(log, new Mortal(), { deps: { clock: new ManualClock() } });
    await recover(next, turn.row.turnId);
    const { packets } = await next.judge(turn.row.turnId);
    expect(packets.at(-1)!.tMs).toBeGreaterThanOrEqual(60_000);
  });

  test("after months: t_ms stands still at its largest value, and the turn ends", async () => {
    const log = createMemoryReplayLog();
    const mortal = new Mortal(9);
    const turnId = await runUntilDead(owner(log, mortal), mortal);
    const clock = new ManualClock();
    clock.advance(200 * 24 * 3_600_000);
    const next = newChat(log, new Mortal(), { deps: { clock } });
    await recover(next, turnId);
    const { packets } = await next.judge(turnId);
    expect(packets.at(-1)!.tMs).toBe(2 ** 32 - 1);
  });

  test("without the log (it was replaced): the rest is in the archive, the end in the row", async () => {
    const log = createMemoryReplayLog();
    const mortal = new Mortal(9);
    const turnId = await runUntilDead(owner(log, mortal), mortal);
    log.replace();
    const next = newChat(log);
    await recover(next, turnId);
    const row = (await stores.store.loadTurn(turnId))!;
    expect([row.phase, row.outcome]).toEqual(["closed", TurnOutcome.INTERRUPTED]);
    const parts = await collect(stores.store.readArchive(turnId, 0));
    const packets = parts.flatMap((part) => fromBinary(PacketBatchSchema, part.batch).packets);
    expect(packets.map(({ seq }) => seq)).toEqual(packets.map((_, index) => index + 1));
    expect(row.terminalSeq).toBe(packets.length + 1);
  });
});

describe("recoverers that race", () => {
  test("one end, whatever the order; who may hold a turn that nobody runs says so", async () => {
    const pauses = fc.array(fc.nat(3), { minLength: 40, maxLength: 40 });
    await fc.assert(
      fc.asyncProperty(pauses, fc.integer({ min: 3, max: 22 }), async (plan, dieAt) => {
        let at = 0;
        const pause = async (): Promise<void> => {
          for (let i = plan[at++ % plan.length]!; i > 0; i--) await turnOfTheLoop();
        };
        const log = createMemoryReplayLog({
          onAppend: async (): Promise<"normal"> => {
            await pause();
            return "normal";
          },
        });
        const mortal = new Mortal(dieAt);
        const turnId = await runUntilDead(owner(log, mortal), mortal);
        const shown = await logged(log, turnId);
        const store = tapStore(stores.store, pause);
        const racers = [1, 2, 3].map(() => newChat(log, new Mortal(), { store }));
        const race = async (racer: Chat, nth: number): Promise<void> => {
          for (let i = nth; i > 0; i--) await pause();
          await recover(racer, turnId);
        };
        await Promise.allSettled(racers.map(race));
        for (let round = 0; ; round++) {
          const row = (await stores.store.loadTurn(turnId))!;
          if (row.phase === "closed") break;
          expect(round).toBeLessThan(3);
          const holder = racers.find((racer) => racer.deps.incarnation === row.owner)!;
          expect(holder.turns.takeOrphanAlarm()).toBe(true);
          await recover(holder, turnId).catch(() => undefined);
        }
        await expectEnded(racers[0]!, log, turnId, shown);
      }),
      { numRuns: 40 },
    );
  });

  test("the later one has the row, the earlier one the log: the row's holder finds out and ends the turn", async () => {
    const log = createMemoryReplayLog();
    const mortal = new Mortal(9);
    const turnId = await runUntilDead(owner(log, mortal), mortal);
    const claims = gated(log, (entry) => entry.batch.length === 0);
    const packets = gated(log, (entry) => entry.batch.length > 0);
    const earlier = chat({ store: stores.store, databaseUrl: postgres.url, log: claims.log });
    const later = chat({ store: stores.store, databaseUrl: postgres.url, log: packets.log });
    const first = recover(earlier, turnId);
    await claims.reached;
    const second = recover(later, turnId);
    await packets.reached;
    claims.open();
    expect(await first).toBeUndefined();
    packets.open();
    await expect(second).rejects.toThrow("another");
    const row = (await stores.store.loadTurn(turnId))!;
    expect([row.phase, row.owner]).toEqual(["running", later.deps.incarnation]);
    expect([earlier.turns.takeOrphanAlarm(), later.turns.takeOrphanAlarm()]).toEqual([false, true]);
    await recover(later, turnId);
    await later.judge(turnId);
  });

  test("in one process they are one", async () => {
    const log = createMemoryReplayLog();
    const mortal = new Mortal(7);
    const turnId = await runUntilDead(owner(log, mortal), mortal);
    const next = newChat(log);
    const row = (await stores.store.loadTurn(turnId))!;
    const both = await Promise.all([1, 2].map(() => next.turns.recover(row, { kind: "interrupted" })));
    expect(both[0]).toBe(both[1]);
    expect((await stores.store.loadTurn(turnId))!.epoch).toBe(row.epoch + 1);
    expect(await recover(next, turnId)).toBeUndefined();
  });
});

/** The log, with the first append of a kind held until it is opened. */
function gated(
  log: MemoryReplayLog,
  holds: (entry: Entry) => boolean,
): { log: ReplayLog; reached: Promise<void>; open: () => void } {
  const reached = deferred();
  const gate = deferred();
  const append: ReplayLog["append"] = async (turn, expected, entry, signal) => {
    if (holds(entry)) {
      reached.resolve();
      await gate.promise;
    }
    return log.append(turn, expected, entry, signal);
  };
  const held = new Proxy(log, {
    get: (target, name) => {
      if (name === "append") return append;
      const value = Reflect.get(target, name, target) as unknown;
      return typeof value === "function" ? (value as () => unknown).bind(target) : value;
    },
  });
  return { log: held, reached: reached.promise, open: () => gate.resolve() };
}

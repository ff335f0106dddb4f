/** Who is taken for dead and when (durability.md 4), and what becomes of turns that nobody runs (I9). */
import { afterEach, describe, expect, test } from "vitest";
import { ErrorCode, StopReason, TurnOutcome } from "../../gen/turnwire/packet/v1/common_pb.js";
import { Ownership } from "../../src/chat/ownership.js";
import { defaultChatLimits } from "../../src/chat/ports.js";
import { listenForCommands } from "../../src/chat/stop-turn.js";
import { TurnError } from "../../src/lib/errors.js";
import { newId } from "../../src/lib/ids.js";
import { deferred } from "../../src/lib/signals.js";
import { createMemoryReplayLog, type MemoryReplayLog } from "../../src/replay/memory-replay-log.js";
import { content } from "../../src/turn/test-support.js";
import {
  answer,
  chat,
  scriptedModels,
  tapStore,
  turnOfTheLoop,
  until,
  untilStopped,
  type Chat,
  type ChatOptions,
} from "../support/chat-fixture.js";
import { ManualClock } from "../support/manual-clock.js";
import { Mortal } from "../support/mortal.js";
import { runSql, usePostgres } from "../support/postgres.js";
import { ALICE, useStore } from "../support/store-fixtures.js";

const postgres = usePostgres();
const stores = useStore(postgres);

const hanging = () =>
  scriptedModels(async function* (_request, signal) {
    yield content("well ");
    await untilStopped(signal);
  });

interface Replica {
  readonly chat: Chat;
  readonly clock: ManualClock;
  readonly ownership: Ownership;
  /** One beat and the look at the others that goes with it. */
  beat(times?: number): Promise<void>;
}

const owners: Ownership[] = [];
afterEach(async () => {
  await Promise.all(owners.splice(0).map((owner) => owner.close()));
});

async function replica(options: Partial<ChatOptions> = {}, dataDirId = newId()): Promise<Replica> {
  const clock = new ManualClock();
  const process = chat({
    store: stores.store,
    databaseUrl: postgres.url,
    ...options,
    deps: { clock, ...options.deps },
  });
  const ownership = new Ownership(
    process.deps,
    process.turns,
    listenForCommands(process.deps, process.turns),
    dataDirId,
  );
  owners.push(ownership);
  await ownership.start();
  const beat = async (times = 1): Promise<void> => {
    for (let i = 0; i < times; i++) {
      const next = clock.sleepBegins(1_000);
      clock.advance(1_000);
      await next;
    }
  };
  return { chat: process, clock, ownership, beat };
}

/** A turn in the middle of its answer whose owner has just died. */
async function deadOwner(
  log: MemoryReplayLog,
  dataDirId = newId(),
): Promise<{ turnId: string; incarnation: string }> {
  const mortal = new Mortal();
  const process = chat({
    databaseUrl: postgres.url,
    store: mortal.store(stores.store),
    log: mortal.log(log),
    models: hanging(),
    deps: { clock: new ManualClock() },
  });
  const { incarnation } = process.deps;
  await stores.store.registerProcess({ incarnation, dataDirId });
  const turn = await process.start();
  await until(() => turn.writer.ackedSeq >= 5);
  mortal.die();
  return { turnId: turn.row.turnId, incarnation };
}

const phaseOf = async (turnId: string): Promise<string> => (await stores.store.loadTurn(turnId))!.phase;

/** What follows from a beat may take some more of them. */
async function untilClosed(turnId: string, beat: (times?: number) => Promise<void>): Promise<void> {
  for (let beats = 0; (await phaseOf(turnId)) !== "closed"; beats++) {
    if (beats > 2_000) throw new Error("the turn was not closed in 2,000 beats");
    await beat();
  }
}

describe("an owner that is gone", () => {
  test("is dead when its beat was the same for 6 s of own beats, not before", async () => {
    const log = createMemoryReplayLog();
    const { turnId, incarnation } = await deadOwner(log);
    const { chat: other, beat } = await replica({ log });
    await beat(6);
    expect(await phaseOf(turnId)).toBe("running");
    await beat(1);
    await untilClosed(turnId, beat);
    const { state } = await other.judge(turnId);
    expect([state.stop!.outcome, state.stop!.stopReason]).toEqual([
      TurnOutcome.INTERRUPTED,
      StopReason.OWNER_LOST,
    ]);
    await beat(2);
    expect((await stores.store.listProcesses("")).map((each) => each.incarnation)).not.toContain(incarnation);
  });

  test("is not, while it beats", async () => {
    const log = createMemoryReplayLog();
    const { turnId, incarnation } = await deadOwner(log);
    const { beat } = await replica({ log });
    for (let i = 0; i < 5; i++) {
      await stores.store.beat(incarnation);
      await beat(5);
    }
    expect(await phaseOf(turnId)).toBe("running");
    await beat(2);
    await untilClosed(turnId, beat);
  });

  test("nobody dies while the observer's own beats fail: the time of an outage does not count", async () => {
    const log = createMemoryReplayLog();
    const { turnId } = await deadOwner(log);
    let away = false;
    const store = tapStore(stores.store, (method) => {
      if (away && method === "beat") throw new TurnError(ErrorCode.UNAVAILABLE);
    });
    const { beat, chat: other } = await replica({ log, store });
    await beat(3);
    away = true;
    await beat(60);
    away = false;
    await beat(3);
    expect([await phaseOf(turnId), (await stores.store.loadTurn(turnId))!.epoch]).toEqual(["running", 0]);
    await beat(2);
    await untilClosed(turnId, beat);
    await other.judge(turnId);
  });

  test("a clock that jumps buries nobody", async () => {
    const log = createMemoryReplayLog();
    const { turnId, incarnation } = await deadOwner(log);
    const { beat, clock } = await replica({ log });
    await beat(1);
    for (let i = 0; i < 2; i++) {
      const next = clock.sleepBegins(1_000);
      clock.advance(3_600_000); // the machine slept
      await next;
      expect(await phaseOf(turnId)).toBe("running");
    }
    await stores.store.beat(incarnation);
    await beat(5);
    expect(await phaseOf(turnId)).toBe("running");
    await beat(2);
    await untilClosed(turnId, beat);
  });

  test("is dead at once for who has its data directory, before start resolves", async () => {
    const log = createMemoryReplayLog();
    const dataDirId = newId();
    const { turnId } = await deadOwner(log, dataDirId);
    const elsewhere = await deadOwner(log);
    const { chat: next } = await replica({ log }, dataDirId);
    expect([await phaseOf(turnId), await phaseOf(elsewhere.turnId)]).toEqual(["closed", "running"]);
    await next.judge(turnId);
  });

  test("that never was registered is found by its turns", async () => {
    const log = createMemoryReplayLog();
    const { turnId, incarnation } = await deadOwner(log);
    await forget(incarnation);
    const { beat } = await replica({ log });
    await beat(7);
    await untilClosed(turnId, beat);
  });
});

describe("beats", () => {
  test("go on while a recovery hangs, and its turn is ended when it can be", async () => {
    const gate = deferred();
    let held = false;
    const log = createMemoryReplayLog({
      onAppend: async (): Promise<"normal"> => {
        if (held) await gate.promise;
        return "normal";
      },
    });
    const { turnId } = await deadOwner(log);
    const { beat, chat: other } = await replica({ log });
    held = true;
    await beat(8);
    await expectBeats(other, beat, 5);
    gate.resolve();
    await untilClosed(turnId, beat);
    await other.judge(turnId);
  });

  test("go on while the log does not say how full it is", async () => {
    const log = replacing(createMemoryReplayLog(), { fullness: () => new Promise<number>(() => undefined) });
    const { chat: process, beat } = await replica({ log, models: hanging() });
    await expectBeats(process, beat, 3);
  });

  test("a process that others took for dead and forgot registers again", async () => {
    const { chat: process, beat } = await replica();
    await forget(process.deps.incarnation);
    await beat(1);
    expect((await stores.store.listProcesses("")).map((each) => each.incarnation)).toContain(
      process.deps.incarnation,
    );
  });
});

test("events of sessions that are too old to be told are forgotten, all of them", async () => {
  await runSql(postgres.url, "delete from turnwire.session_events"); // old ones have the lowest ordinals
  await runSql(
    postgres.url,
    `insert into turnwire.session_events (tenant_id, user_id, kind, session_id, create_time)
     select 'acme', 'gone', 1, 's', clock_timestamp() - interval '2 hours' from generate_series(1, 1500)`,
  );
  const left = async (): Promise<unknown> =>
    (
      await runSql(
        postgres.url,
        "select count(*)::int as n from turnwire.session_events where user_id = 'gone'",
      )
    )[0]!["n"];
  const { beat } = await replica();
  await beat(59);
  expect(await left()).toBe(1500);
  await beat(1);
  await expect.poll(left).toBe(0);
});

describe("a turn that was taken", () => {
  test("is left, though its model is silent and nothing of it is written", async () => {
    const log = createMemoryReplayLog();
    const models = hanging();
    const { chat: process, beat } = await replica({ log, models });
    const turn = await process.start();
    await until(() => turn.writer.ackedSeq >= 5);
    const other = chat({ store: stores.store, databaseUrl: postgres.url, log });
    await other.turns.recover((await stores.store.loadTurn(turn.row.turnId))!, { kind: "interrupted" });
    for (let beats = 0; models.open > 0 && beats < 50; beats++) await beat();
    await turn.ended;
    await until(() => process.turns.size === 0);
    expect(models.open).toBe(0);
    await other.judge(turn.row.turnId);
  });
});

describe("orphans: turns of this process that run nowhere", () => {
  test("an accept whose answer was lost is ended, and its repeat finds it", async () => {
    let lose = true;
    const store = tapStore(stores.store, (method, when) => {
      if (method !== "acceptTurn" || when !== "after" || !lose) return;
      lose = false;
      throw new TurnError(ErrorCode.UNAVAILABLE);
    });
    const { chat: process, beat } = await replica({ store });
    const requestId = newId();
    await expect(process.accept({ requestId })).rejects.toMatchObject({ code: ErrorCode.UNAVAILABLE });
    const row = (await stores.store.getTurnByRequest(ALICE, requestId))!;
    await beat(2);
    await untilClosed(row.turnId, beat);
    const { state } = await process.judge(row.turnId);
    expect(state.stop!.stopReason).toBe(StopReason.OWNER_LOST);
    const repeated = await process.accept({ requestId });
    expect([repeated.kind, repeated.turn.turnId]).toEqual(["replayed", row.turnId]);
  });

  test("an end that failed is made up for, as it was to be", async () => {
    let fail = 1;
    const store = tapStore(stores.store, (method, when) => {
      if (method === "commitTurn" && when === "before" && fail-- > 0) throw new TurnError(ErrorCode.INTERNAL);
    });
    const { chat: process, beat } = await replica({ store });
    const turn = await process.start();
    await turn.ended;
    await until(() => process.turns.size === 0);
    expect(await phaseOf(turn.row.turnId)).toBe("running");
    await beat(2);
    await untilClosed(turn.row.turnId, beat);
    const { state } = await process.judge(turn.row.turnId);
    expect([state.stop!.outcome, state.lanes[0]!.text]).toEqual([TurnOutcome.COMPLETED, "hello"]);
  });

  test("a claim that a full log refused is tried until there is room", async () => {
    let full = true;
    const { chat: process, beat } = await replica({ onAppend: () => (full ? "full" : "normal") });
    await expect(process.start()).rejects.toMatchObject({ code: ErrorCode.OVERLOADED });
    const [row] = await stores.store.listOwnedTurns([process.deps.incarnation], 10);
    await beat(4);
    expect(await phaseOf(row!.turnId)).toBe("running");
    full = false;
    await beat(3);
    await untilClosed(row!.turnId, beat);
    await process.judge(row!.turnId);
  });

  test("a turn that runs is none, however often it is looked for", async () => {
    const { chat: process, beat } = await replica({ models: hanging() });
    const turn = await process.start();
    for (let i = 0; i < 4; i++) {
      process.turns.suspectOrphans();
      await beat(1);
    }
    expect((await stores.store.loadTurn(turn.row.turnId))!.epoch).toBe(0);
    await turn.stop(StopReason.USER_CANCELLED);
    await turn.ended;
  });
});

describe("a process", () => {
  test("ends its turns while the log still has room for their ends", async () => {
    let fullness = 0.5;
    const log = replacing(createMemoryReplayLog(), { fullness: () => Promise.resolve(fullness) });
    const { chat: process, beat } = await replica({ log, models: hanging() });
    const turn = await process.start();
    await beat(2);
    expect(turn.signal.aborted).toBe(false);
    fullness = 0.85;
    await expect(process.start()).rejects.toMatchObject({ code: ErrorCode.OVERLOADED });
    fullness = 0.9;
    await beat(2);
    await turn.ended;
    const { state } = await process.judge(turn.row.turnId);
    expect(state.stop!.stopReason).toBe(StopReason.SIZE_LIMIT);
  });

  test("runs no more turns than it may, also when many come at once", async () => {
    const limits = { ...defaultChatLimits, maxRunningTurns: 1 };
    const { chat: process } = await replica({ models: hanging(), deps: { limits } });
    const [turn, ...refused] = await Promise.all([
      process.start(),
      ...Array.from({ length: 5 }, () => process.accept().catch((error: unknown) => error)),
    ]);
    for (const each of refused) expect(each).toMatchObject({ code: ErrorCode.OVERLOADED });
    await expect(process.accept()).rejects.toMatchObject({ code: ErrorCode.OVERLOADED });
    await turn.stop(StopReason.USER_CANCELLED);
    await turn.ended;
    await until(() => process.turns.size === 0);
    expect((await process.accept()).kind).toBe("accepted");
  });

  test("that shuts down takes no new turn, lets running ones end, then ends them as interrupted", async () => {
    const gate = deferred();
    const models = scriptedModels(async function* (request, signal) {
      yield content("well ");
      if (request.input!.modelId === "m-one") {
        await gate.promise;
        for (const each of answer("and done")) yield each;
      } else await untilStopped(signal);
    });
    const { chat: process, clock } = await replica({ models });
    const ends = await process.start({ models: [{ modelId: "m-one" } as never] });
    const stays = await process.start({ models: [{ modelId: "m-two" } as never] });
    const grace = clock.sleepBegins(4_000);
    const draining = process.turns.drain(4_000);
    await grace;
    await expect(process.accept()).rejects.toMatchObject({ code: ErrorCode.UNAVAILABLE });
    gate.resolve();
    await ends.ended;
    const last = clock.sleepBegins(5_000);
    clock.advance(4_000);
    await last;
    await draining;
    const outcome = async (turnId: string): Promise<TurnOutcome> =>
      (await process.judge(turnId)).state.stop!.outcome;
    expect(await outcome(ends.row.turnId)).toBe(TurnOutcome.COMPLETED);
    expect(await outcome(stays.row.turnId)).toBe(TurnOutcome.INTERRUPTED);
    await turnOfTheLoop();
    expect(models.open).toBe(0);
  });

  test("whose log does not answer gives its turns up at shutdown, and the next one ends them", async () => {
    let away = false;
    const log = createMemoryReplayLog({ onAppend: () => (away ? "lost_unknown" : "normal") });
    const models = hanging();
    const dataDirId = newId();
    const { chat: process, clock, ownership } = await replica({ log, models }, dataDirId);
    const turn = await process.start();
    await until(() => turn.writer.ackedSeq >= 5);
    away = true;
    const grace = clock.sleepBegins(1);
    const draining = process.turns.drain(1);
    await grace;
    const last = clock.sleepBegins(5_000);
    clock.advance(1);
    await last;
    clock.advance(5_000);
    await draining;
    await turn.ended;
    await until(() => models.open === 0 && process.turns.size === 0);
    await ownership.close();
    away = false;
    const { chat: next } = await replica({ log }, dataDirId);
    await next.judge(turn.row.turnId);
  });
});

/** Stores that many beats while that many are made. */
async function expectBeats(
  process: Chat,
  beat: (times: number) => Promise<void>,
  times: number,
): Promise<void> {
  const beatOf = async (): Promise<bigint> =>
    (await stores.store.listProcesses("")).find((each) => each.incarnation === process.deps.incarnation)!
      .beat;
  const before = await beatOf();
  await beat(times);
  expect((await beatOf()) - before).toBe(BigInt(times));
}

/** Removes the row of a process, though it has turns: as if it had never registered. */
async function forget(incarnation: string): Promise<void> {
  await runSql(postgres.url, "delete from turnwire.processes where incarnation = $1", [incarnation]);
}

/** The log with one of its methods replaced. */
function replacing(log: MemoryReplayLog, replaced: Partial<MemoryReplayLog>): MemoryReplayLog {
  return new Proxy(log, {
    get: (target, name) => {
      if (name in replaced) return Reflect.get(replaced, name) as unknown;
      const value = Reflect.get(target, name, target) as unknown;
      return typeof value === "function" ? (value as () => unknown).bind(target) : value;
    },
  });
}

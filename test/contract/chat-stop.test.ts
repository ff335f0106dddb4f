/** Stops at every point of a turn (I4): legal order, nothing shown beyond stop_seq, rows as the fold, nobody left behind. */
import { describe, expect, test } from "vitest";
import { ErrorCode, StopReason, TurnOutcome } from "../../gen/turnwire/packet/v1/common_pb.js";
import { listenForCommands, stopTurn } from "../../src/chat/stop-turn.js";
import { newId } from "../../src/lib/ids.js";
import { createMemoryReplayLog } from "../../src/replay/memory-replay-log.js";
import { packet } from "../../src/turn/packets.js";
import { content, reasoning } from "../../src/turn/test-support.js";
import {
  answer,
  calls,
  chat,
  hasResults,
  isContent,
  never,
  scriptedModels,
  scriptedTools,
  tapStore,
  toolPacket,
  toolResult,
  turnOfTheLoop,
  until,
  untilStopped,
  type Chat,
  type ChatOptions,
} from "../support/chat-fixture.js";
import { usePostgres } from "../support/postgres.js";
import { ALICE, STRANGERS, useStore } from "../support/store-fixtures.js";

const postgres = usePostgres();
const stores = useStore(postgres);

function newChat(options: Partial<ChatOptions> = {}): Chat {
  return chat({ store: stores.store, databaseUrl: postgres.url, ...options });
}

/** A turn that does everything, with a place to step in at each await; `at` is called with its number. */
function everything(at: (point: number) => void): { fixture: Chat; open: () => number } {
  let points = 0;
  const point = (): void => at(++points);
  const models = scriptedModels(async function* (request) {
    const said = hasResults(request)
      ? answer("so it is, and so be it")
      : [reasoning("well, "), content("let me see "), ...calls(["t", '{"a":"b"}'], ["long", "{}"])];
    for (const each of said) {
      await turnOfTheLoop();
      point();
      yield each;
    }
  });
  const tools = scriptedTools({
    t: async function* () {
      for (const data of ["one", "two"]) {
        point();
        yield toolPacket(packet("customToolDelta", { toolName: "t", data }, undefined));
        await turnOfTheLoop();
      }
      point();
      yield toolResult("ok");
    },
    long: () => [toolResult("x".repeat(70_000))],
  });
  const fixture = newChat({
    models,
    tools,
    store: tapStore(stores.store, (method) => {
      if (method !== "acceptTurn" && method !== "loadTurn") point();
    }),
    onAppend: async () => {
      point();
      await turnOfTheLoop();
      point();
      return "normal" as const;
    },
  });
  return { fixture, open: () => models.open + tools.open };
}

const TWO_LANES = [{ modelId: "m-one" }, { modelId: "m-two" }] as never[];

describe("a stop at every point of a turn", () => {
  test.each([
    ["of the turn", [undefined]],
    ["of a lane", [1]],
    ["of a lane, then of the turn", [0, undefined]],
    ["of both lanes", [1, 0]],
  ] as const)("%s", async (_name, wanted) => {
    let total = 0;
    const counted = everything((point) => (total = point));
    await counted.fixture.run({ models: TWO_LANES });
    expect(total).toBeGreaterThan(80);
    const step = Math.ceil(total / 30);
    for (let stopAt = 1; stopAt <= total; stopAt += step) {
      const stops: Promise<{ seq: number; lane: number | undefined }>[] = [];
      let turnId = "";
      const { fixture, open } = everything((point) => {
        if (point < stopAt || stops.length > 0) return;
        const turn = fixture.turns.get(turnId);
        if (!turn) return;
        for (const lane of wanted)
          stops.push(turn.stop(StopReason.USER_CANCELLED, lane).then((seq) => ({ seq, lane })));
      });
      const turn = await fixture.start({ models: TWO_LANES });
      turnId = turn.row.turnId;
      await turn.ended;
      const { packets, state } = await fixture.judge(turnId);
      for (const { seq, lane } of await Promise.all(stops)) {
        const beyond = packets.filter(
          (each) =>
            each.seq > seq && isContent(each) && (lane === undefined || each.placement?.modelIndex === lane),
        );
        expect(beyond, `after a stop at point ${stopAt}`).toEqual([]);
      }
      expect(state.stop!.outcome).not.toBe(TurnOutcome.ERROR);
      await turnOfTheLoop();
      expect([open(), fixture.turns.size], `left after a stop at point ${stopAt}`).toEqual([0, 0]);
    }
  });
});

describe("StopTurn", () => {
  const hanging = () =>
    scriptedModels(async function* (_request, signal) {
      yield content("well ");
      await untilStopped(signal);
    });
  const stop = (fixture: Chat, turnId: string, lane?: number) =>
    stopTurn(fixture.deps, fixture.turns, ALICE, { kind: "turn", turnId }, lane, never);

  test("by its owner: partial text kept; again, and after the end", async () => {
    const fixture = newChat({ models: hanging() });
    const turn = await fixture.start();
    await until(() => turn.writer.ackedSeq >= 5);
    const { turnId } = turn.row;
    const [first, second] = await Promise.all([stop(fixture, turnId), stop(fixture, turnId)]);
    for (const each of [first, second]) expect(each).toEqual({ turnId, stopSeq: 5, wasRunning: true });
    await turn.ended;
    const { state, packets } = await fixture.judge(turnId);
    expect(state.lanes[0]!.text).toBe("well ");
    expect(await stop(fixture, turnId)).toEqual({ turnId, stopSeq: packets.length, wasRunning: false });
  });

  test("a lane that is not there, a turn that is not the caller's, nothing to stop", async () => {
    const fixture = newChat({ models: hanging() });
    const turn = await fixture.start();
    const { turnId, sessionId } = turn.row;
    await expect(stop(fixture, turnId, 7)).rejects.toMatchObject({
      code: ErrorCode.INVALID_ARGUMENT,
      details: { field: "model_index" },
    });
    for (const stranger of STRANGERS)
      await expect(
        stopTurn(fixture.deps, fixture.turns, stranger, { kind: "turn", turnId }, undefined, never),
      ).rejects.toMatchObject({ code: ErrorCode.NOT_FOUND });
    expect(turn.signal.aborted).toBe(false);
    await stopTurn(fixture.deps, fixture.turns, ALICE, { kind: "session", sessionId }, undefined, never);
    await turn.ended;
    const idle = await stopTurn(
      fixture.deps,
      fixture.turns,
      ALICE,
      { kind: "session", sessionId },
      undefined,
      never,
    );
    expect(idle).toEqual({ turnId: "", stopSeq: 0, wasRunning: false });
  });

  test("before the send arrives: the turn ends stopped and asks nobody", async () => {
    const models = scriptedModels();
    const fixture = newChat({ models });
    const requestId = newId();
    await stopTurn(fixture.deps, fixture.turns, ALICE, { kind: "request", requestId }, undefined, never);
    const { state } = await fixture.run({ requestId });
    expect([state.stop!.outcome, state.stop!.stopReason]).toEqual([
      TurnOutcome.STOPPED,
      StopReason.USER_CANCELLED,
    ]);
    expect(models.requests).toEqual([]);
  });

  test("asked of another process: the owner is woken, stops and answers", async () => {
    const log = createMemoryReplayLog();
    const owner = newChat({ models: hanging(), log });
    const other = newChat({ log });
    const listener = listenForCommands(owner.deps, owner.turns);
    try {
      const turn = await owner.start();
      await until(() => turn.writer.ackedSeq >= 5);
      const stopped = await stop(other, turn.row.turnId);
      await turn.ended;
      const { state, packets } = await owner.judge(turn.row.turnId);
      expect(stopped.wasRunning).toBe(true);
      expect(packets.filter((each) => each.seq > stopped.stopSeq && isContent(each))).toEqual([]);
      expect(state.stop!.stopReason).toBe(StopReason.USER_CANCELLED);
      expect((await stores.store.loadTurn(turn.row.turnId))!.epoch).toBe(turn.epoch);
    } finally {
      listener.close();
    }
  });

  test.each([
    ["the turn", undefined, TurnOutcome.STOPPED, StopReason.USER_CANCELLED],
    ["a lane", 0, TurnOutcome.INTERRUPTED, StopReason.OWNER_LOST],
  ] as const)(
    "of %s whose owner is silent for a second: taken over and ended; the owner finds itself fenced",
    async (_name, lane, outcome, reason) => {
      const log = createMemoryReplayLog();
      const models = hanging();
      const owner = newChat({ models, log });
      const other = newChat({ log });
      const turn = await owner.start({ models: TWO_LANES });
      await until(() => turn.writer.ackedSeq >= 9);
      const stopped = await stop(other, turn.row.turnId, lane);
      const { state, packets } = await other.judge(turn.row.turnId);
      expect([state.stop!.outcome, state.stop!.stopReason]).toEqual([outcome, reason]);
      expect(packets.filter((each) => each.seq > stopped.stopSeq && isContent(each))).toEqual([]);
      await turn.stop(StopReason.USER_CANCELLED).catch(() => undefined);
      await turn.ended;
      await turnOfTheLoop();
      expect([models.open, owner.turns.size]).toEqual([0, 0]);
      await other.judge(turn.row.turnId);
    },
  );

  test("a stop that hangs keeps no other one waiting, and is not begun twice", async () => {
    let held = "";
    const log = createMemoryReplayLog({
      onAppend: async (turn): Promise<"normal"> => {
        while (turn.turnId === held) await turnOfTheLoop();
        return "normal";
      },
    });
    const owner = newChat({ models: hanging(), log });
    const other = newChat({ log });
    const [stuck, free] = [await owner.start(), await owner.start()];
    await until(() => stuck.writer.ackedSeq >= 5 && free.writer.ackedSeq >= 5);
    held = stuck.row.turnId;
    await stuck.writer.write([packet("statusUpdate", { action: "a" }, undefined)]);
    for (const turn of [stuck, free])
      await other.deps.store.requestStop(ALICE, { kind: "turn", turnId: turn.row.turnId }, undefined);
    const listener = listenForCommands(owner.deps, owner.turns);
    try {
      await listener.obey();
      await listener.obey();
      await free.ended;
      expect(owner.turns.find(stuck.row.turnId)).toBeDefined();
    } finally {
      held = "";
      listener.close();
    }
    await stuck.ended;
    await owner.judge(free.row.turnId);
    await owner.judge(stuck.row.turnId);
  });
});

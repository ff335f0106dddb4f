/** Watch: events of sessions without a gap, packets of their turns as they were logged, nothing of others, nothing left behind. */
import { create, toBinary, type MessageInitShape } from "@bufbuild/protobuf";
import { afterEach, describe, expect, test } from "vitest";
import {
  WatchRequestSchema,
  type ChatService,
  type WatchResponse,
} from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import { SourceDocumentSchema } from "../../gen/turnwire/chat/v1/types_pb.js";
import { PacketBatchSchema } from "../../gen/turnwire/log/v1/log_pb.js";
import { ErrorCode, FinishReason } from "../../gen/turnwire/packet/v1/common_pb.js";
import { SessionTitleSchema } from "../../gen/turnwire/packet/v1/side_pb.js";
import { createChatService } from "../../src/chat/service.js";
import { defaultChatLimits } from "../../src/chat/ports.js";
import { newId } from "../../src/lib/ids.js";
import { silentLogger } from "../../src/lib/log.js";
import type { Principal, ServerStreamImpl } from "../../src/lib/rpc/service-binding.js";
import { content, finish } from "../../src/turn/test-support.js";
import { createMemoryReplayLog } from "../../src/replay/memory-replay-log.js";
import { connectPgStore } from "../../src/store/pg-store.js";
import type { Store } from "../../src/store/store.js";
import {
  answer,
  cases,
  chat,
  never,
  scriptedModels,
  tapStore,
  turnOfTheLoop,
  until,
  type Chat,
  type ChatOptions,
  type ModelScript,
} from "../support/chat-fixture.js";
import { ManualClock } from "../support/manual-clock.js";
import { runSql, usePostgres } from "../support/postgres.js";
import { ALICE, STRANGERS, useStore } from "../support/store-fixtures.js";
import { decoded, Watching } from "../support/watching.js";

const postgres = usePostgres();
const stores = useStore(postgres);
const open = new Set<Watching>();
afterEach(async () => {
  await Promise.all([...open].map((watching) => watching.close()));
  open.clear();
});

type Request = MessageInitShape<typeof WatchRequestSchema>;

interface Fixture {
  readonly process: Chat;
  watch(request: Request, principal?: Principal): Watching;
  /** The stream itself, which nobody pulls. */
  stream(request: Request): AsyncIterable<WatchResponse>;
}

function fixture(options: Partial<ChatOptions> = {}): Fixture {
  const process = chat({ store: stores.store, databaseUrl: postgres.url, ...options });
  const { methods } = createChatService(process.deps, process.turns);
  const impl = methods.get("watch" satisfies keyof (typeof ChatService)["method"]) as unknown;
  const stream = (request: Request, principal: Principal, signal: AbortSignal) => {
    const message = create(WatchRequestSchema, request);
    const context = { principal, signal, protocol: "connect" };
    return decoded((impl as ServerStreamImpl<typeof message, WatchResponse>)(message, context));
  };
  return {
    process,
    stream: (request) => stream(request, ALICE, never),
    watch(request, principal = ALICE) {
      const watching = new Watching((signal) => stream(request, principal, signal));
      open.add(watching);
      return watching;
    },
  };
}

/** What was told last is a token: it covers all that was told before. */
const isSettled = (watching: Watching): boolean => (watching.responses.at(-1)?.eventToken ?? "") !== "";
const stands = (watching: Watching): boolean => watching.token !== "";

async function newSession(principal = ALICE, title = ""): Promise<string> {
  const input = { sessionId: newId(), requestId: "", settings: new Uint8Array(), title, tags: [] };
  return (await stores.store.createSession(principal, input)).sessionId;
}

/** Models that stop in the middle of their answer until the gate of their turn is opened. */
function gated(): { readonly script: ModelScript; open(): void } {
  let pass = (): void => undefined;
  const passed = new Promise<void>((resolve) => (pass = resolve));
  const [first, ...rest] = answer("half the answer");
  return {
    open: () => pass(),
    async *script() {
      yield first!;
      await passed;
      yield* rest;
    },
  };
}

function expectLogged(
  watching: Watching,
  turn: { turnId: string; entries: readonly { batch: Uint8Array }[] },
) {
  const logged = Buffer.concat(turn.entries.map((entry) => entry.batch));
  const told = toBinary(
    PacketBatchSchema,
    create(PacketBatchSchema, { packets: watching.packets(turn.turnId) }),
  );
  expect(Buffer.from(told).equals(logged)).toBe(true);
}

describe("events", () => {
  test("of a turn in a new session, in order: made with its title, started, changed, ended", async () => {
    const { process, watch } = fixture();
    const watching = watch({ allSessionEvents: true });
    await watching.until(stands);
    const { state, turnId } = await process.run({ text: "What is the weather like?" });
    const { sessionId } = state.started!;
    await watching.until((told) => told.eventNames(sessionId).includes("turnEnded"));
    const events = watching.events.filter((event) => event.sessionId === sessionId);
    const names = events.map((event) => event.event.case);
    expect(names.filter((name) => name !== "updated")).toEqual(["turnStarted", "turnEnded"]);
    expect(names.indexOf("updated")).toBeLessThan(names.indexOf("turnEnded"));
    expect(events.find((event) => event.event.case === "updated")!.event.value).toMatchObject({
      title: "What is the weather like?",
    });
    expect(events.at(-1)!.event.value).toMatchObject({
      turnId,
      headSeq: state.seq,
      requestId: state.started!.requestId,
    });
    expect(watching.packets(turnId)).toEqual([]); // not asked for
  });

  test("of every change, to every watcher of the user, in whichever process", async () => {
    const here = fixture();
    const there = fixture();
    const watchers = [here.watch({ allSessionEvents: true }), there.watch({ allSessionEvents: true })];
    for (const watching of watchers) await watching.until(stands);
    const sessionId = await newSession();
    const { state } = await here.process.run({ sessionId });
    const { store } = stores;
    await store.updateSession(ALICE, sessionId, { title: "another" });
    await store.setFeedback(ALICE, state.started!.lanes[0]!.assistantMessageId, {
      rating: 1,
      comment: "",
      reasons: [],
    });
    await store.publishSessionEvent(ALICE, {
      kind: "title",
      sessionId,
      data: toBinary(SessionTitleSchema, create(SessionTitleSchema, { title: "made" })),
    });
    await store.publishSessionEvent(ALICE, {
      kind: "document",
      sessionId: "",
      data: toBinary(SourceDocumentSchema, create(SourceDocumentSchema, { documentId: "d1" })),
    });
    await store.deleteSession(ALICE, sessionId);
    for (const watching of watchers) {
      await watching.until((told) => told.eventNames(sessionId).includes("deleted"));
      expect(watching.eventNames("")).toEqual(["document"]);
      expect(watching.eventNames(sessionId).at(-1)).toBe("deleted");
    }
  });

  test("nothing of another user or tenant is told", async () => {
    const { process, watch } = fixture();
    const strangers = STRANGERS.map((stranger) => watch({ allSessionEvents: true }, stranger));
    for (const watching of strangers) await watching.until(stands);
    const { turnId, state } = await process.run();
    const own = await Promise.all(STRANGERS.slice(0, 2).map((stranger) => newSession(stranger)));
    for (const [index, watching] of strangers.slice(0, 2).entries()) {
      await watching.until((told) => told.eventNames(own[index]).length > 0); // what came before would have been told
      expect(watching.events.every((event) => event.sessionId === own[index])).toBe(true);
    }
    // Named, or known by a cursor, they look like what is not there.
    for (const stranger of STRANGERS) {
      const nosy = watch(
        { sessionIds: [state.started!.sessionId], cursors: [{ turnId, afterSeq: 1 }] },
        stranger,
      );
      await nosy.until((told) => told.of(turnId).length > 0);
      expect(nosy.events).toMatchObject([{ event: { case: "deleted" } }]);
      expect(nosy.of(turnId)[0]!.cursorError).toMatchObject({ code: ErrorCode.NOT_FOUND });
      expect(nosy.packets(turnId)).toEqual([]);
    }
  });

  test("resumed with a token: what happened since, once; a token of somebody else, or none of ours, is refused", async () => {
    const { process, watch } = fixture();
    const first = watch({ allSessionEvents: true });
    await first.until(stands);
    const seen = await newSession();
    await first.until((told) => told.eventNames(seen).length > 0 && isSettled(told));
    await first.close();
    const { token } = first;
    const away = await newSession();
    const { state } = await process.run({ sessionId: away });
    const second = watch({ allSessionEvents: true, afterEventToken: token });
    await second.until((told) => told.eventNames(away).includes("turnEnded"));
    expect(second.eventNames(seen)).toEqual([]);
    expect(second.events.filter((event) => event.event.case === "turnEnded")).toHaveLength(1);
    expect(second.responses.some((response) => response.reload)).toBe(false);
    expect(state.stop).toBeDefined();
    for (const [principal, after] of [
      [STRANGERS[0]!, token],
      [ALICE, `${token}x`],
      [ALICE, "nonsense"],
    ] as const) {
      const refused = watch({ allSessionEvents: true, afterEventToken: after }, principal);
      await refused.done;
      expect(refused.ended!.error).toMatchObject({
        code: ErrorCode.INVALID_ARGUMENT,
        details: { field: "after_event_token" },
      });
    }
  });

  test("too many, or too long ago, to be told one by one: reload, and then what comes", async () => {
    const { watch } = fixture();
    const zoe = { ...ALICE, userId: "zoe" };
    const first = watch({ allSessionEvents: true }, zoe);
    await first.until(stands);
    await first.close();
    const sessionId = await newSession(zoe);
    await runSql(
      postgres.url,
      `insert into turnwire.session_events (tenant_id, user_id, kind, session_id)
       select 'acme', 'zoe', 1, $1 from generate_series(1, 500)`,
      [sessionId],
    );
    const many = watch({ allSessionEvents: true, afterEventToken: first.token }, zoe);
    await many.until((told) => told.responses.some((response) => response.reload));
    expect(many.events).toEqual([]);
    const next = await newSession(zoe);
    await many.until((told) => told.eventNames(next).length > 0);
    expect(many.events).toHaveLength(1);
  });

  test("a token of another database, or of one that was put back to an earlier state: reload", async () => {
    const { token } = await stores.store.readSessionEvents(ALICE, "");
    await newSession();
    expect(await stores.store.readSessionEvents(ALICE, token)).toMatchObject({ missed: false });
    const url = await postgres.createDatabase();
    const other = await connectPgStore({ connectionString: url, logger: silentLogger });
    try {
      const there = await other.readSessionEvents(ALICE, token);
      expect(there).toMatchObject({ rows: [], missed: true });
      expect(await other.readSessionEvents(ALICE, there.token)).toMatchObject({ missed: false });
      await runSql(url, "update turnwire.migrations set apply_time = apply_time - interval '1 second'");
      expect(await other.readSessionEvents(ALICE, there.token)).toMatchObject({ missed: true });
    } finally {
      await other.close();
    }
  });

  test("an event whose transaction ends late is told late, and is not lost to those that began after it", async () => {
    const { watch } = fixture();
    const watching = watch({ allSessionEvents: true });
    await watching.until(stands);
    const late = await newSession();
    await watching.until((told) => told.eventNames(late).length > 0);
    // A transaction that has its number, and its event, and is not at its end.
    const held = await holdUpdate(late);
    const early = await newSession();
    await watching.until((told) => told.eventNames(early).length > 0 && isSettled(told));
    const resumed = watch({ allSessionEvents: true, afterEventToken: watching.token });
    await held.commit();
    const last = await newSession(); // wakes them
    for (const watcher of [watching, resumed]) {
      await watcher.until((told) => told.eventNames(last).length > 0);
      expect(watcher.eventNames(late).length).toBe(watcher === watching ? 2 : 1);
      expect(watcher.eventNames(early).length).toBe(watcher === watching ? 1 : 0);
    }
  });
});

/** An update of a session by hand, in a transaction that waits. */
async function holdUpdate(sessionId: string): Promise<{ commit(): Promise<void> }> {
  const pg = (await import("pg")).default;
  const client = new pg.Client({ connectionString: postgres.url });
  await client.connect();
  await client.query("begin");
  await client.query(
    `insert into turnwire.session_events (tenant_id, user_id, kind, session_id)
     select tenant_id, user_id, 1, session_id from turnwire.sessions where session_id = $1`,
    [sessionId],
  );
  return {
    async commit() {
      await client.query("commit");
      await client.end();
    },
  };
}

describe("turns of named sessions", () => {
  test("one that runs, from its beginning and from a cursor; one that starts later, by itself", async () => {
    const gate = gated();
    const models = scriptedModels(gate.script);
    const { process, watch } = fixture({ models });
    const running = await process.start();
    const { sessionId, turnId } = running.row;
    const whole = watch({ sessionIds: [sessionId] });
    await whole.until((told) => told.packets(turnId).length >= 3);
    const rest = watch({ sessionIds: [sessionId], cursors: [{ turnId, afterSeq: 2 }] });
    await rest.until((told) => told.of(turnId).length > 0);
    gate.open();
    await running.ended;
    const turn = await process.judge(turnId);
    for (const watching of [whole, rest]) await watching.until((told) => told.hasEnd(turnId));
    expectLogged(whole, turn);
    expect(rest.packets(turnId)).toEqual(whole.packets(turnId).slice(2));
    expect(whole.of(turnId)[0]).toMatchObject({ logId: process.deps.log.logId });
    expect(whole.events).toEqual([]);

    const next = await process.run({ sessionId, text: "and now?" });
    for (const watching of [whole, rest]) {
      await watching.until((told) => told.hasEnd(next.turnId));
      expectLogged(watching, next);
    }
  });

  test("one that ended while the client was away: the rest behind its cursor; whole, when it started meanwhile", async () => {
    const { process, watch } = fixture();
    const sessionId = await newSession();
    const before = watch({ sessionIds: [sessionId] });
    await before.until(stands);
    const known = await process.run({ sessionId });
    await before.until((told) => told.hasEnd(known.turnId));
    const { token } = before;
    await before.close();
    const missed = await process.run({ sessionId, text: "more" });
    const after = watch({
      sessionIds: [sessionId],
      cursors: [{ turnId: known.turnId, afterSeq: known.packets.length - 3, logId: process.deps.log.logId }],
      afterEventToken: token,
    });
    await after.until((told) => told.hasEnd(known.turnId) && told.hasEnd(missed.turnId));
    expect(after.packets(known.turnId)).toEqual(known.packets.slice(-3));
    expectLogged(after, missed);
    // Who has it all is told nothing of it.
    const done = watch({
      sessionIds: [sessionId],
      cursors: [known, missed].map(({ turnId, packets }) => ({ turnId, afterSeq: packets.length })),
    });
    const next = await process.run({ sessionId, text: "third" });
    await done.until((told) => told.hasEnd(next.turnId));
    expect([...done.of(known.turnId), ...done.of(missed.turnId)]).toEqual([]);
  });

  test("a cursor that cannot be served ends alone, by type", async () => {
    const log = createMemoryReplayLog({});
    const gate = gated();
    const { process, watch } = fixture({ log, models: scriptedModels(gate.script) });
    const [first, second] = [await process.start(), await process.start()];
    const turns = [first.row, second.row];
    const watching = watch({
      sessionIds: turns.map((turn) => turn.sessionId),
      cursors: [
        { turnId: turns[0]!.turnId, afterSeq: 4_000_000 },
        { turnId: "no-such-turn", afterSeq: 1 },
        { turnId: turns[1]!.turnId, afterSeq: 1, logId: log.logId },
      ],
    });
    gate.open();
    await watching.until((told) => told.hasEnd(turns[1]!.turnId));
    await watching.until((told) => told.of("no-such-turn").length > 0);
    expect(watching.of(turns[0]!.turnId).at(-1)!.cursorError!.code).toBe(ErrorCode.CURSOR_AHEAD);
    expect(watching.of("no-such-turn").at(-1)!.cursorError!.code).toBe(ErrorCode.NOT_FOUND);
    expect(watching.ended).toBeUndefined();
    const replaced = watch({
      sessionIds: [turns[1]!.sessionId],
      cursors: [{ turnId: turns[1]!.turnId, afterSeq: 1, logId: "another log" }],
    });
    await replaced.until((told) => told.of(turns[1]!.turnId).length > 1);
    expect(replaced.of(turns[1]!.turnId).at(-1)!.cursorError!.code).toBe(ErrorCode.LOG_REPLACED);
  });

  test("a session that is deleted meanwhile is told so, and its turn is read no more", async () => {
    const gate = gated();
    const { process, watch } = fixture({ models: scriptedModels(gate.script) });
    const running = await process.start();
    const { sessionId, turnId } = running.row;
    const watching = watch({ sessionIds: [sessionId] });
    await watching.until((told) => told.packets(turnId).length >= 3);
    await stores.store.deleteSession(ALICE, sessionId);
    await watching.until((told) => told.eventNames(sessionId).includes("deleted"));
    running.fenced();
    gate.open();
    await running.ended;
    expect(watching.ended).toBeUndefined();
  });

  test("a turn that starts while the watcher opens is not missed: at any of its reads", async () => {
    const sessionId = await newSession();
    const methods: (keyof Store)[] = ["readSessionEvents", "getSessions", "listRunningTurns"];
    for (const method of methods)
      for (const when of ["before", "after"] as const) {
        const starter = fixture();
        let started: ReturnType<Chat["run"]> | undefined;
        const store = tapStore(stores.store, async (name, at) => {
          if (name === method && at === when) await (started ??= starter.process.run({ sessionId }));
        });
        const { watch } = fixture({ store, log: starter.process.deps.log });
        const watching = watch({ sessionIds: [sessionId], allSessionEvents: true });
        await watching.until(stands);
        await until(() => started !== undefined);
        const turn = await started!;
        if (method === "readSessionEvents" && when === "before") {
          // Over before the watch began: not a turn that runs, nor an event that is new.
          expect(watching.packets(turn.turnId)).toEqual([]);
        } else {
          await watching.until((told) => told.hasEnd(turn.turnId));
          expectLogged(watching, turn);
        }
        await watching.close();
      }
  });
});

describe("while nothing happens, and at the end", () => {
  test("a sign of life after each interval, of the stream and of a turn that is silent", async () => {
    const clock = new ManualClock();
    const gate = gated();
    const { process } = fixture({ models: scriptedModels(gate.script) });
    const running = await process.start();
    const { sessionId, turnId } = running.row;
    const there = fixture({
      log: process.deps.log,
      deps: { clock, limits: { ...defaultChatLimits, heartbeatMs: 1_000 } },
    });
    const [quiet, busy] = [there.watch({}), there.watch({ sessionIds: [sessionId] })];
    await quiet.until(stands);
    await busy.until((told) => cases(told.packets(turnId)).includes("agentResponseDelta"));
    await until(() => clock.sleeping >= 5);
    clock.advance(1_000);
    await quiet.until((told) => told.responses.length === 2);
    expect(quiet.responses[1]).toMatchObject({ packets: [], events: [], eventToken: "" });
    await busy.until((told) => told.of(turnId).at(-1)!.packets[0]?.payload.case === "chatHeartbeat");
    expect(busy.of(turnId).at(-1)!.headSeq).toBe(busy.packets(turnId).length);
    gate.open();
    await running.ended;
  });

  test("nothing is left of a watcher: no sleeper, no listener, no reader of a turn", async () => {
    const clock = new ManualClock();
    const listeners = new Set<() => void>();
    const store: Store = {
      ...stores.store,
      onSessionEvent(principal, wake) {
        const unsubscribe = stores.store.onSessionEvent(principal, wake);
        listeners.add(unsubscribe);
        return () => (listeners.delete(unsubscribe), unsubscribe());
      },
    };
    const gate = gated();
    const { process } = fixture({ models: scriptedModels(gate.script) });
    const running = await process.start();
    const there = fixture({ store, log: process.deps.log, deps: { clock } });
    const watching = there.watch({ sessionIds: [running.row.sessionId], allSessionEvents: true });
    await watching.until((told) => told.packets(running.row.turnId).length >= 3);
    expect(listeners.size).toBe(1);
    await watching.close();
    await until(() => listeners.size === 0 && clock.sleeping === 0);
    gate.open();
    await running.ended;
  });

  test("who takes nothing stops nobody, and finds all of it when it goes on (I13)", async () => {
    const text = "0123456789abcdef".repeat(4 * 1024);
    const models = scriptedModels(async function* () {
      for (let at = 0; at < 64; at++) {
        yield content(text);
        await turnOfTheLoop();
      }
      yield finish(FinishReason.STOP);
    });
    const { process, watch, stream } = fixture({ models });
    const sessionId = await newSession();
    const others = watch({ sessionIds: [sessionId] });
    const stalled = stream({ sessionIds: [sessionId] })[Symbol.asyncIterator]();
    await stalled.next(); // it stands, and takes nothing more
    const turn = await process.run({ sessionId });
    await others.until((told) => told.hasEnd(turn.turnId));
    expectLogged(others, turn);
    const late = new Watching(() => ({ [Symbol.asyncIterator]: () => stalled }));
    open.add(late);
    await late.until((told) => told.hasEnd(turn.turnId));
    expectLogged(late, turn);
    await stalled.return!(undefined);
  });

  test("a process that shuts down lets its watchers go: at once, or when their turn has ended", async () => {
    const gate = gated();
    const { process, watch } = fixture({ models: scriptedModels(gate.script) });
    const running = await process.start();
    const { sessionId, turnId } = running.row;
    const [idle, reading] = [watch({ allSessionEvents: true }), watch({ sessionIds: [sessionId] })];
    await idle.until(stands);
    await reading.until((told) => told.packets(turnId).length >= 3);
    const drained = process.turns.drain(10_000);
    await idle.done;
    expect(reading.ended).toBeUndefined();
    gate.open();
    await reading.done;
    expect(reading.hasEnd(turnId)).toBe(true);
    for (const watching of [idle, reading])
      expect(watching.ended!.error).toMatchObject({ code: ErrorCode.UNAVAILABLE, retryable: true });
    await drained;
  });

  test("a store that is away for a while: the turns go on, and no event is lost", async () => {
    let away = false;
    const store = tapStore(stores.store, (name) => {
      if (away && name === "readSessionEvents") throw new Error("away");
    });
    const gate = gated();
    const { process, watch } = fixture({ store, models: scriptedModels(gate.script) });
    const running = await process.start();
    const { sessionId, turnId } = running.row;
    const watching = watch({ sessionIds: [sessionId], allSessionEvents: true });
    await watching.until((told) => told.packets(turnId).length >= 3);
    away = true;
    gate.open();
    await watching.until((told) => told.hasEnd(turnId));
    expect(watching.eventNames(sessionId)).not.toContain("turnEnded");
    away = false;
    await watching.until((told) => told.eventNames(sessionId).includes("turnEnded"));
  });

  test("an event that cannot be told is passed over: reload, and then what comes", async () => {
    const { watch } = fixture();
    const yan = { ...ALICE, userId: "yan" };
    const sessionId = await newSession(yan);
    const watching = watch({ allSessionEvents: true }, yan);
    await watching.until(stands);
    const data = Buffer.from([0xff, 0xff]); // no message of any kind
    await stores.store.publishSessionEvent(yan, { kind: "title", sessionId, data });
    await watching.until((told) => told.responses.some((response) => response.reload));
    const next = await newSession(yan);
    await watching.until((told) => told.eventNames(next).length > 0);
  });

  test("a token is good for an hour, and events stay longer than that", async () => {
    const { watch } = fixture();
    const first = watch({ allSessionEvents: true });
    await first.until(stands);
    const sessionId = await newSession();
    await first.until((told) => told.eventNames(sessionId).length > 0);
    const count = async (): Promise<number> =>
      (await runSql(postgres.url, "select count(*)::int as n from turnwire.session_events"))[0]![
        "n"
      ] as number;
    const age = (minutes: number) =>
      runSql(
        postgres.url,
        `update turnwire.session_events set create_time = clock_timestamp() - interval '${minutes} min'`,
      );
    const all = await count();
    await age(65);
    expect(await stores.store.forgetSessionEvents(10_000)).toBe(0);
    await age(75);
    expect(await stores.store.forgetSessionEvents(3)).toBe(3);
    expect(await stores.store.forgetSessionEvents(10_000)).toBe(all - 3);
    expect(await count()).toBe(0);
  });
});

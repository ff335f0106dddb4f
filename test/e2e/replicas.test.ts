/**
 * Two chat processes on one database and one log, each with a data directory of its own: what one runs the other reads,
 * resumes, replays and stops; and when one dies the other ends its turns (I1, I4, I7, I9, I16).
 */
import { Code, ConnectError } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { SendDisposition } from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import { TurnStatus } from "../../gen/turnwire/chat/v1/types_pb.js";
import { StopReason, TurnOutcome } from "../../gen/turnwire/packet/v1/common_pb.js";
import type { Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import {
  chatClient,
  decodePackets,
  expectGrammar,
  expectRowsEqualFold,
  hexOf,
  MODEL,
  readWhole,
  startWith,
  type ChatClient,
} from "../support/e2e-fixture.js";
import { natsServers, startTestNats, type TestNats } from "../support/nats.js";
import { usePostgres } from "../support/postgres.js";
import {
  finishChunks,
  gate,
  never,
  reasoningChunks,
  startScriptedUpstream,
  textChunks,
  type ScriptedUpstream,
} from "../support/scripted-upstream.js";
import { allReaders, type NamedReader } from "../support/turn-readers.js";
import { makeDataDir, removeDataDir, type TurnwireProcess } from "../support/turnwire-process.js";

const postgres = usePostgres();
const models = [{ modelId: MODEL }];
const PATIENT = { timeout: 20_000, interval: 20 };
const STOPS = 40;
/** From the death of an owner to the end of its turns at another replica (design: I9). */
const TAKEOVER_MS = 15_000;

describe.each(logs())("two replicas on the %s log", (_name, startLog) => {
  let nats: TestNats | undefined;
  let upstream: ScriptedUpstream;
  let databaseUrl: string;
  let owner: TurnwireProcess;
  let other: TurnwireProcess;
  let atOwner: ChatClient;
  let atOther: ChatClient;
  let ownerReaders: NamedReader[];
  let otherReaders: NamedReader[];
  const dataDirs = [makeDataDir(), makeDataDir()];

  beforeAll(async () => {
    nats = await startLog();
    databaseUrl = await postgres.createDatabase();
    upstream = await startScriptedUpstream();
    const start = (dataDir: string): Promise<TurnwireProcess> =>
      startWith(upstream, { dataDir, databaseUrl, natsUrl: nats?.server.url });
    owner = await start(dataDirs[0]!);
    other = await start(dataDirs[1]!);
    atOwner = chatClient(owner);
    atOther = chatClient(other);
    ownerReaders = allReaders(owner);
    otherReaders = allReaders(other);
  });
  afterAll(async () => {
    for (const reader of [...(ownerReaders ?? []), ...(otherReaders ?? [])]) reader.close();
    await Promise.all([owner?.stop(), other?.stop()]);
    await upstream?.close();
    await nats?.end();
    for (const dataDir of dataDirs) removeDataDir(dataDir);
  });

  /** A turn of the owner that stands at the gate in its answer. */
  async function begin(name: string, rest = [...textChunks(" and so it ends."), ...finishChunks("stop")]) {
    upstream.reply([...reasoningChunks("let me think"), ...textChunks("It begins"), gate(name), ...rest]);
    const { receipt, started } = await atOwner.startTurn({ text: name, requestId: name, models });
    await upstream.reached(name);
    const { turnId } = receipt!;
    await expect
      .poll(async () => (await atOwner.getTurn({ turnId })).state!.lanes[0]?.text, PATIENT)
      .toBe("It begins");
    return { turnId, sessionId: started!.sessionId };
  }

  test("a turn is read and resumed, live, at the replica that does not run it: the same bytes", async () => {
    const { turnId, sessionId } = await begin("live");
    const { turn, state } = await atOther.getTurn({ turnId });
    expect(turn).toMatchObject({ status: TurnStatus.RUNNING });
    expect(state!.lanes[0]!.text).toBe("It begins");
    const head = turn!.headSeq;
    const { session } = await atOther.getSession({ sessionId });
    expect(session!.activeTurns).toMatchObject([{ turnId, headSeq: head }]);

    const local = ownerReaders.map((reader) => reader.read(turnId, 0));
    const remote = otherReaders.map((reader) => reader.read(turnId, 0));
    const seen = await otherReaders[0]!.read(turnId, 0, 4);
    const resumed = otherReaders.map((reader) => reader.read(turnId, 4));
    const atHead = otherReaders.map((reader) => reader.read(turnId, head));
    upstream.open("live");
    const [whole, ...others] = await Promise.all([...local, ...remote]);
    expectGrammar(decodePackets(whole!));
    for (const packets of others) expect(hexOf(packets)).toBe(hexOf(whole!));
    for (const rest of await Promise.all(resumed)) expect(hexOf([...seen, ...rest])).toBe(hexOf(whole!));
    for (const rest of await Promise.all(atHead)) expect(hexOf(rest)).toBe(hexOf(whole!.slice(head)));
  }, 60_000);

  test("who saw the end finds the final state at once at the other replica, and goes on there", async () => {
    const { turnId, sessionId } = await begin("final");
    const reading = readWhole(atOwner, turnId);
    upstream.open("final");
    const packets = await reading;
    const { turn, state } = await atOther.getTurn({ turnId });
    expect(turn).toMatchObject({ status: TurnStatus.ENDED, headSeq: packets.length });
    expect(state!.stop!.outcome).toBe(TurnOutcome.COMPLETED);
    upstream.reply([...textChunks("more"), ...finishChunks("stop")]);
    const reply = await atOther.sendMessageAndWait({ sessionId, text: "go on", models });
    expect(reply.text).toBe("more");
    const given = upstream.requests.at(-1)!.json!.messages!.map((message) => message["content"]);
    expect(given).toEqual(["final", "It begins and so it ends.", "go on"]);
  });

  test("a send is one turn, wherever it is repeated; a session runs one turn, wherever it is asked", async () => {
    const { turnId, sessionId } = await begin("once");
    const again = await atOther.startTurn({ text: "once", requestId: "once", models });
    expect(again.receipt).toMatchObject({ turnId, disposition: SendDisposition.REPLAYED });
    const conflict = await failureOf(atOther.startTurn({ text: "twice", requestId: "once", models }));
    expect(conflict.code).toBe(Code.AlreadyExists);
    const busy = await failureOf(atOther.startTurn({ text: "another", sessionId, models }));
    expect(busy.code).toBe(Code.FailedPrecondition);
    expect(busy.rawMessage).toContain(turnId);
    upstream.open("once");
    const packets = await readWhole(atOther, turnId);
    expect(endOf(packets)).toEqual([TurnOutcome.COMPLETED, StopReason.UNSPECIFIED]);

    // Both at once, many times: one wins, the other one gets the same turn.
    upstream.replyWith(() => [...textChunks("one"), ...finishChunks("stop")]);
    for (let round = 0; round < 10; round++) {
      const request = { text: `round ${round}`, requestId: `round-${round}`, models };
      const replies = await Promise.all([atOwner.startTurn(request), atOther.startTurn(request)]);
      expect(new Set(replies.map((reply) => reply.receipt!.turnId)).size).toBe(1);
      expect(replies.map((reply) => reply.receipt!.disposition).sort()).toEqual([
        SendDisposition.STARTED,
        SendDisposition.REPLAYED,
      ]);
      await readWhole(atOther, replies[0]!.receipt!.turnId);
    }
    upstream.replyWith(undefined);
  }, 60_000);

  test(`${STOPS} stops from the other replica: no content after stop_seq, the model call is closed`, async () => {
    const answeredMs: number[] = [];
    const closedMs: number[] = [];
    for (let i = 0; i < STOPS; i++) {
      const count = upstream.requests.length + 1;
      const { turnId, sessionId } = await begin(`stop-${i}`, [never]);
      const request = await upstream.waitForRequest(count);
      const reading = readWhole(i % 2 ? atOther : atOwner, turnId);
      const target =
        i % 3 === 0
          ? ({ case: "sessionId", value: sessionId } as const)
          : ({ case: "turnId", value: turnId } as const);
      const askedAt = performance.now();
      const { stopSeq } = await atOther.stopTurn({ target });
      answeredMs.push(performance.now() - askedAt);
      closedMs.push((await request.closed) - askedAt);
      const packets = await reading;
      expectGrammar(packets);
      expect(endOf(packets)).toEqual([TurnOutcome.STOPPED, StopReason.USER_CANCELLED]);
      expect(packets.filter((packet) => packet.seq > stopSeq && isContent(packet))).toEqual([]);
      if (i % 10 === 0) await expectRowsEqualFold(databaseUrl, turnId, packets);
    }
    console.log(
      `stop from another replica: answered p50 ${percentile(answeredMs, 0.5)} p99 ${percentile(answeredMs, 0.99)} ms; upstream closed p50 ${percentile(closedMs, 0.5)} p99 ${percentile(closedMs, 0.99)} ms`,
    );
    expect(percentile(answeredMs, 0.5)).toBeLessThan(250);
    expect(percentile(closedMs, 0.99)).toBeLessThan(1_000);
  }, 120_000);

  test("a stop while the owner is frozen: the asked replica ends the turn itself; the owner wakes up fenced", async () => {
    const { turnId } = await begin("frozen");
    const live = readWhole(atOther, turnId);
    process.kill(owner.pid, "SIGSTOP");
    let stopSeq: number;
    try {
      const askedAt = performance.now();
      ({ stopSeq } = await atOther.stopTurn({ target: { case: "turnId", value: turnId } }));
      console.log(`stop past a frozen owner: ${Math.round(performance.now() - askedAt)} ms`);
    } finally {
      process.kill(owner.pid, "SIGCONT");
    }
    upstream.open("frozen"); // the owner's model call goes on: none of it may be shown
    const packets = await live;
    expectGrammar(packets);
    expect(endOf(packets)).toEqual([TurnOutcome.STOPPED, StopReason.USER_CANCELLED]);
    expect(packets.filter((packet) => packet.seq > stopSeq && isContent(packet))).toEqual([]);
    await expect.poll(() => readWhole(atOwner, turnId), PATIENT).toEqual(packets);
    const state = await expectRowsEqualFold(databaseUrl, turnId, packets);
    expect(state.lanes[0]!.text).toBe("It begins");
    upstream.reply([...textChunks("awake"), ...finishChunks("stop")]);
    expect((await atOwner.sendMessageAndWait({ text: "awake?", models })).text).toBe("awake");
    expect(await readWhole(atOther, turnId)).toEqual(packets);
  }, 60_000);

  test("kill -9 of the owner: the other replica ends its turns as interrupted, and its readers go on", async () => {
    const turns = [];
    for (let i = 0; i < 5; i++) turns.push(await begin(`killed-${i}`, [never]));
    const live = turns.map(({ turnId }) => readWhole(atOther, turnId, 60_000));
    const partly = await Promise.all(turns.map(({ turnId }) => ownerReaders[0]!.read(turnId, 0, 6)));
    const asked = upstream.requests.length;
    const killedAt = performance.now();
    await owner.kill9();
    const wholes = await Promise.all(live);
    const tookMs = performance.now() - killedAt;
    console.log(`kill -9 of the owner: its turns ended elsewhere after ${Math.round(tookMs)} ms`);
    expect(tookMs).toBeLessThan(TAKEOVER_MS);
    for (const [index, packets] of wholes.entries()) {
      const { turnId, sessionId } = turns[index]!;
      expectGrammar(packets);
      expect(endOf(packets)).toEqual([TurnOutcome.INTERRUPTED, StopReason.OWNER_LOST]);
      const state = await expectRowsEqualFold(databaseUrl, turnId, packets);
      expect(state.lanes[0]!.text).toBe("It begins");
      const rest = await otherReaders[0]!.read(turnId, 6);
      const again = await otherReaders[0]!.read(turnId, 0);
      expect(hexOf([...partly[index]!, ...rest])).toBe(hexOf(again));
      expect((await atOther.getSession({ sessionId })).session!.activeTurns).toEqual([]);
    }
    expect(upstream.requests.length).toBe(asked);
    // The dead owner comes back on its data directory and finds nothing to do.
    owner = await startWith(upstream, { dataDir: dataDirs[0]!, databaseUrl, natsUrl: nats?.server.url });
    upstream.reply([...textChunks("back"), ...finishChunks("stop")]);
    const { sessionId } = turns[0]!;
    const reply = await chatClient(owner).sendMessageAndWait({ sessionId, text: "and on", models });
    expect(reply.text).toBe("back");
  }, 90_000);
});

async function failureOf(promise: Promise<unknown>): Promise<ConnectError> {
  return promise.then(
    () => {
      throw new Error("it should have failed");
    },
    (thrown: unknown) => ConnectError.from(thrown),
  );
}

function endOf(packets: readonly Packet[]): unknown[] {
  const last = packets.at(-1)!.payload;
  return last.case === "overallStop" ? [last.value.outcome, last.value.stopReason] : [last.case];
}

function isContent(packet: Packet): boolean {
  return /Delta$/.test(packet.payload.case ?? "");
}

function percentile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return Math.round(sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))]! * 10) / 10;
}

/** Postgres, and the newest JetStream to be had. */
function logs(): [string, () => Promise<TestNats | undefined>][] {
  const newest = natsServers().at(-1);
  return [
    ["Postgres", () => Promise.resolve(undefined)],
    ...(newest
      ? [[`JetStream ${newest.version}`, () => startTestNats(newest)] as [string, () => Promise<TestNats>]]
      : []),
  ];
}

/**
 * Watch over two replicas on one database and one log: what happens at one is told at the other, live, resumed and past
 * the death of the replica that was watched (I1, I9, I11, I12).
 */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { create, toBinary, type MessageInitShape } from "@bufbuild/protobuf";
import { createClient, type Interceptor } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport } from "@connectrpc/connect-node";
import { ChatService, type WatchRequestSchema } from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import { PacketBatchSchema } from "../../gen/turnwire/log/v1/log_pb.js";
import { ErrorCode, StopReason, TurnOutcome } from "../../gen/turnwire/packet/v1/common_pb.js";
import type { Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import {
  chatClient,
  expectGrammar,
  MODEL,
  plainAnswer,
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
  startScriptedUpstream,
  textChunks,
  type ScriptedUpstream,
} from "../support/scripted-upstream.js";
import { makeDataDir, removeDataDir, type TurnwireProcess } from "../support/turnwire-process.js";
import { Watching } from "../support/watching.js";

const postgres = usePostgres();
const models = [{ modelId: MODEL }];
const TOKENS = { ada: "token-of-ada-0123456789", bob: "token-of-bob-0123456789" };
/** From the death of an owner to the end of its turns at another replica (design: I9), with room for a busy machine. */
const TAKEOVER_MS = 40_000;

type Request = MessageInitShape<typeof WatchRequestSchema>;

describe.each(logs())("two replicas on the %s log", (_name, startLog) => {
  let nats: TestNats | undefined;
  let upstream: ScriptedUpstream;
  const replicas: TurnwireProcess[] = [];
  const dataDirs = [makeDataDir(), makeDataDir()];
  const open = new Set<Watching>();

  beforeAll(async () => {
    nats = await startLog();
    upstream = await startScriptedUpstream();
    const databaseUrl = await postgres.createDatabase();
    for (const dataDir of dataDirs)
      replicas.push(
        await startWith(upstream, {
          dataDir,
          databaseUrl,
          natsUrl: nats?.server.url,
          env: { TURNWIRE_TOKENS: `${TOKENS.ada}=acme/ada,${TOKENS.bob}=acme/bob` },
        }),
      );
  });
  afterEach(async () => {
    await Promise.all([...open].map((watching) => watching.close()));
    open.clear();
  });
  afterAll(async () => {
    await Promise.all(replicas.map((replica) => replica.stop()));
    await upstream?.close();
    await nats?.end();
    for (const dataDir of dataDirs) removeDataDir(dataDir);
  });

  const at = (replica: number, token = TOKENS.ada): ChatClient =>
    chatClient(replicas[replica]!, { authorization: `Bearer ${token}` });

  function watch(
    replica: number,
    request: Request,
    token = TOKENS.ada,
    client = at(replica, token),
  ): Watching {
    const watching = new Watching((signal) => client.watch(request, { signal }));
    open.add(watching);
    return watching;
  }

  /** Other ways to the same: gRPC, and JSON over HTTP/1.1. */
  function otherClients(replica: number): ChatClient[] {
    const bearer: Interceptor = (next) => (request) => {
      request.header.set("authorization", `Bearer ${TOKENS.ada}`);
      return next(request);
    };
    const common = { baseUrl: replicas[replica]!.httpUrl, interceptors: [bearer] };
    return [
      createGrpcTransport(common),
      createConnectTransport({ ...common, httpVersion: "1.1", useBinaryFormat: false }),
    ].map((transport) => createClient(ChatService, transport));
  }

  async function stands(...watchings: Watching[]): Promise<void> {
    for (const watching of watchings) await watching.until((told) => told.token !== "");
  }

  /** A turn of the first replica that stands at the gate in its answer. */
  async function begin(name: string, sessionId = "") {
    upstream.reply([
      ...textChunks("It begins"),
      gate(name),
      ...textChunks(" and ends."),
      ...finishChunks("stop"),
    ]);
    const { receipt, started } = await at(0).startTurn({ text: name, sessionId, models });
    await upstream.reached(name);
    return { turnId: receipt!.turnId, sessionId: started!.sessionId };
  }

  const shown = (watching: Watching, turnId: string): boolean =>
    watching.packets(turnId).some((packet) => packet.payload.case === "agentResponseDelta");
  const bytesOf = (packets: Packet[]): string =>
    Buffer.from(toBinary(PacketBatchSchema, create(PacketBatchSchema, { packets }))).toString("hex");

  test("a turn, its session's list entry and its end, at both replicas, as it happens, and nothing of it to others", async () => {
    const first = await begin("first");
    const { sessionId } = first;
    const wanted = { allSessionEvents: true, sessionIds: [sessionId] };
    const both = [
      ...[0, 1].map((replica) => watch(replica, wanted)),
      ...otherClients(1).map((client) => watch(1, wanted, TOKENS.ada, client)),
    ];
    const bobs = [0, 1].map((replica) =>
      watch(replica, { allSessionEvents: true, sessionIds: [sessionId], cursors: [first] }, TOKENS.bob),
    );
    await stands(...both, ...bobs);
    for (const watching of both) await watching.until((told) => shown(told, first.turnId));
    upstream.open("first");
    for (const watching of both) await watching.until((told) => told.hasEnd(first.turnId));
    upstream.reply(plainAnswer("more"));
    const next = await at(1).sendMessageAndWait({ sessionId, text: "go on", models });
    await at(0).updateSession({ session: { sessionId, title: "renamed" } });
    await at(1).selectMessage({ sessionId, messageId: next.state!.started!.userMessageId });
    const marker = (await at(0, TOKENS.bob).createSession({})).session!.sessionId;
    for (const { turnId } of [first, next]) {
      const whole = await readWhole(at(1), turnId);
      expectGrammar(whole);
      for (const watching of both) {
        await watching.until((told) => told.hasEnd(turnId));
        expect(bytesOf(watching.packets(turnId))).toBe(bytesOf(whole));
      }
    }
    for (const watching of both)
      await watching.until((told) =>
        told.events.some(({ event }) => event.case === "updated" && event.value.title === "renamed"),
      );
    for (const watching of bobs) {
      await watching.until((told) => told.eventNames(marker).length > 0);
      expect(watching.eventNames(sessionId)).toEqual(["deleted"]); // as a session that is not there
      expect(watching.of(first.turnId).map((response) => response.cursorError?.code)).toEqual([
        ErrorCode.NOT_FOUND,
      ]);
      expect(new Set(watching.events.map((event) => event.sessionId))).toEqual(new Set([sessionId, marker]));
    }
  }, 60_000);

  test("opened anew at the other replica with its cursors and its token: nothing twice, nothing left out", async () => {
    const { turnId, sessionId } = await begin("anew");
    const before = watch(0, { allSessionEvents: true, sessionIds: [sessionId] });
    await before.until((told) => shown(told, turnId) && told.token !== "");
    await before.close();
    const seen = before.packets(turnId);
    const { token } = before;
    upstream.open("anew");
    await readWhole(at(1), turnId);
    upstream.reply(plainAnswer("while nobody watched"));
    const missed = await at(0).sendMessageAndWait({ sessionId, text: "alone", models });
    const gone = (await at(1).createSession({ session: { title: "short-lived" } })).session!.sessionId;
    await at(0).deleteSession({ sessionId: gone });
    const after = watch(1, {
      allSessionEvents: true,
      sessionIds: [sessionId],
      cursors: [{ turnId, afterSeq: seen.length }],
      afterEventToken: token,
    });
    for (const id of [turnId, missed.turnId]) await after.until((told) => told.hasEnd(id));
    await after.until((told) => told.eventNames(gone).includes("deleted"));
    expect(bytesOf([...seen, ...after.packets(turnId)])).toBe(bytesOf(await readWhole(at(1), turnId)));
    expect(bytesOf(after.packets(missed.turnId))).toBe(bytesOf(await readWhole(at(1), missed.turnId)));
    expect(after.eventNames(sessionId).filter((name) => name !== "updated")).toEqual([
      "turnEnded",
      "turnStarted",
      "turnEnded",
    ]);
  }, 60_000);

  test("kill -9 of the replica that ran the turn and was watched: the other one tells its end, to old and new watchers", async () => {
    upstream.reply([...textChunks("It begins"), never]);
    const { receipt, started } = await at(0).startTurn({ text: "killed", models });
    const { turnId } = receipt!;
    const { sessionId } = started!;
    const request = { allSessionEvents: true, sessionIds: [sessionId] };
    const [lost, other] = [watch(0, request), watch(1, request)];
    for (const watching of [lost, other])
      await watching.until((told) => shown(told, turnId) && told.token !== "");
    await replicas[0]!.kill9();
    await lost.done;
    expect(lost.ended!.error).toBeDefined();
    const seen = lost.packets(turnId);
    const again = watch(1, {
      ...request,
      cursors: [{ turnId, afterSeq: seen.length }],
      afterEventToken: lost.token,
    });
    const killedAt = performance.now();
    for (const watching of [other, again])
      await watching.until(
        (told) => told.hasEnd(turnId) && told.eventNames(sessionId).includes("turnEnded"),
        TAKEOVER_MS,
      );
    console.log(`watchers heard of the end ${Math.round(performance.now() - killedAt)} ms after the kill`);
    const whole = other.packets(turnId);
    expectGrammar(whole);
    expect(bytesOf([...seen, ...again.packets(turnId)])).toBe(bytesOf(whole));
    expect(whole.at(-1)!.payload.value).toMatchObject({
      outcome: TurnOutcome.INTERRUPTED,
      stopReason: StopReason.OWNER_LOST,
    });
  }, 60_000);
});

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

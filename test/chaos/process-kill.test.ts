/**
 * kill -9 of the process that runs 20 turns, at every point of a turn's life; then it starts again on the same data
 * directory. Every accepted turn has its terminal within 2 s of readiness (I9), its rows are its fold (I3), what a reader
 * had seen is a prefix of what is there now (I1, I10), and no call that was dispatched runs again (I8).
 */
import { setTimeout as delay } from "node:timers/promises";
import { toBinary } from "@bufbuild/protobuf";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { PacketSchema, type Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import { StopReason, TurnOutcome } from "../../gen/turnwire/packet/v1/common_pb.js";
import { ToolCallStatus } from "../../gen/turnwire/packet/v1/tools_pb.js";
import {
  chatClient,
  expectGrammar,
  expectRowsEqualFold,
  hasToolResult,
  hexOf,
  MODEL,
  readWhole,
  startWith,
  type ChatClient,
} from "../support/e2e-fixture.js";
import { freePorts } from "../support/free-ports.js";
import { natsServers, startTestNats, type TestNats } from "../support/nats.js";
import { runSql, usePostgres } from "../support/postgres.js";
import {
  finishChunks,
  gate,
  reasoningChunks,
  startScriptedUpstream,
  textChunks,
  toolCallChunks,
  type RecordedRequest,
  type Script,
  type ScriptedUpstream,
} from "../support/scripted-upstream.js";
import { makeDataDir, removeDataDir, type TurnwireProcess } from "../support/turnwire-process.js";
import { startWebPages, type WebPages } from "../support/gated-pages.js";
import type { CrashPoint } from "../support/crashing-server.js";

const postgres = usePostgres();
const OTHERS = 19;
const tsx = new URL("../../node_modules/tsx/dist/loader.mjs", import.meta.url).href;

/** Where the process dies: by itself in a wrapper of its ports, or by the test once it has seen something. */
type Point = {
  readonly name: string;
  readonly crashAt?: CrashPoint;
  readonly killWhen?: (scene: Scene) => Promise<void>;
};

const POINTS: readonly Point[] = [
  { name: "before the accept transaction", crashAt: "before_accept" },
  { name: "after the accept transaction", crashAt: "after_accept" },
  { name: "after the claim entry", crashAt: "after_claim" },
  { name: "waiting for the first token", killWhen: (scene) => scene.upstream.reached("CRASH-first") },
  { name: "in the reasoning", killWhen: (scene) => scene.upstream.reached("CRASH-reasoning") },
  { name: "call announced", killWhen: (scene) => scene.upstream.reached("CRASH-call") },
  { name: "tool running", killWhen: (scene) => scene.pages.requested },
  { name: "result stored but not shown", crashAt: "result_stored" },
  { name: "in the answer", killWhen: (scene) => scene.upstream.reached("CRASH-answer") },
  { name: "before the commit", crashAt: "before_commit" },
  { name: "between commit and terminal", crashAt: "after_commit" },
  { name: "after the terminal", crashAt: "after_terminal" },
];

interface Scene {
  readonly upstream: ScriptedUpstream;
  readonly pages: WebPages;
}

describe.each(logs())("kill -9 with 20 turns on the %s log", (_name, startLog) => {
  let nats: TestNats | undefined;
  let upstream: ScriptedUpstream;
  let pages: WebPages;
  let server: TurnwireProcess | undefined;
  let dataDir: string;
  let databaseUrl: string;

  beforeAll(async () => {
    nats = await startLog();
  });
  beforeEach(async () => {
    dataDir = makeDataDir();
    databaseUrl = await postgres.createDatabase();
    upstream = await startScriptedUpstream();
    pages = await startWebPages(dataDir);
  });
  afterEach(async () => {
    await server?.kill9();
    server = undefined;
    await upstream.close();
    await pages.close();
    removeDataDir(dataDir);
  });
  afterAll(() => nats?.end());

  async function start(crashAt?: CrashPoint): Promise<TurnwireProcess> {
    const program = crashAt
      ? ["--import", tsx, new URL("../support/crashing-server.ts", import.meta.url).pathname]
      : undefined;
    const [httpPort, grpcPort] = await ports;
    return startWith(upstream, {
      dataDir,
      databaseUrl,
      natsUrl: nats?.server.url,
      program,
      env: {
        TURNWIRE_HTTP_PORT: String(httpPort),
        TURNWIRE_GRPC_PORT: String(grpcPort),
        TURNWIRE_CONFIG: pages.configFile,
        ...(crashAt ? { CRASH_AT: crashAt } : {}),
      },
    });
  }
  const ports = freePorts(2);

  test.each(POINTS)(
    "$name",
    async (point) => {
      upstream.replyWith((request) => script(request, pages.url, point));
      if (point.name === "tool running") pages.hold();
      server = await start(point.crashAt);
      const client = chatClient(server);
      const others = await Promise.all(
        Array.from({ length: OTHERS }, (_, index) =>
          client.startTurn({ text: `other ${index}`, models: [{ modelId: MODEL }] }),
        ),
      );
      const otherIds = others.map((reply) => reply.receipt!.turnId);
      const seen = otherIds.map((turnId) => collect(client, turnId));
      await Promise.all(seen.map((reader) => reader.reached(8))); // each is in its answer
      const crashed = client
        .startTurn({ text: "CRASH", requestId: "crash-1", models: [{ modelId: MODEL }] })
        .then(
          (reply) => reply.receipt!.turnId,
          () => undefined,
        );
      if (point.killWhen) {
        await point.killWhen({ upstream, pages });
        await server.kill9();
      }
      await within(server.exited, 20_000, "the server did not reach the point");
      const crashedId = await crashed;
      await Promise.all(seen.map((reader) => reader.ended));
      upstream.replyWith(() => [...textChunks("after the restart"), ...finishChunks("stop")]);

      server = await start();
      const again = chatClient(server);
      const accepted = await runSql(databaseUrl, "select turn_id from turnwire.turns order by turn_id");
      const ids = accepted.map((row) => String(row["turn_id"]));
      expect(ids).toEqual(expect.arrayContaining(otherIds));
      if (crashedId) expect(ids).toContain(crashedId);
      expect(ids.length).toBe(point.crashAt === "before_accept" ? OTHERS : OTHERS + 1);
      const wholes = await within(
        Promise.all(ids.map((turnId) => readWhole(again, turnId))),
        2_000 - (performance.now() - server.readyAtMs),
        "a turn has no terminal 2 s after readiness",
      );
      for (const [index, packets] of wholes.entries()) {
        const turnId = ids[index]!;
        expectGrammar(packets);
        await expectRowsEqualFold(databaseUrl, turnId, packets);
        const reader = seen[otherIds.indexOf(turnId)];
        if (reader) {
          expect(hexOf(encode(packets.slice(0, reader.packets.length)))).toBe(hexOf(encode(reader.packets)));
          expect(end(packets)).toEqual([TurnOutcome.INTERRUPTED, StopReason.OWNER_LOST]);
        }
      }
      if (point.crashAt !== "before_accept")
        expectCrashedTurn(point, wholes[ids.findIndex((turnId) => !otherIds.includes(turnId))]!);
      expect(pages.requests).toBeLessThanOrEqual(1);
      await expectSendAgain(again, point);
    },
    60_000,
  );
});

/** The turn that was at the point: committed ones keep their end, others are interrupted; calls are told truthfully. */
function expectCrashedTurn(point: Point, packets: readonly Packet[]): void {
  // All lanes had ended before the commit: nothing was lost, so nothing is interrupted.
  const committed = ["before_commit", "after_commit", "after_terminal"].includes(point.crashAt ?? "");
  expect(end(packets)).toEqual(
    committed
      ? [TurnOutcome.COMPLETED, StopReason.UNSPECIFIED]
      : [TurnOutcome.INTERRUPTED, StopReason.OWNER_LOST],
  );
  const result = packets.find((packet) => packet.payload.case === "toolCallResult")?.payload;
  const status = result?.case === "toolCallResult" ? result.value.status : undefined;
  if (point.name === "call announced") expect(status).not.toBe(ToolCallStatus.OK);
  if (point.name === "tool running") expect(status).toBe(ToolCallStatus.UNKNOWN_OUTCOME);
  if (point.name === "result stored but not shown") expect(status).toBe(ToolCallStatus.OK);
}

/** A client that repeats its send gets the same turn; after a crash before the accept it gets a new one that runs. */
async function expectSendAgain(client: ChatClient, point: Point): Promise<void> {
  const reply = await client.sendMessageAndWait(
    { text: "CRASH", requestId: "crash-1", models: [{ modelId: MODEL }] },
    { timeoutMs: 20_000 },
  );
  expect(reply.state!.stop).toBeDefined();
  if (point.crashAt === "before_accept") expect(reply.text).toContain("after the restart");
}

function end(packets: readonly Packet[]): unknown[] {
  const last = packets.at(-1)!.payload;
  return last.case === "overallStop" ? [last.value.outcome, last.value.stopReason] : [last.case];
}

function encode(packets: readonly Packet[]): Uint8Array[] {
  return packets.map((packet) => toBinary(PacketSchema, packet));
}

/** Follows a turn until its stream ends, however it ends. */
function collect(client: ChatClient, turnId: string) {
  const packets: Packet[] = [];
  let wake: (() => void) | undefined;
  const ended = (async () => {
    try {
      for await (const response of client.resumeTurn({ turnId }, { timeoutMs: 60_000 })) {
        packets.push(...response.packets.filter((packet) => packet.seq > 0));
        wake?.();
      }
    } catch {
      // the process was killed: what arrived until then counts
    }
  })();
  const reached = async (count: number): Promise<void> => {
    while (packets.length < count) await new Promise<void>((resolve) => (wake = resolve));
  };
  return { packets, ended, reached };
}

async function within<T>(promise: Promise<T>, ms: number, failure: string): Promise<T> {
  const timer = new AbortController();
  const late = delay(ms, undefined, { signal: timer.signal }).then(() => {
    throw new Error(failure);
  });
  late.catch(() => undefined);
  return Promise.race([promise, late]).finally(() => timer.abort());
}

/** Others stop in their answers for ever; the marked turn reasons, calls open_url, answers, and stops where its point is. */
function script(request: RecordedRequest, pageUrl: string, point: Point): Script {
  if (!request.body.includes("CRASH"))
    return [
      ...reasoningChunks("thinking about it"),
      ...textChunks("some words of an answer "),
      gate("never"),
    ];
  const stop = (name: string): Script =>
    point.killWhen && point.name !== "tool running" ? [gate(`CRASH-${name}`)] : [];
  const at = (name: string, where: string): Script => (point.name === where ? stop(name) : []);
  if (hasToolResult(request))
    return [
      ...textChunks("the page says this"),
      ...at("answer", "in the answer"),
      ...textChunks(" and that"),
      ...finishChunks("stop"),
    ];
  return [
    ...at("first", "waiting for the first token"),
    ...reasoningChunks("let me open the page"),
    ...at("reasoning", "in the reasoning"),
    ...toolCallChunks({ id: "call_1", name: "open_url", args: { urls: [pageUrl] } }),
    ...at("call", "call announced"),
    ...finishChunks("tool_calls"),
  ];
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

/** The three services as processes of their own: a turn through them, peers that die and come back, readiness, shutdown. */
import { Code, ConnectError } from "@connectrpc/connect";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { LlmProxyService } from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ErrorCode, StopReason, TurnOutcome } from "../../gen/turnwire/packet/v1/common_pb.js";
import type { Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import { ToolCallStatus } from "../../gen/turnwire/packet/v1/tools_pb.js";
import { ToolService } from "../../gen/turnwire/tool/v1/tool_service_pb.js";
import { TurnError } from "../../src/lib/errors.js";
import { silentLogger } from "../../src/lib/log.js";
import { createGrpcClient } from "../../src/lib/rpc/grpc-client.js";
import {
  chatClient,
  expectGrammar,
  expectRowsEqualFold,
  hasToolResult,
  MODEL,
  plainAnswer,
  readWhole,
  sixtyPackets,
  startWith,
  type ChatClient,
} from "../support/e2e-fixture.js";
import { freePorts } from "../support/free-ports.js";
import { startWebPages, type WebPages } from "../support/gated-pages.js";
import { usePostgres } from "../support/postgres.js";
import {
  finishChunks,
  gate,
  never,
  startScriptedUpstream,
  textChunks,
  toolCallScript,
  type ScriptedUpstream,
} from "../support/scripted-upstream.js";
import {
  askDoors,
  askNative,
  NOT_READY,
  programOf,
  READY,
  startService,
} from "../support/service-processes.js";
import { makeDataDir, removeDataDir, type TurnwireProcess } from "../support/turnwire-process.js";

const postgres = usePostgres();
const PEER_TOKEN = "peer-secret-3b1f";
const models = [{ modelId: MODEL }];

describe("three processes", () => {
  let upstream: ScriptedUpstream;
  let pages: WebPages;
  let ports: number[];
  let llm: TurnwireProcess;
  let tool: TurnwireProcess;
  let chat: TurnwireProcess;
  let client: ChatClient;
  let databaseUrl: string;
  const dataDir = makeDataDir();
  const peerDir = makeDataDir();

  beforeAll(async () => {
    databaseUrl = await postgres.createDatabase();
    upstream = await startScriptedUpstream();
    pages = await startWebPages(peerDir);
    ports = await freePorts(2);
    [llm, tool] = await Promise.all([startLlm(), startTool()]);
    chat = await startWith(upstream, {
      dataDir,
      databaseUrl,
      program: [programOf("chat")],
      env: {
        TURNWIRE_PEER_TOKEN: PEER_TOKEN,
        TURNWIRE_LLM_ADDR: `127.0.0.1:${ports[0]}`,
        TURNWIRE_TOOL_ADDR: `127.0.0.1:${ports[1]}`,
      },
    });
    client = chatClient(chat);
  });
  afterAll(async () => {
    await chat?.stop();
    await Promise.all([llm?.stop(), tool?.stop()]);
    await upstream?.close();
    await pages?.close();
    removeDataDir(dataDir);
    removeDataDir(peerDir);
  });

  const startLlm = (): Promise<TurnwireProcess> =>
    startService("llm", {
      dataDir: peerDir,
      env: {
        TURNWIRE_LLM_PORT: String(ports[0]),
        TURNWIRE_PEER_TOKEN: PEER_TOKEN,
        OPENAI_BASE_URL: upstream.url,
        OPENAI_API_KEY: "sk-test-canary-0123456789",
      },
    });
  const startTool = (): Promise<TurnwireProcess> =>
    startService("tool", {
      dataDir: peerDir,
      env: {
        TURNWIRE_TOOL_PORT: String(ports[1]),
        TURNWIRE_PEER_TOKEN: PEER_TOKEN,
        TURNWIRE_CONFIG: pages.configFile,
      },
    });

  test("a turn with a tool goes through them", async () => {
    upstream.replyWith(sixtyPackets);
    expect(await askDoors(chat)).toEqual(READY);
    const reply = await client.sendMessageAndWait({ text: "What time is it in Paris?", models });
    const packets = await readWhole(client, reply.turnId);
    expectGrammar(packets);
    const state = await expectRowsEqualFold(databaseUrl, reply.turnId, packets);
    expect(state.stop!.outcome).toBe(TurnOutcome.COMPLETED);
    expect(upstream.requests.at(-1)!.headers.authorization).toBe("Bearer sk-test-canary-0123456789");
  });

  test("the peers answer nobody without their token, and say to everybody that they serve", async () => {
    for (const token of [undefined, "", "wrong", PEER_TOKEN.slice(1)]) {
      const signal = AbortSignal.timeout(10_000);
      const models = createGrpcClient(LlmProxyService, {
        addresses: addressOf(0),
        token,
        logger: silentLogger,
      });
      const tools = createGrpcClient(ToolService, { addresses: addressOf(1), token, logger: silentLogger });
      const refused = { code: ErrorCode.UNAUTHENTICATED };
      await expect(models.unary("listModels", {}, { signal })).rejects.toMatchObject(refused);
      await expect(tools.unary("listTools", {}, { signal })).rejects.toMatchObject(refused);
      await expect(
        tools
          .serverStream("executeTool", { callId: "c", toolId: "clock", argumentsJson: "{}" }, { signal })
          .next(),
      ).rejects.toMatchObject(refused);
      models.close();
      tools.close();
    }
    expect(await askNative(addressOf(0), LlmProxyService.typeName)).toBe("SERVING");
    expect(await askNative(addressOf(1), ToolService.typeName)).toBe("SERVING");
  });

  const addressOf = (index: number): string => `127.0.0.1:${ports[index]}`;

  test("the llm peer dies in an answer: a typed error, the partial answer is kept; not ready until it is back", async () => {
    upstream.replyWith(() => [...textChunks("the first half"), gate("llm-dies"), never]);
    const { receipt } = await client.startTurn({ text: "go on", models, requestId: "before-the-kill" });
    const { turnId } = receipt!;
    await upstream.reached("llm-dies");
    await expect.poll(() => textOf(client, turnId), PATIENT).toBe("the first half");
    await llm.kill9();
    const packets = await readWhole(client, turnId);
    expectGrammar(packets);
    const state = await expectRowsEqualFold(databaseUrl, turnId, packets);
    expect(state.lanes[0]!.text).toBe("the first half");
    expect(state.stop!.outcome).toBe(TurnOutcome.ERROR);
    expect(state.lanes[0]!.end!.error).toMatchObject({ code: ErrorCode.UNAVAILABLE, retryable: true });

    await expect.poll(() => askDoors(chat), PATIENT).toEqual(NOT_READY);
    // What was accepted is there, whoever is away; what is new is refused by type.
    const again = await client.startTurn({ text: "go on", models, requestId: "before-the-kill" });
    expect(again.receipt!.turnId).toBe(turnId);
    const refused = await failureOf(client.startTurn({ text: "anybody there?", models }));
    expect(refused.code).toBe(Code.Unavailable);
    expect(refused.rawMessage).toContain("LlmProxyService");

    llm = await startLlm();
    await expect.poll(() => askDoors(chat), PATIENT).toEqual(READY);
    upstream.replyWith(() => plainAnswer("back again"));
    const reply = await client.sendMessageAndWait({ text: "and now?", models }, { timeoutMs: 30_000 });
    expect(reply.text).toBe("back again");
  }, 60_000);

  test("the tool peer dies in a call: the call has its result, the model goes on; not ready until it is back", async () => {
    pages.hold();
    upstream.replyWith((request) =>
      hasToolResult(request)
        ? plainAnswer("I could not open it.")
        : toolCallScript({ id: "call_1", name: "open_url", args: { urls: [pages.url] } }),
    );
    const { receipt } = await client.startTurn({ text: "open it", models });
    await pages.requested;
    await tool.kill9();
    const packets = await readWhole(client, receipt!.turnId);
    expectGrammar(packets);
    const state = await expectRowsEqualFold(databaseUrl, receipt!.turnId, packets);
    expect(state.stop!.outcome).toBe(TurnOutcome.COMPLETED);
    expect(state.lanes[0]!.text).toBe("I could not open it.");
    const results = packets.flatMap(({ payload }) =>
      payload.case === "toolCallResult" ? [payload.value] : [],
    );
    expect(results.length).toBe(1);
    expect([ToolCallStatus.ERROR, ToolCallStatus.UNKNOWN_OUTCOME]).toContain(results[0]!.status);
    const told = upstream.requests.at(-1)!.json!.messages!.at(-1)!["content"];
    expect(told).toBe(results[0]!.modelText);
    expect(results[0]!.modelText).toContain("connection");
    expect(pages.requests).toBe(1);

    await expect.poll(() => askDoors(chat), PATIENT).toEqual(NOT_READY);
    tool = await startTool();
    await expect.poll(() => askDoors(chat), PATIENT).toEqual(READY);
    upstream.replyWith(sixtyPackets);
    const reply = await client.sendMessageAndWait(
      { text: "what time is it?", models },
      { timeoutMs: 30_000 },
    );
    expect(reply.state!.stop!.outcome).toBe(TurnOutcome.COMPLETED);
  }, 60_000);

  test("SIGTERM of a peer lets its open call finish", async () => {
    upstream.replyWith(() => [
      ...textChunks("one"),
      gate("peer-term"),
      ...textChunks(" two"),
      ...finishChunks("stop"),
    ]);
    const { receipt } = await client.startTurn({ text: "slowly", models });
    await upstream.reached("peer-term");
    const stopping = llm.stop();
    await expect.poll(() => llm.output(), PATIENT).toContain("stopping");
    upstream.open("peer-term");
    const packets = await readWhole(client, receipt!.turnId);
    expect(endOf(packets)).toEqual([TurnOutcome.COMPLETED, StopReason.UNSPECIFIED]);
    await stopping;
    expect(await llm.exited).toBe(0);
    llm = await startLlm();
    await expect.poll(() => askDoors(chat), PATIENT).toEqual(READY);
  }, 60_000);

  test("no secret is in what any of them wrote", () => {
    for (const service of [chat, llm, tool]) {
      for (const secret of [PEER_TOKEN, "sk-test-canary"]) expect(service.output()).not.toContain(secret);
    }
  });
});

describe("SIGTERM of the server", () => {
  let upstream: ScriptedUpstream;
  let server: TurnwireProcess | undefined;
  let databaseUrl: string;
  const dataDir = makeDataDir();

  beforeAll(async () => {
    databaseUrl = await postgres.createDatabase();
    upstream = await startScriptedUpstream();
  });
  afterEach(async () => {
    await server?.kill9();
    server = undefined;
  });
  afterAll(async () => {
    await upstream?.close();
    removeDataDir(dataDir);
  });

  const start = (env: Record<string, string>): Promise<TurnwireProcess> =>
    startWith(upstream, { dataDir, databaseUrl, env });

  /** Sends the signal; resolves with the exit code and the time it took. */
  async function terminate(process: TurnwireProcess): Promise<{ code: unknown; tookMs: number }> {
    const at = performance.now();
    await process.stop();
    return { code: await process.exited, tookMs: performance.now() - at };
  }

  test("with nothing to do: at once, exit code 0", async () => {
    server = await start({});
    const { code, tookMs } = await terminate(server);
    expect(code).toBe(0);
    expect(tookMs).toBeLessThan(10_000);
  });

  test("with a turn that ends in time: its readers get all of it", async () => {
    upstream.replyWith(() => [
      ...textChunks("nearly"),
      gate("drain"),
      ...textChunks(" done"),
      ...finishChunks("stop"),
    ]);
    server = await start({ TURNWIRE_DRAIN_MS: "20000" });
    const client = chatClient(server);
    const { receipt } = await client.startTurn({ text: "slowly", models });
    const reading = readWhole(client, receipt!.turnId);
    await upstream.reached("drain");
    await expect.poll(() => textOf(client, receipt!.turnId), PATIENT).toBe("nearly");
    const stopped = terminate(server);
    await expect.poll(() => server!.output(), PATIENT).toContain("stopping");
    await expect(fetch(`${server.httpUrl}/healthz`)).rejects.toThrow(); // takes no more
    upstream.open("drain");
    const packets = await reading;
    expectGrammar(packets);
    expect(endOf(packets)).toEqual([TurnOutcome.COMPLETED, StopReason.UNSPECIFIED]);
    const { code, tookMs } = await stopped;
    expect(code).toBe(0);
    expect(tookMs).toBeLessThan(15_000);
  });

  test("with a turn that goes on: it ends as interrupted, its readers are told, the model call is closed", async () => {
    upstream.replyWith(() => [...textChunks("no end in sight"), gate("endless"), never]);
    server = await start({ TURNWIRE_DRAIN_MS: "1500" });
    const client = chatClient(server);
    const count = upstream.requests.length + 1;
    const { receipt } = await client.startTurn({ text: "for ever", models });
    const { turnId } = receipt!;
    const reading = readWhole(client, turnId);
    const request = await upstream.waitForRequest(count);
    await upstream.reached("endless");
    await expect.poll(() => textOf(client, turnId), PATIENT).toBe("no end in sight");
    const { code, tookMs } = await terminate(server);
    expect(code).toBe(0);
    expect(tookMs).toBeGreaterThan(1_400);
    expect(tookMs).toBeLessThan(15_000);
    const packets = await reading;
    expectGrammar(packets);
    expect(endOf(packets)).toEqual([TurnOutcome.INTERRUPTED, StopReason.OWNER_LOST]);
    await expectRowsEqualFold(databaseUrl, turnId, packets);
    await request.closed;
    expect(request.closedByClient).toBe(true);

    server = await start({});
    const again = await readWhole(chatClient(server), turnId);
    expect(again).toEqual(packets);
  });

  test("before it is ready: at once, exit code 0", async () => {
    const [llmPort, toolPort] = await freePorts(2);
    const waiting = startWith(upstream, {
      dataDir,
      databaseUrl,
      program: [programOf("chat")],
      env: { TURNWIRE_LLM_ADDR: `127.0.0.1:${llmPort}`, TURNWIRE_TOOL_ADDR: `127.0.0.1:${toolPort}` },
      onOutput(text, child) {
        if (text.includes("not ready")) child.kill("SIGTERM");
      },
    });
    await expect(waiting).rejects.toThrow(/ended with 0 before it was ready/);
  });
});

const PATIENT = { timeout: 20_000, interval: 50 };

async function textOf(client: ChatClient, turnId: string): Promise<string | undefined> {
  return (await client.getTurn({ turnId })).state!.lanes[0]?.text;
}

async function failureOf(promise: Promise<unknown>): Promise<ConnectError> {
  return promise.then(
    () => {
      throw new TurnError(ErrorCode.INTERNAL, { message: "it should have failed" });
    },
    (thrown: unknown) => ConnectError.from(thrown),
  );
}

function endOf(packets: readonly Packet[]): unknown[] {
  const last = packets.at(-1)!.payload;
  return last.case === "overallStop" ? [last.value.outcome, last.value.stopReason] : [last.case];
}

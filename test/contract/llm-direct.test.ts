/** A caller's own connection through the llm peer, over real gRPC: its request is built, its relayed response decoded. */
import { create } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  DecodeCompletionRequestSchema,
  LlmProxyService,
  PrepareCompletionRequestSchema,
  Role,
  type CompletionDelta,
  type DecodeCompletionRequest,
} from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { silentLogger } from "../../src/lib/log.js";
import { createGrpcClient, type GrpcClient } from "../../src/lib/rpc/grpc-client.js";
import { serveGrpc, type GrpcServer } from "../../src/lib/rpc/grpc-server.js";
import { HealthState } from "../../src/lib/rpc/health.js";
import { deferred } from "../../src/lib/signals.js";
import { decodeCompletion } from "../../src/llm/direct.js";
import { loadLlmConfig } from "../../src/llm/load-config.js";
import { createLlmService, type LlmService } from "../../src/llm/service.js";
import { foldDeltas, type CompletionResult } from "../support/completion-result.js";
import { cutAt } from "../support/cut-bodies.js";
import { llmConfig, startLlmPeer, type LlmPeer } from "../support/llm-peer.js";
import { ManualClock } from "../support/manual-clock.js";
import { corpusCases, testDataDir } from "../support/test-data.js";

const config = loadLlmConfig({});
const clock = new ManualClock();
const never = new AbortController().signal;
let service: LlmService;
let server: GrpcServer;
let client: GrpcClient<typeof LlmProxyService>;

beforeAll(async () => {
  service = createLlmService({ config, clock, logger: silentLogger });
  server = await serveGrpc({
    host: "127.0.0.1",
    port: 0,
    services: [service],
    authenticate: () => ({ tenantId: "local", userId: "local", admin: true }),
    health: new HealthState(),
    logger: silentLogger,
  });
  client = createGrpcClient(LlmProxyService, {
    addresses: `127.0.0.1:${server.port}`,
    logger: silentLogger,
  });
});
afterAll(async () => {
  client.close();
  await server.close(0);
  await service.close();
});

type Frame = DecodeCompletionRequest["frame"];
type FrameInit = { readonly case: "start" | "chunk" | "end"; readonly value: object };

const frame = (init: FrameInit): DecodeCompletionRequest =>
  create(DecodeCompletionRequestSchema, { frame: init as Frame });

const start = (fields: object = {}): DecodeCompletionRequest =>
  frame({
    case: "start",
    value: {
      api: "openai-chat",
      input: { modelId: "m" },
      httpStatus: 200,
      contentType: "text/event-stream",
      ...fields,
    },
  });
const chunk = (bytes: string | Uint8Array): DecodeCompletionRequest =>
  frame({ case: "chunk", value: typeof bytes === "string" ? Buffer.from(bytes) : bytes });
const end = (fields: object = {}): DecodeCompletionRequest => frame({ case: "end", value: fields });

async function deltasOf(
  frames: AsyncIterable<DecodeCompletionRequest> | Iterable<DecodeCompletionRequest>,
): Promise<CompletionDelta[]> {
  const deltas: CompletionDelta[] = [];
  for await (const response of client.bidiStream("decodeCompletion", each(frames), { signal: never }))
    deltas.push(...response.deltas);
  return deltas;
}

async function* each<T>(items: AsyncIterable<T> | Iterable<T>): AsyncGenerator<T> {
  yield* items;
}

const decode = async (...frames: DecodeCompletionRequest[]): Promise<CompletionResult> =>
  foldDeltas(await deltasOf(frames));

const text = (content: string): string => `data: {"choices":[{"delta":{"content":"${content}"}}]}\n\n`;
const STOP = `data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n`;

describe("relayed responses", () => {
  test("a stream, cut anywhere - the attempt, the model, the deltas, the finish", async () => {
    const body = Buffer.from(text("h\u00e9") + text("llo") + STOP);
    const pieces = cutAt(body, [1, 40, 42, 90]).map(chunk);
    const deltas = await deltasOf([start(), ...pieces, end()]);
    expect(deltas.map(({ delta }) => delta.case)).toEqual([
      ...["attemptStarted", "modelSelected", "content", "content", "finish"],
    ]);
    expect(foldDeltas(deltas)).toMatchObject({ text: "h\u00e9llo", finish: "stop", error: undefined });
  });

  test("a document, in two pieces", async () => {
    const body = `{"choices":[{"message":{"content":"hello"},"finish_reason":"stop"}]}`;
    const pieces = [chunk(body.slice(0, 9)), chunk(body.slice(9))];
    const got = await decode(start({ contentType: "application/json" }), ...pieces, end());
    expect(got).toMatchObject({ text: "hello", finish: "stop" });
  });

  test("the end mark ends the stream, though the caller would relay on", async () => {
    const relayed = deferred();
    async function* frames(): AsyncGenerator<DecodeCompletionRequest> {
      yield start();
      yield chunk(`${text("a")}${STOP}data: [DONE]\n\n`);
      await relayed.promise; // never before the answer is over
    }
    expect(foldDeltas(await deltasOf(frames()))).toMatchObject({ text: "a", finish: "stop" });
    relayed.resolve();
  });

  test.each([
    ["cut off, says the caller", [chunk(text("a")), end({ truncated: true })], "UPSTREAM_TRUNCATED", "a"],
    ["the end without the answer's end", [chunk(text("a")), end()], "UPSTREAM_TRUNCATED", "a"],
    ["no end at all", [chunk(text("a"))], "UPSTREAM_TRUNCATED", "a"],
    ["nothing", [end()], "UPSTREAM_TRUNCATED", ""],
    ["an error inside", [chunk(`data: {"error":{"message":"no","code":429}}\n\n`), end()], "RATE_LIMIT", ""],
  ] as const)("%s - an error after what came", async (_, frames, code, kept) => {
    expect(await decode(start(), ...frames)).toMatchObject({
      text: kept,
      finish: undefined,
      error: { code },
    });
  });

  test("what the connection reported - shown without what must not leave", async () => {
    const got = await decode(
      start(),
      end({ error: "net::ERR_FAILED at https://10.0.0.1/v1?key=sk-abcdefabcdef123456" }),
    );
    expect(got.error?.message).toContain("net::ERR_FAILED at [address]");
  });

  test("cut off after the answer's end - a clean end", async () => {
    expect(await decode(start(), chunk(text("a") + STOP), end({ truncated: true }))).toMatchObject({
      finish: "stop",
      error: undefined,
    });
  });

  test.each([
    [
      "a refusal with a body",
      { httpStatus: 401 },
      `{"error":{"message":"bad key"}}`,
      "UPSTREAM_AUTH",
      /bad key/,
    ],
    [
      "a refusal that is a page",
      { httpStatus: 502, contentType: "text/html" },
      "<p>",
      "UPSTREAM_UNAVAILABLE",
      /./,
    ],
    ["an endless refusal", { httpStatus: 500 }, "x".repeat(200_000), "UPSTREAM_UNAVAILABLE", /./],
    ["a page", { contentType: "text/html; charset=utf-8" }, "<p>", "UPSTREAM_MALFORMED", /web page/],
  ] as const)("%s - its typed error", async (_, fields, body, code, message) => {
    const got = await decode(start(fields), chunk(body), end());
    expect(got.error).toMatchObject({ code, message: expect.stringMatching(message) as string });
  });

  test.each([
    ["no start", [chunk("a")], "frame"],
    ["two starts", [start(), start()], "frame"],
    ["a dialect nobody knows", [start({ api: "smoke-signals" })], "start.api"],
  ])("%s - refused, naming the field", async (_, frames, field) => {
    await expect(deltasOf(frames)).rejects.toMatchObject({
      code: ErrorCode.INVALID_ARGUMENT,
      details: { field },
    });
  });
});

describe("relayed responses - reasoning in the text", () => {
  const answer = "<plan>hm</plan>ok";
  const configured = llmConfig(`
providers: [{ name: p, api: openai-chat, baseUrl: "http://127.0.0.1:1", models: [plain, { id: tagged, upstreamModel: org/tagged, aliases: [tg], thinkTags: [plan] }] }]`);
  let peer: LlmPeer;
  beforeAll(async () => {
    peer = await startLlmPeer(configured);
  });
  afterAll(() => peer.close());

  test.each([
    ["a configured model", "tagged", answer, "hm", "ok"],
    ["its alias", "tg", answer, "hm", "ok"],
    ["its provider's name", "org/tagged", answer, "hm", "ok"],
    ["a configured model without tags", "plain", "<think>hm</think>ok", "", "<think>hm</think>ok"],
    ["a model that nobody configured - the usual tags", "theirs", "<think>hm</think>ok", "hm", "ok"],
    ["a model that nobody configured - no others", "theirs", answer, "", answer],
  ])("%s", async (_, modelId, said, reasoning, shown) => {
    const frames = each([start({ input: { modelId } }), chunk(text(said) + STOP), end()]);
    const deltas: CompletionDelta[] = [];
    for await (const response of peer.client.bidiStream("decodeCompletion", frames, { signal: never }))
      deltas.push(...response.deltas);
    expect(foldDeltas(deltas)).toMatchObject({ reasoning, text: shown, finish: "stop" });
  });
});

describe("relayed responses - time and size", () => {
  const limits = {
    ...config.limits,
    firstTokenTimeoutMs: 5_000,
    stallTimeoutMs: 1_000,
    totalTimeoutMs: 60_000,
    maxResponseBytes: 5_000,
  };

  /** Decodes what is pushed by hand. */
  function decodeByHand(signal = never) {
    const manual = new ManualClock();
    const queue: (() => Promise<DecodeCompletionRequest>)[] = [];
    const requested: (() => void)[] = [];
    async function* frames(): AsyncGenerator<DecodeCompletionRequest> {
      for (;;) {
        if (queue.length === 0) await new Promise<void>((resolve) => requested.push(resolve));
        yield await queue.shift()!();
      }
    }
    const responses = decodeCompletion(frames(), {
      ...{ limits, clock: manual, signal },
      configuredModel: () => undefined,
    });
    return {
      manual,
      responses,
      push(next: DecodeCompletionRequest) {
        queue.push(() => Promise.resolve(next));
        requested.shift()?.();
      },
    };
  }

  async function restOf(responses: ReturnType<typeof decodeByHand>["responses"]): Promise<CompletionResult> {
    const deltas: CompletionDelta[] = [];
    for await (const each of responses) if (each.kind === "message") deltas.push(...each.message.deltas);
    return foldDeltas(deltas);
  }

  test("nothing after the start - given up after the time for the first token", async () => {
    const { manual, responses, push } = decodeByHand();
    push(start());
    await responses.next();
    const waits = manual.sleepBegins(5_000);
    const rest = restOf(responses);
    await waits;
    manual.advance(4_999);
    expect(manual.sleeping).toBe(2); // the first token, and the whole call
    manual.advance(1);
    expect(await rest).toMatchObject({ error: { code: "UPSTREAM_STALLED" } });
    expect(manual.sleeping).toBe(0);
  });

  test("frames that show nothing - the time for the first token goes on", async () => {
    const { manual, responses, push } = decodeByHand();
    push(start());
    await responses.next();
    const waits = manual.sleepBegins(5_000);
    const rest = restOf(responses);
    await waits;
    for (let sent = 0; sent < 5; sent++) {
      push(chunk(": still here\n\n"));
      for (let turn = 0; turn < 20; turn++) await Promise.resolve();
      manual.advance(1_000);
    }
    expect(await rest).toMatchObject({ error: { code: "UPSTREAM_STALLED" }, text: "" });
  });

  test("an answer that drips on and on - given up when the time of the whole call is up, what came is kept", async () => {
    const { manual, responses, push } = decodeByHand();
    push(start());
    await responses.next();
    const kinds: unknown[] = [];
    for (;;) {
      push(chunk(`data: {"choices":[{"delta":{"content":"a"}}]}\n\n`));
      const next = await responses.next();
      if (next.done) break;
      if (next.value.kind !== "message") continue;
      kinds.push(...next.value.message.deltas.map(({ delta }) => delta));
      manual.advance(999);
    }
    expect(kinds.at(-1)).toMatchObject({ case: "error", value: { code: ErrorCode.DEADLINE_EXCEEDED } });
    expect(kinds).toHaveLength(61 + 1);
    expect(manual.sleeping).toBe(0);
  });

  test("silence in the answer - given up after the time between parts, what came is kept", async () => {
    const { manual, responses, push } = decodeByHand();
    push(start());
    await responses.next();
    push(chunk(text("a")));
    const first = await responses.next();
    expect(first.value).toMatchObject({ message: { deltas: [{ delta: { case: "content" } }] } });
    const waits = manual.sleepBegins(1_000);
    const rest = restOf(responses);
    await waits;
    manual.advance(1_000);
    expect(await rest).toMatchObject({ error: { code: "UPSTREAM_STALLED" } });
  });

  test("no start - given up", async () => {
    const { manual, responses } = decodeByHand();
    const first = responses.next();
    first.catch(() => undefined);
    manual.advance(10_000);
    await expect(first).rejects.toMatchObject({ code: ErrorCode.UPSTREAM_STALLED });
  });

  test("the caller leaves - its reason is thrown at once", async () => {
    const caller = new AbortController();
    const { responses, push } = decodeByHand(caller.signal);
    push(start());
    await responses.next();
    const next = responses.next();
    caller.abort(new Error("left"));
    await expect(next).rejects.toThrow("left");
  });

  test("an answer that is too large - an error, what came is kept", async () => {
    const { responses, push } = decodeByHand();
    push(start());
    for (let count = 0; count < 100; count++) push(chunk(text("x".repeat(50))));
    const got = await restOf(responses);
    expect(got.error?.code).toBe("SIZE_LIMIT");
    expect(got.text.length).toBeGreaterThan(300);
  });
});

describe("prepared requests", () => {
  const prepare = (api: string, input: object = {}) =>
    client.unary(
      "prepareCompletion",
      create(PrepareCompletionRequestSchema, {
        api,
        input: {
          modelId: "m",
          messages: [{ role: Role.USER, parts: [{ part: { case: "text", value: "hi" } }] }],
          ...input,
        },
      }),
      { signal: never },
    );

  test("a dialect - path, headers without keys, body, what it does not take", async () => {
    const prepared = await prepare("openai-chat");
    expect(prepared.path).toBe("/chat/completions");
    expect(prepared.headers).toEqual({
      "content-type": "application/json",
      accept: "text/event-stream, application/json",
    });
    expect(JSON.parse(prepared.bodyJson)).toMatchObject({
      model: "m",
      messages: [{ role: "user", content: "hi" }],
      stream: true,
    });
  });

  test("a vendor of OpenAI chat by its name - its quirks hold", async () => {
    const prepared = await prepare("mistral", { sampling: { seed: "1" }, reasoningEffort: 4 });
    expect(JSON.parse(prepared.bodyJson)).toMatchObject({ random_seed: 1 });
    expect(prepared.droppedParameters).toEqual(["reasoning_effort"]);
  });

  test.each([
    "anthropic-messages",
    "gemini",
    "ollama-chat",
    "cohere-v2",
    "openai-responses",
    "bedrock-converse",
  ])("%s is prepared", async (api) => {
    const prepared = await prepare(api, { sampling: { maxOutputTokens: 5 } });
    expect(prepared.path).toMatch(/^\//);
    expect(prepared.bodyJson).toContain("hi");
  });

  test("a dialect nobody knows - refused, naming the field", async () => {
    await expect(prepare("smoke-signals")).rejects.toMatchObject({ details: { field: "api" } });
  });
});

/** The names of the test data for our dialects. */
const APIS: Readonly<Record<string, string>> = {
  "openai-chat": "openai-chat",
  "anthropic-messages": "anthropic-messages",
  "ollama-chat": "ollama-chat",
  "gemini-generate": "gemini",
  "bedrock-converse-stream": "bedrock-converse",
};

const dir = testDataDir();
describe.skipIf(!dir)("relayed recordings", () => {
  for (const [name, api] of Object.entries(APIS)) {
    test(`${name} - the text and the calls of each`, async () => {
      const bodies = (dir ? corpusCases(dir) : []).filter(
        ({ api, body }) => api === name && body.length < 100_000,
      );
      for (const { name: file, body, contentType, want } of bodies) {
        const half = body.length >> 1;
        const got = await decode(
          start({ api, contentType }),
          ...cutAt(body, [half]).map(chunk),
          end({ truncated: want.error !== null }),
        );
        expect([file, got.text, got.toolCalls.filter(({ complete }) => complete).length]).toEqual([
          ...[file, want.text],
          want.tool_calls.length,
        ]);
      }
      expect(bodies.length).toBeGreaterThan(3);
    });
  }
});

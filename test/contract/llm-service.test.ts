/**
 * The llm peer as its callers see it: real gRPC, real HTTP to a scripted upstream. Faults of the upstream, the requests
 * that go out, cancellation down to the socket, the models that are listed.
 */
import { create } from "@bufbuild/protobuf";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import {
  ListModelsRequestSchema,
  LlmProxyService,
  Role,
  StreamCompletionRequestSchema,
  ToolChoiceMode,
  type CompletionDelta,
} from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { systemClock } from "../../src/lib/clock.js";
import { silentLogger } from "../../src/lib/log.js";
import { createGrpcClient, type GrpcClient } from "../../src/lib/rpc/grpc-client.js";
import { serveGrpc, type GrpcServer } from "../../src/lib/rpc/grpc-server.js";
import { HealthState } from "../../src/lib/rpc/health.js";
import type { LlmConfig } from "../../src/llm/config.js";
import { loadLlmConfig } from "../../src/llm/load-config.js";
import { createLlmService, type LlmService } from "../../src/llm/service.js";
import { foldDeltas, type CompletionResult } from "../support/completion-result.js";
import {
  answerScript,
  chunk,
  deltaChunk,
  destroySocket,
  done,
  end,
  finishChunks,
  gate,
  never,
  reasoningChunks,
  send,
  sendByteByByte,
  startScriptedUpstream,
  status,
  textChunks,
  toolCallScript,
  type Script,
  type ScriptedUpstream,
} from "../support/scripted-upstream.js";

const KEY = "sk-test-0123456789abcdef";

interface Peer {
  readonly client: GrpcClient<typeof LlmProxyService>;
  close(): Promise<void>;
}

async function startPeer(config: LlmConfig): Promise<Peer> {
  const service: LlmService = createLlmService({ config, clock: systemClock, logger: silentLogger });
  const server: GrpcServer = await serveGrpc({
    host: "127.0.0.1",
    port: 0,
    services: [service],
    authenticate: () => ({ tenantId: "local", userId: "local", admin: true }),
    health: new HealthState(),
    logger: silentLogger,
    maxReceiveBytes: 32 * 1024 * 1024,
  });
  const client = createGrpcClient(LlmProxyService, {
    addresses: `127.0.0.1:${server.port}`,
    logger: silentLogger,
  });
  return {
    client,
    async close() {
      client.close();
      await server.close(0);
      await service.close();
    },
  };
}

type RequestInit = Parameters<typeof create<typeof StreamCompletionRequestSchema>>[1] & object;

function request(
  input: object = {},
  rest: object = {},
): ReturnType<typeof create<typeof StreamCompletionRequestSchema>> {
  const init = {
    caller: { tenantId: "local", userId: "local" },
    input: {
      modelId: "scripted-model",
      messages: [{ role: Role.USER, parts: [{ part: { case: "text", value: "hello" } }] }],
      ...input,
    },
    ...rest,
  };
  return create(StreamCompletionRequestSchema, init as RequestInit);
}

async function collect(
  peer: Peer,
  message = request(),
  signal = new AbortController().signal,
): Promise<CompletionDelta[]> {
  const deltas: CompletionDelta[] = [];
  for await (const response of peer.client.serverStream("streamCompletion", message, { signal }))
    deltas.push(...response.deltas);
  return deltas;
}

const ask = async (peer: Peer, message = request()): Promise<CompletionResult> =>
  foldDeltas(await collect(peer, message));

let upstream: ScriptedUpstream;
let peer: Peer;

beforeAll(async () => {
  upstream = await startScriptedUpstream();
  peer = await startPeer(openAiConfig());
});
afterAll(async () => {
  await peer.close();
  await upstream.close();
});
afterEach(() => {
  upstream.replyWith(undefined);
  upstream.setModels(["scripted-model"]);
});

/** One attempt per call, however many failed before: what follows on a failure has suites of its own. */
function openAiConfig(): LlmConfig {
  const config = loadLlmConfig({ OPENAI_BASE_URL: upstream.url, OPENAI_API_KEY: KEY });
  const providers = config.providers.map((provider) =>
    provider.kind === "http" ? { ...provider, limits: { ...provider.limits, breakerFailures: 0 } } : provider,
  );
  return { ...config, providers, limits: { ...config.limits, maxRetries: 0 } };
}

/** Runs with a peer of its own, whose lists of models are fresh. */
async function withPeer(config: LlmConfig, use: (own: Peer) => Promise<void>): Promise<void> {
  const own = await startPeer(config);
  try {
    await use(own);
  } finally {
    await own.close();
  }
}

/** The last request the upstream saw. */
const lastRequest = () => {
  const recorded = upstream.requests.at(-1);
  if (!recorded) throw new Error("the upstream was not asked");
  return recorded;
};

describe("llm peer - an answer", () => {
  test("begins with the attempt and the model, ends with usage and finish", async () => {
    upstream.reply([
      ...reasoningChunks("let me think"),
      ...textChunks("Hello there."),
      ...finishChunks("stop"),
    ]);
    const deltas = await collect(peer);
    expect(deltas.slice(0, 2).map(({ delta }) => delta)).toMatchObject([
      { case: "attemptStarted", value: { attempt: 1, provider: "openai", upstreamModel: "scripted-model" } },
      { case: "modelSelected", value: { modelId: "scripted-model" } },
    ]);
    expect(deltas.slice(-2).map(({ delta }) => delta.case)).toEqual(["usage", "finish"]);
    expect(foldDeltas(deltas)).toMatchObject({
      text: "Hello there.",
      reasoning: "let me think",
      order: ["reasoning", "text"],
      finish: "stop",
      usage: { input: 10, output: 20 },
    });
  });

  test("tool calls come whole, in order", async () => {
    upstream.reply(
      toolCallScript(
        { id: "c1", name: "clock", args: {} },
        { id: "c2", name: "open_url", args: { urls: ["https://a.test"] } },
      ),
    );
    expect(await ask(peer)).toMatchObject({
      finish: "tool-calls",
      toolCalls: [
        { id: "c1", name: "clock", args: "{}", complete: true },
        { id: "c2", name: "open_url", args: `{"urls":["https://a.test"]}`, complete: true },
      ],
    });
  });

  test("what the request holds goes out, the key in its header only", async () => {
    upstream.reply(answerScript("ok"));
    await ask(
      peer,
      request({
        messages: [
          { role: Role.SYSTEM, parts: [{ part: { case: "text", value: "be brief" } }] },
          { role: Role.USER, parts: [{ part: { case: "text", value: "time?" } }] },
          {
            role: Role.ASSISTANT,
            parts: [
              { part: { case: "reasoning", value: "hm" } },
              { part: { case: "toolCall", value: { callId: "c1", name: "clock", argumentsJson: "{}" } } },
            ],
          },
          {
            role: Role.TOOL,
            parts: [{ part: { case: "toolResult", value: { callId: "c1", text: "noon" } } }],
          },
          { role: Role.REMINDER, parts: [{ part: { case: "text", value: "cite" } }] },
        ],
        tools: [{ name: "clock", description: "d", parametersJsonSchema: `{"type":"object"}`, strict: true }],
        toolChoice: { mode: ToolChoiceMode.ONE, toolName: "clock" },
        parallelToolCalls: false,
        sampling: {
          temperature: 0,
          topP: 0.5,
          maxOutputTokens: 7,
          seed: "42",
          stop: ["x"],
          presencePenalty: 1,
        },
        responseFormat: { name: "n", jsonSchema: `{"type":"object"}`, strict: true },
        providerOptionsJson: `{"top_k":3}`,
      }),
    );
    const recorded = lastRequest();
    expect(recorded.path).toBe("/v1/chat/completions");
    expect(recorded.headers.authorization).toBe(`Bearer ${KEY}`);
    expect(recorded.body).not.toContain(KEY);
    expect(recorded.json).toEqual({
      model: "scripted-model",
      stream: true,
      stream_options: { include_usage: true },
      messages: [
        { role: "system", content: "be brief" },
        { role: "user", content: "time?" },
        {
          role: "assistant",
          content: null,
          tool_calls: [{ id: "c1", type: "function", function: { name: "clock", arguments: "{}" } }],
        },
        { role: "tool", tool_call_id: "c1", content: "noon" },
        { role: "user", content: "cite" },
      ],
      tools: [
        {
          type: "function",
          function: { name: "clock", description: "d", parameters: { type: "object" }, strict: true },
        },
      ],
      tool_choice: { type: "function", function: { name: "clock" } },
      parallel_tool_calls: false,
      temperature: 0,
      top_p: 0.5,
      max_tokens: 7,
      seed: 42,
      stop: ["x"],
      presence_penalty: 1,
      response_format: {
        type: "json_schema",
        json_schema: { name: "n", schema: { type: "object" }, strict: true },
      },
      top_k: 3,
    });
  });

  test("a document instead of a stream gives the same deltas", async () => {
    const document = {
      id: "r",
      choices: [{ index: 0, message: { content: "whole" }, finish_reason: "stop" }],
    };
    upstream.reply([status(200), send(JSON.stringify(document))]);
    expect(await ask(peer)).toMatchObject({ text: "whole", finish: "stop" });
  });

  test("one byte at a time, deltas keep coming", async () => {
    const body = [...textChunks("slow but sure"), ...finishChunks("stop")];
    upstream.reply(
      body.flatMap((step) =>
        step.kind === "send" ? sendByteByByte(Buffer.from(step.bytes).toString()) : [step],
      ),
    );
    expect(await ask(peer)).toMatchObject({ text: "slow but sure", finish: "stop", warnings: [] });
  });

  test("a text of 300 KB in one event arrives whole, in messages of at most 64 KiB", async () => {
    const text = "\u{1f30d}word ".repeat(30_000);
    upstream.reply([deltaChunk({ content: text }), ...finishChunks("stop")]);
    const sizes: number[] = [];
    let got = "";
    for await (const response of peer.client.serverStream("streamCompletion", request(), {
      signal: new AbortController().signal,
    })) {
      sizes.push(
        response.deltas.reduce(
          (sum, { delta }) => sum + (delta.case === "content" ? Buffer.byteLength(delta.value.text) : 0),
          0,
        ),
      );
      got += foldDeltas(response.deltas).text;
    }
    expect(got).toBe(text);
    expect(Math.max(...sizes)).toBeLessThanOrEqual(64 * 1024);
  });

  test("fifty at once, each its own answer", async () => {
    upstream.replyWith(({ json }) => answerScript(`answer to ${String(json?.messages?.[0]?.["content"])}`));
    const texts = await Promise.all(
      Array.from({ length: 50 }, async (_, at) => {
        const messages = [{ role: Role.USER, parts: [{ part: { case: "text", value: `question ${at}` } }] }];
        return (await ask(peer, request({ messages }))).text;
      }),
    );
    expect(texts).toEqual(Array.from({ length: 50 }, (_, at) => `answer to question ${at}`));
  });

  test("the end mark ends it, though the upstream keeps the connection open", async () => {
    upstream.reply([...textChunks("done"), ...finishChunks("stop"), never]);
    expect(await ask(peer)).toMatchObject({ text: "done", finish: "stop" });
    await lastRequest().closed; // and the connection does not stay
  });

  test("connections are used again after an answer", async () => {
    upstream.replyWith(() => answerScript("x"));
    await ask(peer);
    const seen = Math.max(...upstream.requests.map(({ connection }) => connection));
    for (let round = 0; round < 5; round++) {
      await ask(peer);
      expect(lastRequest().connection).toBeLessThanOrEqual(seen);
    }
  });
});

describe("llm peer - a failing upstream", () => {
  const FAULTS: readonly {
    readonly name: string;
    readonly script: Script;
    readonly want: Partial<CompletionResult["error"] & object>;
    readonly text?: string;
  }[] = [
    {
      name: "reset before headers",
      script: [destroySocket],
      want: { code: "UPSTREAM_UNAVAILABLE", retryable: true },
    },
    {
      name: "reset in the answer",
      script: [...textChunks("a b"), destroySocket],
      text: "a b",
      want: { code: "UPSTREAM_TRUNCATED" },
    },
    {
      name: "cut off",
      script: [...textChunks("a b"), end],
      text: "a b",
      want: { code: "UPSTREAM_TRUNCATED" },
    },
    {
      name: "nothing under 200",
      script: [status(200, { "content-type": "text/event-stream" })],
      want: { code: "UPSTREAM_TRUNCATED" },
    },
    { name: "garbage", script: [send("data: }{\n\n")], want: { code: "UPSTREAM_MALFORMED" } },
    {
      name: "a web page",
      script: [status(200, { "content-type": "text/html" }), send("<html>hi</html>")],
      want: { code: "UPSTREAM_MALFORMED" },
    },
    {
      name: "500 with a web page",
      script: [status(500, { "content-type": "text/html" }), send("<html>secret stack</html>")],
      want: { code: "UPSTREAM_UNAVAILABLE", message: "the model provider is not available" },
    },
    {
      name: "401",
      script: [
        status(401),
        send(`{"error":{"message":"Incorrect API key provided: ${KEY}","code":"invalid_api_key"}}`),
      ],
      want: {
        code: "UPSTREAM_AUTH",
        message: "the model provider refused the configured key: Incorrect API key provided: [key]",
      },
    },
    {
      name: "404 of a model",
      script: [
        status(404),
        send(`{"error":{"message":"The model does not exist","code":"model_not_found"}}`),
      ],
      want: { code: "MODEL_NOT_FOUND" },
    },
    {
      name: "400 of a long context",
      script: [
        status(400),
        send(`{"error":{"message":"This model's maximum context length is 8192 tokens"}}`),
      ],
      want: { code: "CONTEXT_TOO_LONG", retryable: false },
    },
    {
      name: "422",
      script: [status(422), send(`{"detail":"bad value"}`)],
      want: { code: "UPSTREAM_REJECTED" },
    },
    {
      name: "503",
      script: [status(503), send(`{"error":"loading model"}`)],
      want: { code: "UPSTREAM_UNAVAILABLE", retryable: true },
    },
    {
      name: "307",
      script: [status(307, { location: "http://127.0.0.1:1/" })],
      want: { code: "UPSTREAM_REJECTED" },
    },
    {
      name: "an error in the stream",
      script: [...textChunks("a"), chunk({ error: { message: `bad ${KEY}`, code: 429 } }), done],
      text: "a",
      want: { code: "RATE_LIMIT", message: "the model provider limits the rate, try again later: bad [key]" },
    },
  ];
  for (const { name, script, want, text = "" } of FAULTS) {
    test(`${name} - a typed error last, what came before is kept`, async () => {
      upstream.reply(script);
      const deltas = await collect(peer);
      expect(deltas.at(-1)?.delta.case).toBe("error");
      expect(foldDeltas(deltas)).toMatchObject({ text, error: want, finish: undefined });
    });
  }

  test("429 - says how long to wait", async () => {
    upstream.reply([status(429, { "retry-after": "7" }), send("{}")]);
    const last = (await collect(peer)).at(-1)?.delta;
    expect(last).toMatchObject({
      case: "error",
      value: { code: ErrorCode.RATE_LIMIT, retryAfterMs: 7000, retryable: true },
    });
  });

  test("an endless line - refused at the limit", async () => {
    const config = openAiConfig();
    await withPeer({ ...config, limits: { ...config.limits, maxEventBytes: 100_000 } }, async (small) => {
      const line = send("x".repeat(10_000));
      upstream.reply([...textChunks("a"), send("data: "), ...Array.from({ length: 20 }, () => line), never]);
      expect(await ask(small)).toMatchObject({ text: "a", error: { code: "UPSTREAM_MALFORMED" } });
      await lastRequest().closed;
    });
  });

  test("nobody there - a typed error without the address", async () => {
    const gone = await startScriptedUpstream();
    await gone.close();
    await withPeer(loadLlmConfig({ OPENAI_BASE_URL: gone.url }), async (lonely) => {
      const message = "the model provider is not available: connection refused";
      expect((await ask(lonely)).error).toMatchObject({ code: "UPSTREAM_UNAVAILABLE", message });
    });
  });

  test("no first token - stalled after the request's own timeout, the socket closes", async () => {
    upstream.reply([deltaChunk({ role: "assistant", content: "" }), send(": wait\n\n"), never]);
    const result = await ask(
      peer,
      request({}, { firstTokenTimeout: durationFromMs(100), stallTimeout: durationFromMs(60_000) }),
    );
    expect(result.error).toMatchObject({ code: "UPSTREAM_STALLED", retryable: true });
    await lastRequest().closed;
  });

  test("a stall in the answer - text kept, the socket closes", async () => {
    upstream.reply([...textChunks("a b"), never]);
    const result = await ask(
      peer,
      request({}, { firstTokenTimeout: durationFromMs(60_000), stallTimeout: durationFromMs(100) }),
    );
    expect(result).toMatchObject({ text: "a b", error: { code: "UPSTREAM_STALLED" } });
    await lastRequest().closed;
  });

  test("a finish, then silence - clean", async () => {
    upstream.reply([...textChunks("a"), deltaChunk({}, "stop"), never]);
    expect(await ask(peer)).toMatchObject({ text: "a", finish: "stop", error: undefined });
    await lastRequest().closed;
  });
});

// The times of cancels are held in llm-cancel.test.ts.
describe("llm peer - cancellation", () => {
  test("before the upstream was asked - it never is", async () => {
    const before = upstream.requests.length;
    const call = new AbortController();
    call.abort(new Error("stopped"));
    await expect(collect(peer, request(), call.signal)).rejects.toThrow("stopped");
    expect(upstream.requests.length).toBe(before);
  });
});

describe("llm peer - refusals before anything is sent", () => {
  const REFUSED: readonly {
    readonly name: string;
    readonly message: ReturnType<typeof request>;
    readonly code: ErrorCode;
    readonly says: string;
  }[] = [
    {
      name: "unknown model",
      message: request({ modelId: "nope" }),
      code: ErrorCode.MODEL_NOT_FOUND,
      says: "nope",
    },
    {
      name: "options that are no object",
      message: request({ providerOptionsJson: "[1]" }),
      code: ErrorCode.INVALID_ARGUMENT,
      says: "provider_options_json",
    },
    {
      name: "options that change the call",
      message: request({ providerOptionsJson: `{"model":"x"}` }),
      code: ErrorCode.INVALID_ARGUMENT,
      says: "model",
    },
    {
      name: "a schema that is no JSON",
      message: request({ tools: [{ name: "t", parametersJsonSchema: "{" }] }),
      code: ErrorCode.INVALID_ARGUMENT,
      says: "input.tools[0].parameters_json_schema",
    },
    {
      name: "a choice of no tool",
      message: request({ tools: [{ name: "t" }], toolChoice: { mode: ToolChoiceMode.ONE, toolName: "u" } }),
      code: ErrorCode.INVALID_ARGUMENT,
      says: "tool_choice",
    },
  ];
  for (const { name, message, code, says } of REFUSED) {
    test(name, async () => {
      const before = upstream.requests.length;
      await expect(collect(peer, message)).rejects.toMatchObject({
        code,
        message: expect.stringContaining(says) as string,
      });
      expect(upstream.requests.length).toBe(before);
    });
  }
});

test("llm peer - more calls at once than allowed are refused, and taken again when there is room", async () => {
  const config = openAiConfig();
  await withPeer({ ...config, limits: { ...config.limits, maxCalls: 1 } }, async (small) => {
    upstream.reply([gate("full"), ...answerScript("first")]);
    const first = ask(small);
    await upstream.reached("full");
    await expect(ask(small)).rejects.toMatchObject({ code: ErrorCode.OVERLOADED });
    upstream.open("full");
    expect(await first).toMatchObject({ text: "first" });
    upstream.reply(answerScript("second"));
    expect(await ask(small)).toMatchObject({ text: "second" });
  });
});

describe("llm peer - models", () => {
  const list = async (from: Peer, page: object = {}) =>
    from.client.unary(
      "listModels",
      create(ListModelsRequestSchema, { caller: { tenantId: "local", userId: "local" }, ...page }),
      {
        signal: new AbortController().signal,
      },
    );

  test("nothing configured - the demo alone, and it is the default", async () => {
    await withPeer(loadLlmConfig({}), async (bare) => {
      const { models } = await list(bare);
      expect(models).toMatchObject([{ modelId: "demo", demo: true, isDefault: true, tools: true }]);
    });
  });

  test("a base URL without models - the upstream is asked once, its first model is the default", async () => {
    upstream.setModels(["m-one", "m-two"]);
    await withPeer(openAiConfig(), async (own) => {
      const before = upstream.modelRequests;
      const first = await list(own);
      await Promise.all([list(own), list(own)]);
      expect(first.models.map(({ modelId, isDefault }) => [modelId, isDefault])).toEqual([
        ["m-one", true],
        ["m-two", false],
        ["demo", false],
      ]);
      expect(upstream.modelRequests).toBe(before + 1);
    });
  });

  test("the upstream has no list - the demo is listed, an unknown model is passed on", async () => {
    upstream.setModels({ status: 500 });
    await withPeer(openAiConfig(), async (own) => {
      expect((await list(own)).models.map(({ modelId }) => modelId)).toEqual(["demo"]);
      upstream.reply(answerScript("ok"));
      expect(await ask(own, request({ modelId: "anything" }))).toMatchObject({ text: "ok" });
      expect(lastRequest().json?.model).toBe("anything");
    });
  });

  test("pages", async () => {
    upstream.setModels(["a", "b", "c"]);
    await withPeer(openAiConfig(), async (own) => {
      const one = await list(own, { pageSize: 3 });
      const two = await list(own, { pageSize: 3, pageToken: one.nextPageToken });
      const ids = [one, two].map(({ models }) => models.map(({ modelId }) => modelId));
      expect(ids).toEqual([["a", "b", "c"], ["demo"]]);
      expect(two.nextPageToken).toBe("");
      await expect(list(own, { pageToken: "gone" })).rejects.toMatchObject({
        code: ErrorCode.INVALID_ARGUMENT,
      });
    });
  });

  test("a model of the file - by alias, under its upstream name, without what it cannot take", async () => {
    const yaml = `
providers:
  - name: local
    api: openai-chat
    baseUrl: ${upstream.url}/
    headers: { x-team: blue }
models:
  - id: small
    provider: local
    upstreamModel: up/small
    aliases: [tiny]
    tools: false
    reasoning: false
    contextTokens: 4096
`;
    await withPeer(
      loadLlmConfig({ TURNWIRE_CONFIG: "models.yaml" }, () => yaml),
      async (own) => {
        const facts = {
          modelId: "small",
          isDefault: true,
          tools: false,
          contextTokens: 4096,
          aliases: ["tiny"],
        };
        expect((await list(own)).models[0]).toMatchObject(facts);
        upstream.reply(answerScript("ok"));
        const deltas = await collect(
          own,
          request({ modelId: "tiny", tools: [{ name: "t" }], reasoningEffort: 3 }),
        );
        const dropped = deltas.flatMap(({ delta }) =>
          delta.case === "parametersDropped" ? delta.value.names : [],
        );
        expect(dropped).toEqual(["tools", "reasoning_effort"]);
        expect(lastRequest().json).toMatchObject({ model: "up/small" });
        expect(lastRequest().json).not.toHaveProperty("tools");
        expect(lastRequest().headers["x-team"]).toBe("blue");
        expect(lastRequest().headers.authorization).toBeUndefined();
      },
    );
  });

  test("two providers with the same model - the first has it, the other's is called by its provider", async () => {
    const other = await startScriptedUpstream();
    other.setModels(["scripted-model", "only-there"]);
    const yaml = `
providers:
  - { name: one, api: openai-chat, baseUrl: "${upstream.url}" }
  - { name: two, api: openai-chat, baseUrl: "${other.url}" }
`;
    await withPeer(
      loadLlmConfig({ TURNWIRE_CONFIG: "models.yaml" }, () => yaml),
      async (own) => {
        expect((await list(own)).models.map(({ modelId }) => modelId)).toEqual([
          "scripted-model",
          "two/scripted-model",
          "only-there",
          "demo",
        ]);
        for (const modelId of ["only-there", "two/only-there", "two/scripted-model"]) {
          other.reply(answerScript("there"));
          expect(await ask(own, request({ modelId }))).toMatchObject({ text: "there" });
          expect(other.requests.at(-1)?.json?.model).toBe(modelId.replace("two/", ""));
        }
        upstream.reply(answerScript("here"));
        expect(await ask(own, request({ modelId: "one/scripted-model" }))).toMatchObject({ text: "here" });
      },
    );
    await other.close();
  });

  test("a server that cannot list its models, behind another - its models are called by its provider", async () => {
    const other = await startScriptedUpstream();
    other.setModels({ status: 404 });
    const yaml = `
providers:
  - { name: one, api: openai-chat, baseUrl: "${upstream.url}" }
  - { name: two, api: openai-chat, baseUrl: "${other.url}" }
`;
    await withPeer(
      loadLlmConfig({ TURNWIRE_CONFIG: "models.yaml" }, () => yaml),
      async (own) => {
        other.reply(answerScript("unlisted"));
        expect(await ask(own, request({ modelId: "two/org/any" }))).toMatchObject({ text: "unlisted" });
        expect(other.requests.at(-1)?.json?.model).toBe("org/any");
      },
    );
    await other.close();
  });
});

describe("llm peer - the demo", () => {
  const demo = (tools: object[], messages?: object[], extra: object = {}) =>
    request({ modelId: "demo", tools, ...(messages && { messages }), ...extra });

  test("says that it is one, and needs no upstream", async () => {
    await withPeer(loadLlmConfig({}), async (bare) => {
      const result = await ask(bare, demo([]));
      expect(result.text).toContain("demo");
      expect(result).toMatchObject({ order: ["reasoning", "text"], finish: "stop", error: undefined });
    });
  });
});

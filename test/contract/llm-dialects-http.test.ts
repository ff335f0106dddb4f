/** Anthropic, Responses, Gemini, Ollama, Cohere and Bedrock over real HTTP: what leaves, with which key, and what comes of the answer. */
import { brotliCompressSync, deflateSync, gzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { CompletionDelta } from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { systemClock } from "../../src/lib/clock.js";
import { DEFAULT_LLM_LIMITS, modelOf } from "../../src/llm/config.js";
import { createDialect } from "../../src/llm/providers/dialects.js";
import { createHttpProvider } from "../../src/llm/providers/http-provider.js";
import { completionInput } from "../support/completion-input.js";
import { foldDeltas } from "../support/completion-result.js";
import { converseEvent } from "../support/event-stream-frames.js";
import { startScriptedUpstream, type ScriptedUpstream, type Step } from "../support/scripted-upstream.js";

let upstream: ScriptedUpstream;
beforeAll(async () => void (upstream = await startScriptedUpstream()));
afterAll(() => upstream.close());

const AWS_KEY = "AKIDEXAMPLE1234567:wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY:FwoGZXIvYXdzEXAMPLETOKEN";

interface Server {
  readonly api: string;
  readonly key: string;
  readonly model: string;
  readonly contentType: string;
  readonly answer: Buffer;
  readonly path: string;
  readonly accept: RegExp;
  readonly headers: Readonly<Record<string, unknown>>;
}

const json = (value: unknown): string => JSON.stringify(value);

const sse = (...events: readonly (Readonly<Record<string, unknown>> & { readonly type: string })[]): Buffer =>
  Buffer.from(events.map((event) => `event: ${event.type}\ndata: ${json(event)}\n\n`).join(""));

const SERVERS: readonly Server[] = [
  {
    api: "anthropic-messages",
    key: "sk-ant-test-key-test-key",
    model: "claude-sonnet-4-5",
    contentType: "text/event-stream",
    answer: sse(
      ...[
        { type: "message_start", message: { usage: { input_tokens: 3 } } },
        { type: "content_block_start", index: 0, content_block: { type: "text", text: "" } },
        { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "Hi ✅" } },
        { type: "message_delta", delta: { stop_reason: "end_turn" }, usage: { output_tokens: 2 } },
        { type: "message_stop" },
      ],
    ),
    path: "/messages",
    accept: /event-stream/,
    headers: { "x-api-key": "sk-ant-test-key-test-key", "anthropic-version": "2023-06-01" },
  },
  {
    api: "openai-responses",
    key: "sk-test-key-test-key",
    model: "gpt-5-mini",
    contentType: "text/event-stream",
    answer: sse(
      ...[
        { type: "response.output_text.delta", output_index: 0, content_index: 0, delta: "Hi ✅" },
        { type: "response.completed", response: { usage: { input_tokens: 3, output_tokens: 2 } } },
      ],
    ),
    path: "/responses",
    accept: /event-stream/,
    headers: { authorization: "Bearer sk-test-key-test-key" },
  },
  {
    api: "gemini",
    key: "AIzaTestKeyTestKey",
    model: "gemini-2.5-flash",
    contentType: "text/event-stream",
    answer: Buffer.from(
      `data: ${json({ candidates: [{ content: { parts: [{ text: "Hi ✅" }] }, finishReason: "STOP" }], usageMetadata: { promptTokenCount: 3, candidatesTokenCount: 2 } })}\r\n\r\n`,
    ),
    path: "/models/gemini-2.5-flash:streamGenerateContent?alt=sse",
    accept: /event-stream/,
    headers: { "x-goog-api-key": "AIzaTestKeyTestKey", authorization: undefined },
  },
  {
    api: "ollama-chat",
    key: "",
    model: "qwen3:8b",
    contentType: "application/x-ndjson",
    answer: Buffer.from(
      `${json({ message: { content: "Hi ✅" }, done: false })}\n${json({ message: {}, done: true, done_reason: "stop", prompt_eval_count: 3, eval_count: 2 })}\n`,
    ),
    path: "/api/chat",
    accept: /x-ndjson/,
    headers: { authorization: undefined },
  },
  {
    api: "cohere-v2",
    key: "co-test-key-test-key",
    model: "command-a-03-2025",
    contentType: "text/event-stream",
    answer: Buffer.from(
      `event: content-delta\ndata: ${json({ type: "content-delta", index: 0, delta: { message: { content: { text: "Hi ✅" } } } })}\n\n` +
        `event: message-end\ndata: ${json({ type: "message-end", delta: { finish_reason: "COMPLETE", usage: { tokens: { input_tokens: 3, output_tokens: 2 } } } })}\n\n`,
    ),
    path: "/v2/chat",
    accept: /event-stream/,
    headers: { authorization: "Bearer co-test-key-test-key" },
  },
  {
    api: "bedrock-converse",
    key: AWS_KEY,
    model: "eu.anthropic.claude-sonnet-4-5-20250929-v1:0",
    contentType: "application/vnd.amazon.eventstream",
    answer: Buffer.concat([
      converseEvent("contentBlockDelta", { contentBlockIndex: 0, delta: { text: "Hi ✅" } }),
      converseEvent("messageStop", { stopReason: "end_turn" }),
      converseEvent("metadata", { usage: { inputTokens: 3, outputTokens: 2 } }),
    ]),
    path: "/model/eu.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse-stream",
    accept: /amazon\.eventstream/,
    headers: {
      authorization: expect.stringMatching(
        /^AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE1234567\/\d{8}\/us-east-1\/bedrock\/aws4_request, SignedHeaders=content-type;host;x-amz-date;x-amz-security-token, Signature=[0-9a-f]{64}$/,
      ) as unknown,
      "x-amz-security-token": "FwoGZXIvYXdzEXAMPLETOKEN",
    },
  },
];

const ENCODERS = { gzip: gzipSync, deflate: deflateSync, br: brotliCompressSync };

async function ask(server: Server, steps: readonly Step[]): Promise<CompletionDelta[]> {
  const baseUrl = upstream.url.replace(/\/v1$/, "");
  const dialect = createDialect(server.api, { baseUrl, quirks: {} });
  const keys = server.key === "" ? [] : [server.key];
  const provider = createHttpProvider(
    dialect,
    { name: "p", baseUrl, keys, headers: {} },
    DEFAULT_LLM_LIMITS,
    systemClock,
  );
  upstream.reply(steps);
  const { firstTokenTimeoutMs, stallTimeoutMs } = DEFAULT_LLM_LIMITS;
  const call = {
    ...{ input: completionInput(), attempt: 1, firstTokenTimeoutMs, stallTimeoutMs },
    model: { ...modelOf("m", "p"), upstreamModel: server.model },
    signal: new AbortController().signal,
  };
  const deltas: CompletionDelta[] = [];
  for await (const batch of provider.prepare(call).stream()) deltas.push(...batch);
  await provider.close();
  return deltas;
}

test("texts that one request cannot hold are embedded in several, in order", async () => {
  const baseUrl = upstream.url.replace(/\/v1$/, "");
  const dialect = createDialect("bedrock-converse", { baseUrl, quirks: {} });
  const config = { name: "p", baseUrl, keys: ["bedrock-api-key"], headers: {} };
  const provider = createHttpProvider(dialect, config, DEFAULT_LLM_LIMITS, systemClock);
  upstream.replyWith(({ json: asked }) => [
    { kind: "status", status: 200, headers: { "content-type": "application/json" } },
    {
      kind: "send",
      bytes: Buffer.from(json({ embedding: [Number(asked?.["inputText"])], inputTextTokenCount: 2 })),
    },
  ]);
  const model = { ...modelOf("e", "p"), upstreamModel: "amazon.titan-embed-text-v2:0" };
  const inputs = Array.from({ length: 9 }, (_, at) => String(at));
  const { signal } = new AbortController();
  const got = await provider.embed?.({ inputs, model, signal });
  expect(got).toEqual({ vectors: inputs.map((text) => [Number(text)]), inputTokens: 18 });
  upstream.replyWith(undefined);
  await provider.close();
});

test("an error that comes compressed is read, an encoding that nobody knows is refused", async () => {
  const server = SERVERS[0]!;
  const body = gzipSync(json({ type: "error", error: { type: "authentication_error", message: "bad key" } }));
  const answer = (status: number, encoding: string): readonly Step[] => [
    { kind: "status", status, headers: { "content-type": "application/json", "content-encoding": encoding } },
    { kind: "send", bytes: body },
  ];
  expect(foldDeltas(await ask(server, answer(401, "gzip"))).error).toMatchObject({
    code: "UPSTREAM_AUTH",
    message: expect.stringContaining("bad key") as string,
  });
  expect(foldDeltas(await ask(server, answer(200, "zstd"))).error?.code).toBe("UPSTREAM_MALFORMED");
  expect(foldDeltas(await ask(server, answer(401, "zstd"))).error?.code).toBe("UPSTREAM_AUTH");
});

test("a compressed answer that breaks off keeps what came", async () => {
  const server = SERVERS.find(({ api }) => api === "anthropic-messages")!;
  const end = server.answer.indexOf(Buffer.from("event: message_delta"));
  const half = gzipSync(server.answer.subarray(0, end)).subarray(0, -4);
  const headers = { "content-type": server.contentType, "content-encoding": "gzip" };
  const got = foldDeltas(
    await ask(server, [
      { kind: "status", status: 200, headers },
      { kind: "send", bytes: half },
      { kind: "end" },
    ]),
  );
  expect(got).toMatchObject({ text: "Hi ✅", finish: undefined, error: { code: "UPSTREAM_TRUNCATED" } });
});

describe.each(SERVERS)("$api over HTTP", (server) => {
  const ok = { kind: "status", status: 200, headers: { "content-type": server.contentType } } as const;

  test("the request as the server wants it, the answer byte by byte", async () => {
    const bytes = Array.from(server.answer, (byte): Step => ({ kind: "send", bytes: Uint8Array.of(byte) }));
    const got = foldDeltas(await ask(server, [ok, ...bytes, { kind: "end" }]));
    expect(got).toMatchObject({
      text: "Hi ✅",
      finish: "stop",
      usage: { input: 3, output: 2 },
      error: undefined,
    });
    const request = upstream.requests.at(-1);
    expect(request?.path).toBe(server.path);
    expect(request?.headers["accept"]).toMatch(server.accept);
    expect(request?.headers["content-type"]).toBe("application/json");
    for (const [name, value] of Object.entries(server.headers))
      expect(request?.headers[name], name).toEqual(value);
  });

  test.each(Object.entries(ENCODERS))(
    "an answer that comes %s, though nobody asked for it",
    async (name, encode) => {
      const encoded = Buffer.from(encode(server.answer));
      const headers = { ...ok.headers, "content-encoding": name };
      const pieces = [encoded.subarray(0, 15), encoded.subarray(15)].map((bytes): Step => ({
        kind: "send",
        bytes,
      }));
      const got = foldDeltas(await ask(server, [{ ...ok, headers }, ...pieces, { kind: "end" }]));
      expect(got).toMatchObject({
        text: "Hi ✅",
        finish: "stop",
        usage: { input: 3, output: 2 },
        error: undefined,
      });
      expect(upstream.requests.at(-1)?.headers["accept-encoding"]).toBe("identity");
    },
  );

  test("a connection that breaks before the server said how it ended is an error, after it none", async () => {
    const half = server.answer.subarray(0, -20);
    const got = foldDeltas(await ask(server, [ok, { kind: "send", bytes: half }, { kind: "destroy" }]));
    // Bedrock's usage and Anthropic's end mark come after their word for the end, the others' with it.
    if (["bedrock-converse", "anthropic-messages"].includes(server.api))
      expect(got).toMatchObject({ text: "Hi ✅", finish: "stop" });
    else expect(got).toMatchObject({ finish: undefined, error: { code: "UPSTREAM_TRUNCATED" } });
    expect(got.text).toBe(server.api === "gemini" ? "" : "Hi ✅");
  });

  test("a refusal has its code, and no part of the key", async () => {
    const message = `the key ${server.key || "none"} and ${server.key.split(":").at(-1)} may not do this`;
    const body = Buffer.from(
      json(server.api === "gemini" ? [{ error: { code: 403, message } }] : { message }),
    );
    const status: Step = { kind: "status", status: 403, headers: { "content-type": "application/json" } };
    const deltas = await ask(server, [status, { kind: "send", bytes: body }, { kind: "end" }]);
    expect(deltas.at(-1)?.delta).toMatchObject({ case: "error", value: { code: ErrorCode.UPSTREAM_AUTH } });
    for (const secret of server.key.split(":").filter((part) => part !== ""))
      expect(json(deltas)).not.toContain(secret);
  });
});

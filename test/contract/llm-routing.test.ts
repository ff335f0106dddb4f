/**
 * What the llm peer does around a model call: attempts, fallbacks, keys, breaker, queue, arenas, access, books, secrets,
 * reload. Real gRPC, real HTTP to scripted upstreams.
 */
import { create } from "@bufbuild/protobuf";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import {
  CountTokensRequestSchema,
  EmbedRequestSchema,
  ListModelsRequestSchema,
  type CompletionDelta,
} from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { silentLogger, type Logger } from "../../src/lib/log.js";
import { embed } from "../../src/llm/embed.js";
import { Generation } from "../../src/llm/generation.js";
import { foldDeltas } from "../support/completion-result.js";
import {
  collectDeltas,
  completionRequest,
  kindsOf,
  llmConfig,
  startLlmPeer,
  type LlmPeer,
  type LlmPeerOptions,
} from "../support/llm-peer.js";
import { ManualClock } from "../support/manual-clock.js";
import {
  answerScript,
  deltaChunk,
  destroySocket,
  end,
  finishChunks,
  gate,
  never,
  reasoningChunks,
  send,
  startScriptedUpstream,
  status,
  textChunks,
  toolCallChunks,
  type RecordedRequest,
  type Script,
  type ScriptedUpstream,
} from "../support/scripted-upstream.js";

const KEYS = { KEY_A: "sk-key-a-0123456789", KEY_B: "sk-key-b-0123456789" };
const never200: Script = [status(503), send(`{"error":{"message":"down"}}`)];
const limited = (seconds?: number): Script => [
  status(429, seconds === undefined ? {} : { "retry-after": String(seconds) }),
  send(`{"error":{"message":"slow down"}}`),
];

let first: ScriptedUpstream;
let second: ScriptedUpstream;
const opened: (() => Promise<void>)[] = [];

beforeAll(async () => {
  first = await startScriptedUpstream();
  second = await startScriptedUpstream();
});
afterEach(async () => {
  for (const close of opened.splice(0)) await close();
  first.replyWith(undefined);
  second.replyWith(undefined);
});
afterAll(async () => {
  await first.close();
  await second.close();
});

/** Two providers with a model each, and what a test adds. Retries come at once. */
function config(more = "", provider = "", llm = "") {
  return llmConfig(
    `
providers:
  - { name: one, api: openai-chat, baseUrl: "${first.url}", models: [a]${provider} }
  - { name: two, api: openai-chat, baseUrl: "${second.url}", models: [b, c] }
limits: { llm: { retryDelayMs: 1${llm} } }
${more}`,
    KEYS,
  );
}

async function peerWith(yaml: ReturnType<typeof config>, options?: LlmPeerOptions): Promise<LlmPeer> {
  const peer = await startLlmPeer(yaml, options);
  opened.push(() => peer.close());
  return peer;
}

const valueOf = (deltas: readonly CompletionDelta[], kind: CompletionDelta["delta"]["case"]) =>
  deltas.filter(({ delta }) => delta.case === kind).map(({ delta }) => delta.value);
const keyOf = ({ headers }: RecordedRequest) => headers.authorization?.replace("Bearer ", "");
const since = (upstream: ScriptedUpstream) => {
  const from = upstream.requests.length;
  return () => upstream.requests.slice(from);
};

describe("attempts", () => {
  test("a server that fails twice before anything was shown - asked three times, each announced", async () => {
    const peer = await peerWith(config());
    const asked = since(first);
    first.reply(never200);
    first.reply([destroySocket]);
    first.reply(answerScript("at last"));
    const deltas = await collectDeltas(peer, completionRequest("a"));
    expect(kindsOf(deltas)).toEqual([
      ...["attemptStarted", "modelSelected", "attemptBoundary", "attemptStarted", "modelSelected"],
      ...["attemptBoundary", "attemptStarted", "modelSelected", "content", "usage", "finish"],
    ]);
    expect(valueOf(deltas, "attemptStarted")).toMatchObject([{ attempt: 1 }, { attempt: 2 }, { attempt: 3 }]);
    expect(valueOf(deltas, "attemptBoundary")).toMatchObject([
      { failedAttempt: 1, nextModelId: "a", cause: { code: ErrorCode.UPSTREAM_UNAVAILABLE } },
      { failedAttempt: 2, nextModelId: "a" },
    ]);
    expect(asked()).toHaveLength(3);
  });

  test("what comes before the content is held: an error there still falls back", async () => {
    const peer = await peerWith(config());
    first.replyWith(() => [
      deltaChunk({ role: "assistant", content: "" }),
      send(`data: {"error":{"message":"overloaded","code":529}}\n\n`),
      end,
    ]);
    second.reply(answerScript("from b"));
    const deltas = await collectDeltas(peer, completionRequest("a", { fallbackModelIds: ["nobody", "b"] }));
    expect(foldDeltas(deltas)).toMatchObject({ text: "from b", finish: "stop", error: undefined });
    expect(valueOf(deltas, "attemptBoundary").at(-1)).toMatchObject({ nextModelId: "b" });
    expect(valueOf(deltas, "modelSelected").at(-1)).toMatchObject({ modelId: "b" });
  });

  test("reasoning was shown - still asked again, and the boundary says so", async () => {
    const peer = await peerWith(config());
    first.reply([...reasoningChunks("let me think"), destroySocket]);
    first.reply(answerScript("done"));
    const deltas = await collectDeltas(peer, completionRequest("a"));
    expect(kindsOf(deltas).slice(2)).toEqual([
      ...[
        "reasoning",
        "usage",
        "attemptBoundary",
        "attemptStarted",
        "modelSelected",
        "content",
        "usage",
        "finish",
      ],
    ]);
    expect(valueOf(deltas, "usage")).toMatchObject([
      { attempt: 1, usage: { estimated: true } },
      { attempt: 2, usage: { estimated: false } },
    ]);
  });

  test.each([
    ["content", textChunks("half an")],
    ["a tool call", toolCallChunks({ id: "c", name: "clock", args: { zone: "UTC" } })],
  ])("%s was handed on - never again, whatever there is to fall back on", async (_, shown) => {
    const peer = await peerWith(config());
    const [askedFirst, askedSecond] = [since(first), since(second)];
    first.reply([...shown, destroySocket]);
    const deltas = await collectDeltas(peer, completionRequest("a", { fallbackModelIds: ["b"] }));
    expect(deltas.at(-1)?.delta).toMatchObject({
      case: "error",
      value: { code: ErrorCode.UPSTREAM_TRUNCATED },
    });
    expect([askedFirst().length, askedSecond().length]).toEqual([1, 0]);
    expect(valueOf(deltas, "usage")).toMatchObject([{ usage: { estimated: true } }]);
    expect(foldDeltas(deltas).toolCalls.some(({ complete }) => complete)).toBe(false);
  });

  test.each([
    [400, `{"error":{"message":"bad value"}}`, ErrorCode.UPSTREAM_REJECTED],
    [401, `{"error":{"message":"bad key"}}`, ErrorCode.UPSTREAM_AUTH],
    [400, `{"error":{"message":"maximum context length is 10"}}`, ErrorCode.CONTEXT_TOO_LONG],
  ])("%i %s - not asked again", async (code, body, want) => {
    const peer = await peerWith(config());
    const asked = since(first);
    first.replyWith(() => [status(code), send(body)]);
    const deltas = await collectDeltas(peer, completionRequest("a"));
    expect(deltas.at(-1)?.delta).toMatchObject({ case: "error", value: { code: want } });
    expect(asked()).toHaveLength(1);
  });

  test("an empty answer - asked again, then a typed end", async () => {
    const peer = await peerWith(config());
    const asked = since(first);
    first.replyWith(() => finishChunks("stop"));
    const deltas = await collectDeltas(peer, completionRequest("a"));
    expect(deltas.at(-1)?.delta).toMatchObject({ case: "error", value: { code: ErrorCode.EMPTY_RESPONSE } });
    expect(asked()).toHaveLength(3);
    expect(valueOf(deltas, "usage")).toHaveLength(3); // all three were paid for
  });

  test("Retry-After is honoured, in time; one that asks for too much ends the call", async () => {
    const clock = new ManualClock();
    const peer = await peerWith(config(), { clock });
    first.reply(limited(7));
    first.reply(answerScript("later"));
    const waits = clock.sleepBegins(7_000);
    const answer = collectDeltas(peer, completionRequest("a"));
    await waits;
    clock.advance(7_000);
    expect(foldDeltas(await answer)).toMatchObject({ text: "later" });
    first.reply(limited(31));
    expect((await collectDeltas(peer, completionRequest("a"))).at(-1)?.delta).toMatchObject({
      value: { code: ErrorCode.RATE_LIMIT, retryAfterMs: 31_000 },
    });
  });

  test("the whole call has one deadline: retries do not stack their times", async () => {
    const clock = new ManualClock();
    const peer = await peerWith(config("", "", ", totalTimeoutMs: 5000"), { clock });
    const asked = since(first);
    const arrived = first.waitForRequest(first.requests.length + 1);
    first.reply([never]);
    const answer = collectDeltas(peer, completionRequest("a", { fallbackModelIds: ["b"] }));
    const request = await arrived;
    clock.advance(5_000);
    expect((await answer).at(-1)?.delta).toMatchObject({
      case: "error",
      value: { code: ErrorCode.DEADLINE_EXCEEDED },
    });
    await request.closed;
    expect(asked()).toHaveLength(1);
  });

  test("a call that no model takes is refused before anything is sent", async () => {
    const peer = await peerWith(config());
    const request = completionRequest("a");
    request.input!.providerOptionsJson = "[1]";
    await expect(collectDeltas(peer, request)).rejects.toMatchObject({ code: ErrorCode.INVALID_ARGUMENT });
  });
});

describe("keys", () => {
  const twoKeys = ", apiKeyEnv: [KEY_A, KEY_B]";

  test("calls take turns between keys", async () => {
    const peer = await peerWith(config("", twoKeys));
    const asked = since(first);
    first.replyWith(() => answerScript("x"));
    for (let call = 0; call < 4; call++) await collectDeltas(peer, completionRequest("a"));
    expect(new Set(asked().map(keyOf))).toEqual(new Set(Object.values(KEYS)));
  });

  test.each([
    ["limited", limited()],
    ["refused", [status(401), send(`{"error":{"message":"bad key"}}`)] as Script],
    ["out of money", [status(429), send(`{"error":{"message":"no","code":"insufficient_quota"}}`)] as Script],
  ])("a key that is %s rests, the other one is used at once", async (_, refusal) => {
    const peer = await peerWith(config("", twoKeys));
    const asked = since(first);
    first.replyWith((request) => (keyOf(request) === KEYS.KEY_A ? refusal : answerScript("x")));
    for (let call = 0; call < 4; call++)
      expect(foldDeltas(await collectDeltas(peer, completionRequest("a")))).toMatchObject({ text: "x" });
    expect(asked().filter((request) => keyOf(request) === KEYS.KEY_A)).toHaveLength(1);
    expect(asked()).toHaveLength(5);
  });

  test("all keys are refused - the typed end, and both were tried once", async () => {
    const peer = await peerWith(config("", twoKeys));
    const asked = since(first);
    first.replyWith(() => [status(401), send(`{"error":{"message":"bad key"}}`)]);
    const deltas = await collectDeltas(peer, completionRequest("a"));
    expect(deltas.at(-1)?.delta).toMatchObject({ value: { code: ErrorCode.UPSTREAM_AUTH } });
    expect(asked()).toHaveLength(2);
  });
});

describe("breaker and queue", () => {
  test("a provider that keeps failing is left alone, then asked once, then trusted again", async () => {
    const clock = new ManualClock();
    const limits = ", limits: { breakerFailures: 2, breakerOpenMs: 1000 }";
    const peer = await peerWith(config("", limits, ", maxRetries: 0"), { clock });
    const asked = since(first);
    const call = async () => foldDeltas(await collectDeltas(peer, completionRequest("a")));
    first.reply(never200);
    first.reply(never200);
    await call();
    await call();
    expect(await call()).toMatchObject({
      error: { code: "UPSTREAM_UNAVAILABLE", details: { not_asked: "breaker" } },
    });
    expect(asked()).toHaveLength(2);
    second.reply(answerScript("b"));
    expect(
      foldDeltas(await collectDeltas(peer, completionRequest("a", { fallbackModelIds: ["b"] }))),
    ).toMatchObject({
      text: "b",
    });
    clock.advance(1_000);
    first.replyWith(() => answerScript("back"));
    expect(await call()).toMatchObject({ text: "back" });
    expect(await call()).toMatchObject({ text: "back" });
  });

  test("more calls than allowed wait for a place, in order; too many are told", async () => {
    const peer = await peerWith(config("", ", limits: { maxConcurrent: 1, maxQueued: 1 }"));
    first.reply([gate("hold"), ...answerScript("one")]);
    first.reply(answerScript("two"));
    const one = collectDeltas(peer, completionRequest("a"));
    await first.reached("hold");
    const asked = since(first);
    const two = peer.client
      .serverStream("streamCompletion", completionRequest("a"), { signal: new AbortController().signal })
      [Symbol.asyncIterator]();
    await two.next(); // its attempt has begun: it waits
    const third = foldDeltas(await collectDeltas(peer, completionRequest("a")));
    expect(third).toMatchObject({ error: { code: "OVERLOADED" } });
    expect(asked()).toHaveLength(0);
    first.open("hold");
    expect(foldDeltas(await one)).toMatchObject({ text: "one" });
    const rest: CompletionDelta[] = [];
    for (let next = await two.next(); !next.done; next = await two.next()) rest.push(...next.value.deltas);
    expect(foldDeltas(rest)).toMatchObject({ text: "two" });
  });
});

describe("routes", () => {
  const routes = `
routes:
  - { id: best, kind: failover, models: [a, b] }
  - { id: arena, kind: arena, models: [b, c] }
  - { id: mixed, kind: weighted, models: [{ model: b, weight: 1 }, { model: c, weight: 3 }] }
  - { id: inner, kind: failover, models: [a], access: [staff] }
`;

  test("failover - the next one when the first fails", async () => {
    const peer = await peerWith(config(routes, "", ", maxRetries: 0"));
    first.reply(never200);
    second.reply(answerScript("from b"));
    expect(foldDeltas(await collectDeltas(peer, completionRequest("best")))).toMatchObject({
      text: "from b",
    });
  });

  test("an arena - nobody is named until the end, then who it was; all cycles of a lane get the same one", async () => {
    const peer = await peerWith(config(routes));
    second.replyWith(() => answerScript("hm"));
    const picks = new Set<string>();
    for (let turn = 0; turn < 12; turn++) {
      const caller = { tenantId: "local", userId: "local", turnId: `turn-${turn}`, modelIndex: 1 };
      const asked = since(second);
      const deltas = await collectDeltas(peer, completionRequest("arena", { caller }));
      expect(kindsOf(deltas)).toEqual(["attemptStarted", "content", "usage", "modelSelected", "finish"]);
      expect(valueOf(deltas, "attemptStarted")).toMatchObject([{ provider: "", upstreamModel: "" }]);
      const pick = (valueOf(deltas, "modelSelected")[0] as { modelId: string }).modelId;
      await collectDeltas(peer, completionRequest("arena", { caller: { ...caller, cycle: 2 } }));
      expect(asked().map(({ json }) => json?.model)).toEqual([pick, pick]);
      picks.add(pick);
    }
    expect(picks).toEqual(new Set(["b", "c"]));
  });

  test("an arena whose pick fails - another one, and the cause names nobody", async () => {
    const peer = await peerWith(config(routes, "", ", maxRetries: 0"));
    second.reply([status(400), send(`{"error":{"message":"model b or c says no"}}`)]);
    second.reply(answerScript("other"));
    const deltas = await collectDeltas(peer, completionRequest("arena"));
    expect(foldDeltas(deltas)).toMatchObject({ text: "other" });
    expect(valueOf(deltas, "attemptBoundary")).toMatchObject([
      { nextModelId: "arena", cause: { message: "the model provider rejected the request" } },
    ]);
  });

  test("routes are listed with what all their models can do; those that the caller may not use are not", async () => {
    const peer = await peerWith(config(routes));
    const list = async (groups: string[]) => {
      const request = create(ListModelsRequestSchema, { caller: { tenantId: "t", userId: "u", groups } });
      const answer = await peer.client.unary("listModels", request, { signal: new AbortController().signal });
      return answer.models.map(({ modelId }) => modelId);
    };
    expect(await list([])).toEqual(["a", "b", "c", "best", "arena", "mixed", "demo"]);
    expect(await list(["staff"])).toContain("inner");
    await expect(collectDeltas(peer, completionRequest("inner"))).rejects.toMatchObject({
      code: ErrorCode.MODEL_NOT_FOUND,
    });
  });
});

describe("access, prices, plain calls", () => {
  test("a model for some - not there for others, also as a fallback", async () => {
    const yaml = "models: [{ id: top, provider: one, access: [staff, 'user:local/ann'] }]";
    const peer = await peerWith(config(yaml, "", ", maxRetries: 0"));
    await expect(collectDeltas(peer, completionRequest("top"))).rejects.toMatchObject({
      code: ErrorCode.MODEL_NOT_FOUND,
      message: "no such model: top",
    });
    first.reply(answerScript("for ann"));
    const caller = { tenantId: "local", userId: "ann" };
    expect(foldDeltas(await collectDeltas(peer, completionRequest("top", { caller })))).toMatchObject({
      text: "for ann",
    });
    const asked = since(first);
    second.reply(never200);
    await collectDeltas(peer, completionRequest("b", { fallbackModelIds: ["top"] }));
    expect(asked()).toHaveLength(0);
  });

  test("usage carries its cost; models carry their price", async () => {
    const peer = await peerWith(config("prices: [{ model: a, input: 2.5, output: 10, currency: EUR }]"));
    first.reply(answerScript("x"));
    const deltas = await collectDeltas(peer, completionRequest("a"));
    // 10 tokens at 2.5 and 20 at 10 per million
    expect(valueOf(deltas, "usage")).toMatchObject([{ usage: { costMicros: "225", currency: "EUR" } }]);
    const { models } = await peer.client.unary("listModels", create(ListModelsRequestSchema), {
      signal: new AbortController().signal,
    });
    expect(models.find(({ modelId }) => modelId === "a")?.price).toMatchObject({
      inputMicrosPerMtok: "2500000",
      outputMicrosPerMtok: "10000000",
      currency: "EUR",
    });
  });

  test("embeddings - in order, with usage; another key when one is refused; a typed failure", async () => {
    const peer = await peerWith(config("", ", apiKeyEnv: [KEY_A, KEY_B]"));
    const signal = new AbortController().signal;
    const request = create(EmbedRequestSchema, { modelId: "a", inputs: ["x", "y"] });
    const data = [
      { index: 1, embedding: [0.25, -1] },
      { index: 0, embedding: [0.5, 2] },
    ];
    first.replyWith((got) =>
      keyOf(got) === KEYS.KEY_A
        ? [status(401), send("{}")]
        : [status(200), send(JSON.stringify({ data, usage: { prompt_tokens: 7 } }))],
    );
    for (let call = 0; call < 2; call++) {
      const answer = await peer.client.unary("embed", request, { signal });
      expect(answer.embeddings.map(({ values }) => values)).toEqual([
        [0.5, 2],
        [0.25, -1],
      ]);
      expect(answer.usage).toMatchObject({ inputTokens: 7, estimated: false });
    }
    first.replyWith(() => [status(400), send(`{"error":{"message":"too long"}}`)]);
    await expect(peer.client.unary("embed", request, { signal })).rejects.toMatchObject({
      code: ErrorCode.UPSTREAM_REJECTED,
    });
    await expect(
      peer.client.unary("embed", create(EmbedRequestSchema, { modelId: "demo", inputs: ["x"] }), { signal }),
    ).rejects.toMatchObject({ code: ErrorCode.NOT_BUILT });
  });

  test("embeddings that never come - stalled, after their time; enough of them, and the provider is left alone", async () => {
    const clock = new ManualClock();
    // Without gRPC in between, whose client asks again.
    const generation = new Generation(config("", ", limits: { breakerFailures: 2 }"), {
      ...{ clock, logger: silentLogger },
    });
    opened.push(() => generation.close());
    const request = create(EmbedRequestSchema, { modelId: "a", inputs: ["x"] });
    const ask = () => embed(request, { catalog: generation.catalog, clock }, new AbortController().signal);
    for (const [name, script] of [
      ["no headers", [gate("no headers"), never]],
      ["half a body", [status(200), send(`{"data":[`), gate("half a body"), never]],
    ] as const) {
      first.reply([...script]);
      const call = ask();
      call.catch(() => undefined);
      await first.reached(name);
      clock.advance(60_000);
      await expect(call).rejects.toMatchObject({ code: ErrorCode.UPSTREAM_STALLED });
      await first.requests.at(-1)!.closed;
    }
    await expect(ask()).rejects.toMatchObject({
      ...{ code: ErrorCode.UPSTREAM_UNAVAILABLE, details: { not_asked: "breaker" } },
    });
    expect(clock.sleeping).toBe(0);
  });

  test("a provider that refuses to count - an estimate, and a line in the log", async () => {
    const lines: string[] = [];
    const yaml = `providers: [{ name: c, api: anthropic-messages, baseUrl: "${first.url}", apiKeyEnv: KEY_A, models: [a] }]`;
    const peer = await peerWith(llmConfig(yaml, KEYS), { logger: logTo(lines) });
    first.reply([status(401), send(JSON.stringify({ error: { message: `bad key ${KEYS.KEY_A}` } }))]);
    const request = create(CountTokensRequestSchema, { input: completionRequest("a").input! });
    const answer = await peer.client.unary("countTokens", request, { signal: new AbortController().signal });
    expect(answer).toMatchObject({ tokens: 5, estimated: true });
    expect(lines.join()).toContain("UPSTREAM_AUTH");
    expect(lines.join()).not.toContain(KEYS.KEY_A);
  });

  test("tokens are counted without asking the model, and marked as an estimate", async () => {
    const peer = await peerWith(config());
    const asked = since(first);
    const request = create(CountTokensRequestSchema, { input: completionRequest("a").input! });
    const answer = await peer.client.unary("countTokens", request, { signal: new AbortController().signal });
    expect(answer).toMatchObject({ tokens: 5, estimated: true });
    expect(asked()).toHaveLength(0);
  });
});

/** What a line of the books holds. */
function factsOf(line: string): Record<string, unknown> {
  return (JSON.parse(line) as [Record<string, unknown>])[0];
}

describe("conservation of usage (I18)", () => {
  test("random failures, retries and fallbacks - the sum of the attempts is what the upstreams told, and what the books say", async () => {
    const lines: string[] = [];
    const peer = await peerWith(
      config(
        "prices: [{ model: a, input: 2, output: 3 }, { model: b, input: 5, output: 7 }, { model: c, input: 11, output: 13 }]",
        ", limits: { breakerFailures: 0 }",
        ", maxRetries: 1",
      ),
      { logger: logTo(lines) },
    );
    let seed = 5;
    const random = (below: number): number => (seed = (seed * 48_271) % 2_147_483_647) % below;
    /** What was told by who was asked, per call. */
    let told: { input: number; output: number }[] = [];
    const script = (): Script => {
      const [input, output] = [1 + random(1_000), 100 + random(1_000)];
      const usage = { prompt_tokens: input, completion_tokens: output, total_tokens: input + output };
      const reports = send(`data: ${JSON.stringify({ choices: [], usage })}\n\n`);
      switch (random(5)) {
        case 0:
          return never200; // it never began
        case 1:
          return [destroySocket];
        case 2: // paid for, and taken back
          told.push({ input, output });
          return [
            ...reasoningChunks("hm"),
            reports,
            send(`data: {"error":{"message":"overloaded"}}\n\n`),
            end,
          ];
        default:
          told.push({ input, output });
          return [...textChunks("fine"), finishChunks("stop")[0]!, reports, send("data: [DONE]\n\n"), end];
      }
    };
    first.replyWith(script);
    second.replyWith(script);
    const sumOf = (all: readonly number[]): number => all.reduce((sum, each) => sum + each, 0);
    for (let call = 0; call < 60; call++) {
      told = [];
      lines.length = 0;
      const deltas = await collectDeltas(peer, completionRequest("a", { fallbackModelIds: ["b", "c"] }));
      const newest = new Map(
        deltas.flatMap(({ delta }) =>
          delta.case === "usage" ? [[delta.value.attempt, delta.value.usage!]] : [],
        ),
      );
      const attempts = [...newest.values()];
      expect(sumOf(attempts.map(({ inputTokens }) => inputTokens))).toBe(
        sumOf(told.map(({ input }) => input)),
      );
      expect(sumOf(attempts.map(({ outputTokens }) => outputTokens))).toBe(
        sumOf(told.map(({ output }) => output)),
      );
      const books = lines.map(factsOf);
      const booked = (name: string): number => sumOf(books.map((line) => Number(line[name] ?? 0)));
      expect(booked("inputTokens")).toBe(sumOf(attempts.map(({ inputTokens }) => inputTokens)));
      expect(booked("outputTokens")).toBe(sumOf(attempts.map(({ outputTokens }) => outputTokens)));
      expect(booked("costMicros")).toBe(sumOf(attempts.map(({ costMicros }) => Number(costMicros))));
      expect(deltas.at(-1)?.delta.case).toMatch(/^(?:finish|error)$/);
    }
  });

  test("an answer that is stopped, and one whose upstream breaks off - booked, estimated and marked", async () => {
    const lines: string[] = [];
    const peer = await peerWith(config(), { logger: logTo(lines) });
    first.reply([...textChunks("one two three four"), gate("stopped"), never]);
    const leaving = new AbortController();
    const call = collectDeltas(peer, completionRequest("a"), leaving.signal);
    await first.reached("stopped");
    leaving.abort(new Error("stopped"));
    await expect(call).rejects.toThrow("stopped");
    await first.requests.at(-1)!.closed;
    first.reply([...textChunks("one two three four"), destroySocket]);
    const cut = foldDeltas(await collectDeltas(peer, completionRequest("a")));
    expect(cut.usage).toMatchObject({ output: 5 });
    await expect.poll(() => lines.length).toBe(2);
    for (const line of lines) expect(factsOf(line)).toMatchObject({ outputTokens: 5, estimated: true });
  });
});

describe("reload", () => {
  test("20 running streams survive ten changes, their own model's removal too; then it is gone", async () => {
    const peer = await peerWith(config());
    first.replyWith(() => [
      ...textChunks("before "),
      gate("go on"),
      ...textChunks("after"),
      ...finishChunks("stop"),
    ]);
    const asked = since(first);
    const calls = Array.from({ length: 20 }, () => collectDeltas(peer, completionRequest("a")));
    await expect.poll(() => asked().length, { timeout: 20_000 }).toBe(20);
    for (let change = 0; change < 10; change++) {
      const models = change % 2 === 0 ? "[other]" : `[extra-${change}]`;
      peer.service.reload(
        llmConfig(`providers: [{ name: one, api: openai-chat, baseUrl: "${first.url}", models: ${models} }]`),
      );
    }
    await expect(collectDeltas(peer, completionRequest("a"))).rejects.toMatchObject({
      code: ErrorCode.MODEL_NOT_FOUND,
    });
    first.open("go on");
    for (const deltas of await Promise.all(calls))
      expect(foldDeltas(deltas)).toMatchObject({ text: "before after", finish: "stop", error: undefined });
  });
});

describe("secrets", () => {
  const key = KEYS.KEY_A;
  const forms = [
    ["as it is", key],
    ["in base64", Buffer.from(key).toString("base64")],
    ["in base64 behind a user name", Buffer.from(`ab:${key}`).toString("base64")],
    ["url-encoded", encodeURIComponent(`${key}/+`).replace("%2F%2B", "")],
    ["cut short", `${key.slice(0, 12)}...`],
    ["in a URL", `https://a.test/?key=${key}`],
  ] as const;

  test.each(forms)(
    "an error that echoes the key %s - masked in the delta and in the log",
    async (_, said) => {
      const lines: string[] = [];
      const logger = logTo(lines);
      const peer = await peerWith(config("", ", apiKeyEnv: KEY_A", ", maxRetries: 0"), { logger });
      first.reply([
        status(400),
        send(JSON.stringify({ error: { message: `wrong: ${said} !`, code: said } })),
      ]);
      first.reply([
        ...textChunks("a"),
        send(`data: ${JSON.stringify({ error: { message: said, type: said } })}\n\n`),
        end,
      ]);
      const shown = JSON.stringify([
        await collectDeltas(peer, completionRequest("a")),
        await collectDeltas(peer, completionRequest("a")),
      ]);
      for (const text of [shown, ...lines]) {
        expect(text).not.toContain(key.slice(0, 12));
        expect(text).not.toContain(said);
      }
      expect(lines.length).toBeGreaterThan(0);
    },
  );

  test("an answer that echoes the key - masked, cut anywhere", async () => {
    const peer = await peerWith(config("", ", apiKeyEnv: KEY_A"));
    const text = `you sent Bearer ${key}, thanks`;
    first.reply([...[...text].map((letter) => deltaChunk({ content: letter })), ...finishChunks("stop")]);
    const { text: got } = foldDeltas(await collectDeltas(peer, completionRequest("a")));
    expect(got).not.toContain(key.slice(4));
    expect(got).toMatch(/^you sent Bearer .{0,3}\[key\], thanks$/);
  });
});

test("secrets - an answer and an error that echo a header's secret value are masked, a plain value is not", async () => {
  const headers = "headers: { x-title: Weather Report }, headersEnv: { x-gateway: KEY_A, x-pass: GATE }";
  const yaml = `providers: [{ name: p, api: openai-chat, baseUrl: "${first.url}", ${headers}, models: [a] }]`;
  const peer = await peerWith(llmConfig(yaml, { ...KEYS, GATE: "Bearer gate-9876543210" }));
  const echo = `Weather Report ${KEYS.KEY_A} gate-9876543210`;
  first.reply(answerScript(echo));
  first.reply([status(400), send(JSON.stringify({ error: { message: echo } }))]);
  expect(foldDeltas(await collectDeltas(peer, completionRequest("a"))).text).toBe(
    "Weather Report [key] [key]",
  );
  expect(first.requests.at(-1)!.headers).toMatchObject({
    ...{ "x-title": "Weather Report", "x-gateway": KEYS.KEY_A, "x-pass": "Bearer gate-9876543210" },
  });
  const { error } = foldDeltas(await collectDeltas(peer, completionRequest("a")));
  expect(error?.message).toContain("Weather Report [key] [key]");
});

describe("reload", () => {
  test("running calls go on, new ones are asked elsewhere, a removed provider closes after its last call", async () => {
    const peer = await peerWith(config());
    first.reply([...textChunks("be"), gate("reload"), ...textChunks("fore"), ...finishChunks("stop")]);
    const running = collectDeltas(peer, completionRequest("a"));
    await first.reached("reload");
    const connection = first.requests.at(-1)!;
    peer.service.reload(
      llmConfig(`providers: [{ name: two, api: openai-chat, baseUrl: "${second.url}", models: [a] }]`),
    );
    second.reply(answerScript("after"));
    expect(foldDeltas(await collectDeltas(peer, completionRequest("a")))).toMatchObject({ text: "after" });
    await expect(collectDeltas(peer, completionRequest("b"))).rejects.toMatchObject({
      code: ErrorCode.MODEL_NOT_FOUND,
    });
    expect(connection.closedAt).toBeUndefined();
    first.open("reload");
    expect(foldDeltas(await running)).toMatchObject({ text: "before", finish: "stop" });
    await first.idle(); // no connection of the removed provider is left
  });

  test("a provider that did not change keeps its connections", async () => {
    const peer = await peerWith(config());
    first.replyWith(() => answerScript("x"));
    await collectDeltas(peer, completionRequest("a"));
    const before = first.requests.at(-1)!.connection;
    peer.service.reload(config("prices: [{ model: a, input: 1, output: 1 }]"));
    const deltas = await collectDeltas(peer, completionRequest("a"));
    expect(first.requests.at(-1)!.connection).toBe(before);
    expect(valueOf(deltas, "usage")).toMatchObject([{ usage: { costMicros: "30" } }]);
  });
});

/** A logger whose lines are kept as text. */
function logTo(lines: string[]): Logger {
  const keep = (...args: unknown[]): void => void lines.push(JSON.stringify(args));
  const logger = {
    trace: keep,
    debug: keep,
    info: keep,
    warn: keep,
    error: keep,
    fatal: keep,
    child: () => logger,
  };
  return logger as unknown as Logger;
}

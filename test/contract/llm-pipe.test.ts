/** Pipes: a peer behind the peer. Here another Turnwire, so that everything a pipe may say is said. */
import { create } from "@bufbuild/protobuf";
import { afterEach, beforeEach, expect, test } from "vitest";
import {
  CountTokensRequestSchema,
  EmbedRequestSchema,
  ListModelsRequestSchema,
  type CompletionDelta,
} from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { foldDeltas } from "../support/completion-result.js";
import {
  collectDeltas,
  completionRequest,
  kindsOf,
  llmConfig,
  startLlmPeer,
  type LlmPeer,
} from "../support/llm-peer.js";
import { ManualClock } from "../support/manual-clock.js";
import {
  answerScript,
  destroySocket,
  finishChunks,
  gate,
  never,
  reasoningChunks,
  send,
  startScriptedUpstream,
  status,
  textChunks,
  type ScriptedUpstream,
} from "../support/scripted-upstream.js";

let upstream: ScriptedUpstream;
let behind: LlmPeer;
let front: LlmPeer;

beforeEach(async () => {
  upstream = await startScriptedUpstream();
  behind = await startLlmPeer(behindConfig());
  front = await startLlmPeer(frontConfig(behind.port));
});
afterEach(async () => {
  await front.close();
  await behind.close();
  await upstream.close();
});

function behindConfig() {
  return llmConfig(`
providers: [{ name: real, api: openai-chat, baseUrl: "${upstream.url}", models: [{ id: a, contextTokens: 99, aliases: [z] }, b] }]
routes: [{ id: arena, kind: arena, models: [a, b] }]
prices: [{ model: a, input: 1, output: 2 }]
limits: { llm: { retryDelayMs: 1 } }`);
}

function frontConfig(port: number) {
  return llmConfig(`
providers:
  - { name: pipe, api: pipe, address: "127.0.0.1:${port}" }
  - { name: direct, api: openai-chat, baseUrl: "${upstream.url}", models: [spare] }
limits: { llm: { retryDelayMs: 1, maxRetries: 0, connectTimeoutMs: 500, stallTimeoutMs: 5000 } }`);
}

const signal = new AbortController().signal;
const valueOf = (deltas: readonly CompletionDelta[], kind: CompletionDelta["delta"]["case"]) =>
  deltas.filter(({ delta }) => delta.case === kind).map(({ delta }) => delta.value);

test("its models are listed under its name, with all that it says of them", async () => {
  const { models } = await front.client.unary("listModels", create(ListModelsRequestSchema), { signal });
  expect(models.map(({ modelId }) => modelId)).toEqual([
    "spare",
    "pipe/a",
    "pipe/b",
    "pipe/arena",
    "pipe/demo",
    "demo",
  ]);
  expect(models[1]).toMatchObject({
    ...{ contextTokens: 99, aliases: ["pipe/z"], displayName: "a" },
    price: { inputMicrosPerMtok: "1000000", outputMicrosPerMtok: "2000000" },
  });
});

test("its deltas are passed through, its names of models under the prefix", async () => {
  upstream.reply([...reasoningChunks("hm"), ...textChunks("hello there"), ...finishChunks("stop")]);
  const deltas = await collectDeltas(front, completionRequest("pipe/z"));
  expect(foldDeltas(deltas)).toMatchObject({
    ...{ text: "hello there", reasoning: "hm", finish: "stop", usage: { input: 10, output: 20 } },
  });
  expect(valueOf(deltas, "attemptStarted")).toMatchObject([
    { attempt: 1, provider: "pipe", upstreamModel: "a" },
  ]);
  expect(
    new Set(valueOf(deltas, "modelSelected").map((value) => (value as { modelId: string }).modelId)),
  ).toEqual(new Set(["pipe/a"]));
});

test("attempts that it makes by itself are ours, too", async () => {
  upstream.reply([...reasoningChunks("first try"), destroySocket]);
  upstream.reply(answerScript("second try"));
  const deltas = await collectDeltas(front, completionRequest("pipe/a"));
  expect(kindsOf(deltas)).toEqual([
    ...["attemptStarted", "modelSelected", "reasoning", "usage", "attemptBoundary", "attemptStarted"],
    ...["modelSelected", "content", "usage", "finish"],
  ]);
  expect(valueOf(deltas, "attemptBoundary")).toMatchObject([{ failedAttempt: 1, nextModelId: "pipe/a" }]);
  expect(valueOf(deltas, "usage")).toMatchObject([{ attempt: 1 }, { attempt: 2 }]);
});

test("its arena tells the pick at the end", async () => {
  upstream.replyWith(() => answerScript("who am I"));
  const deltas = await collectDeltas(front, completionRequest("pipe/arena"));
  const last = valueOf(deltas, "modelSelected").at(-1) as { modelId: string };
  expect(["pipe/a", "pipe/b"]).toContain(last.modelId);
  expect(kindsOf(deltas).slice(-2)).toEqual(["modelSelected", "finish"]);
});

test("its errors are typed, and fall back", async () => {
  upstream.reply([status(400), send(`{"error":{"message":"bad sk-live-0123456789abcdef"}}`)]);
  const failed = await collectDeltas(front, completionRequest("pipe/a"));
  expect(failed.at(-1)?.delta).toMatchObject({ case: "error", value: { code: ErrorCode.UPSTREAM_REJECTED } });
  expect(JSON.stringify(failed)).not.toContain("0123456789abcdef");
  upstream.reply([status(400), send("{}")]);
  upstream.reply(answerScript("spared"));
  expect(
    foldDeltas(await collectDeltas(front, completionRequest("pipe/a", { fallbackModelIds: ["spare"] }))),
  ).toMatchObject({ text: "spared" });
  const unknown = await collectDeltas(front, completionRequest("pipe/demo"));
  expect(foldDeltas(unknown)).toMatchObject({ finish: "stop" });
});

test("a cancel goes through to the last socket", async () => {
  upstream.reply([...textChunks("a b"), gate("open"), never]);
  const leaving = new AbortController();
  const call = collectDeltas(front, completionRequest("pipe/a"), leaving.signal);
  await upstream.reached("open");
  leaving.abort(new Error("gone"));
  await expect(call).rejects.toThrow("gone");
  await upstream.requests.at(-1)!.closed;
});

test("a pipe that dies in mid-answer - cut off, what came is kept; dead - unavailable", async () => {
  upstream.reply([...textChunks("half"), gate("half"), never]);
  const deltas: CompletionDelta[] = [];
  const isContent = ({ delta }: CompletionDelta): boolean => delta.case === "content";
  for await (const response of front.client.serverStream("streamCompletion", completionRequest("pipe/a"), {
    signal,
  })) {
    if (!deltas.some(isContent) && response.deltas.some(isContent)) await behind.close();
    deltas.push(...response.deltas);
  }
  expect(foldDeltas(deltas)).toMatchObject({ text: "half", error: { retryable: true } });
  expect(foldDeltas(await collectDeltas(front, completionRequest("pipe/a")))).toMatchObject({
    error: { code: "UPSTREAM_UNAVAILABLE" },
  });
});

test(
  "a pipe that goes is left out within seconds, its fallback is asked at once, and it is back when it is",
  { timeout: 90_000 },
  async () => {
    const clock = new ManualClock();
    const { limits, ...rest } = frontConfig(behind.port);
    // Its connection may rest between two tries: a call waits for it.
    const own = await startLlmPeer({ ...rest, limits: { ...limits, connectTimeoutMs: 20_000 } }, { clock });
    const listed = async (): Promise<string[]> => {
      const { models } = await own.client.unary("listModels", create(ListModelsRequestSchema), { signal });
      return models.map(({ modelId }) => modelId);
    };
    /** Health is asked every two seconds of the clock; its answers take real time. */
    const until = async (hasPipe: boolean): Promise<void> => {
      for (;;) {
        if ((await listed()).includes("pipe/a") === hasPipe) return;
        clock.advance(2_000);
      }
    };
    try {
      await until(true);
      behind.health.set(false); // it says so itself
      await until(false);
      expect(await listed()).toEqual(["spare", "demo"]);
      behind.health.set(true);
      await until(true);
      await behind.close(); // nobody is there
      await until(false);
      upstream.reply(answerScript("spared"));
      const spared = await collectDeltas(own, completionRequest("pipe/a", { fallbackModelIds: ["spare"] }));
      expect(foldDeltas(spared)).toMatchObject({ text: "spared" });
      expect(valueOf(spared, "attemptBoundary")).toHaveLength(1);
      behind = await startLlmPeer(behindConfig(), { port: behind.port });
      await until(true);
      upstream.reply(answerScript("back"));
      expect(foldDeltas(await collectDeltas(own, completionRequest("pipe/a")))).toMatchObject({
        text: "back",
      });
    } finally {
      await own.close();
    }
    expect(clock.sleeping).toBe(0);
  },
);

test("tokens and embeddings are its own", async () => {
  const counted = await front.client.unary(
    "countTokens",
    create(CountTokensRequestSchema, { input: completionRequest("pipe/a").input! }),
    { signal },
  );
  expect(counted.tokens).toBe(5);
  upstream.reply([
    status(200),
    send(JSON.stringify({ data: [{ index: 0, embedding: [1, 2] }], usage: { prompt_tokens: 3 } })),
  ]);
  const embedded = await front.client.unary(
    "embed",
    create(EmbedRequestSchema, { modelId: "pipe/a", inputs: ["x"] }),
    {
      signal,
    },
  );
  expect(embedded.embeddings[0]?.values).toEqual([1, 2]);
});

/**
 * Calls that are cancelled in odd places leave nothing behind (I17): no socket, timer, place or count. Time moves by hand
 * where it matters.
 */
import { create } from "@bufbuild/protobuf";
import { setImmediate } from "node:timers/promises";
import { describe, expect, onTestFinished, test } from "vitest";
import {
  CountTokensRequestSchema,
  DecodeCompletionRequestSchema,
  EmbedRequestSchema,
  type DecodeCompletionRequest,
} from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { systemClock, type Clock } from "../../src/lib/clock.js";
import { deferred } from "../../src/lib/signals.js";
import type { LlmConfig } from "../../src/llm/config.js";
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
  gate,
  never,
  send,
  startScriptedUpstream,
  status,
  textChunks,
  type ScriptedUpstream,
} from "../support/scripted-upstream.js";

const DONE = send("data: [DONE]\n\n");
const LIMITS = "maxConcurrent: 4, maxQueued: 64, breakerFailures: 1, breakerOpenMs: 10000";
const NOTHING = { calls: 0, taken: 0, waiting: 0 };

/** A chat model `m`, and a model `c` whose server counts tokens. */
const configOf = (url: string, limits = LIMITS): LlmConfig =>
  llmConfig(`
providers:
  - { name: one, api: openai-chat, baseUrl: "${url}", models: [m], limits: { ${limits} } }
  - { name: two, api: anthropic-messages, baseUrl: "${url}", models: [c] }
limits: { llm: { retryDelayMs: 60000, maxRetryDelayMs: 60000 } }`);

async function usePeer(
  clock: Clock,
  limits?: string,
): Promise<{ readonly upstream: ScriptedUpstream; readonly peer: LlmPeer }> {
  const upstream = await startScriptedUpstream();
  const peer = await startLlmPeer(configOf(upstream.url, limits), { clock });
  onTestFinished(async () => {
    await peer.close();
    await upstream.close();
  });
  return { upstream, peer };
}

/** A call in the background, and what ends it. */
function start(
  peer: LlmPeer,
  signal?: AbortSignal,
): { readonly leave: () => void; readonly over: Promise<unknown> } {
  const leaving = new AbortController();
  const both = signal ? AbortSignal.any([signal, leaving.signal]) : leaving.signal;
  return {
    leave: () => leaving.abort(),
    over: collectDeltas(peer, completionRequest("m"), both).catch(() => undefined),
  };
}

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const list: T[] = [];
  for await (const item of items) list.push(item);
  return list;
}

/** Looks in each turn of the event loop, until the end of the test at most. */
async function until(condition: () => boolean): Promise<void> {
  let over = false;
  onTestFinished(() => void (over = true));
  while (!over && !condition()) await setImmediate();
}

const isIdle = ({ service }: LlmPeer) => {
  const { calls, taken, waiting } = service.load;
  return calls === 0 && taken === 0 && waiting === 0;
};

async function expectNothingLeft(peer: LlmPeer, clock: ManualClock): Promise<void> {
  await until(() => isIdle(peer) && clock.sleeping === 0);
  expect(peer.service.load).toEqual(NOTHING);
}

describe("llm peer - a cancel leaves nothing behind", () => {
  test("of a configuration that was replaced meanwhile: its connections close too", async () => {
    const clock = new ManualClock();
    const { upstream, peer } = await usePeer(clock);
    upstream.replyWith(() => [...textChunks("a"), gate("answer"), never]);
    const call = start(peer);
    await upstream.reached("answer");
    peer.service.reload(configOf(upstream.url, `${LIMITS}, queueTimeoutMs: 1`));
    expect(peer.service.load).toEqual({ calls: 1, taken: 1, waiting: 0 });
    call.leave();
    await upstream.requests[0]!.closed;
    await upstream.idle();
    await expectNothingLeft(peer, clock);
  });

  test("of the one call of a half-open breaker: the next call asks", async () => {
    const clock = new ManualClock();
    const { upstream, peer } = await usePeer(clock);
    upstream.reply([status(500), send("{}")]);
    const failing = start(peer);
    await until(() => upstream.requests.length === 1 && peer.service.load.taken === 0);
    failing.leave();
    await until(() => isIdle(peer));
    clock.advance(10_000);
    upstream.reply([gate("probe"), never]);
    const probe = start(peer);
    await upstream.reached("probe");
    probe.leave();
    await expectNothingLeft(peer, clock);
    upstream.reply([...textChunks("again"), DONE]);
    expect(kindsOf(await collectDeltas(peer, completionRequest("m")))).toContain("content");
    await expectNothingLeft(peer, clock);
  });

  test("in the pause before a retry: nobody is asked again", async () => {
    const clock = new ManualClock();
    const { upstream, peer } = await usePeer(clock, "breakerFailures: 0");
    upstream.replyWith(() => [status(503), send("{}")]);
    const call = start(peer);
    await until(() => upstream.requests.length === 1 && peer.service.load.taken === 0);
    expect(peer.service.load.calls).toBe(1);
    call.leave();
    await expectNothingLeft(peer, clock);
    clock.advance(600_000);
    await setImmediate();
    expect(upstream.requests).toHaveLength(1);
  });

  test("in the queue, by the caller's deadline: the place in the queue is free, nobody is asked", async () => {
    const clock = new ManualClock();
    const { upstream, peer } = await usePeer(clock, "maxConcurrent: 1, maxQueued: 1");
    upstream.replyWith(() => [gate("held"), never]);
    const holding = start(peer);
    await upstream.reached("held");
    const waiting = peer.client.serverStream("streamCompletion", completionRequest("m"), {
      ...{ signal: new AbortController().signal, timeoutMs: 300 },
    });
    await expect(all(waiting)).rejects.toThrow();
    await until(() => peer.service.load.waiting === 0);
    expect(peer.service.load).toEqual({ calls: 1, taken: 1, waiting: 0 });
    holding.leave();
    await expectNothingLeft(peer, clock);
    expect(upstream.requests).toHaveLength(1);
  });

  test("of embeddings and of a count: the connection closes, the place is free", async () => {
    const clock = new ManualClock();
    const { upstream, peer } = await usePeer(clock);
    const asks = {
      embed: (signal: AbortSignal) =>
        peer.client.unary("embed", create(EmbedRequestSchema, { modelId: "m", inputs: ["x"] }), { signal }),
      count: (signal: AbortSignal) =>
        peer.client.unary(
          "countTokens",
          create(CountTokensRequestSchema, { input: completionRequest("c").input! }),
          { signal },
        ),
    };
    for (const [name, ask] of Object.entries(asks)) {
      upstream.reply([status(200), gate(name), never]);
      const leaving = new AbortController();
      const call = ask(leaving.signal).catch(() => "left");
      await upstream.reached(name);
      leaving.abort();
      expect(await call).toBe("left");
      await upstream.requests.at(-1)!.closed;
      await expectNothingLeft(peer, clock);
    }
  });

  test("of a response that its caller relays: its timer ends", async () => {
    const clock = new ManualClock();
    const { peer } = await usePeer(clock);
    const relay = relayOf(deferred<void>().promise);
    const leaving = new AbortController();
    const stream = peer.client.bidiStream("decodeCompletion", relay, { signal: leaving.signal });
    await stream.next();
    leaving.abort();
    await expect(stream.next()).rejects.toThrow();
    await expectNothingLeft(peer, clock);
  });
});

/** The beginning of a relayed answer; its end when `more` resolves. */
async function* relayOf(more: Promise<void>): AsyncGenerator<DecodeCompletionRequest> {
  const frame = (init: object) =>
    create(DecodeCompletionRequestSchema, { frame: init as DecodeCompletionRequest["frame"] });
  const head = {
    api: "openai-chat",
    input: { modelId: "m" },
    httpStatus: 200,
    contentType: "text/event-stream",
  };
  yield frame({ case: "start", value: head });
  yield frame({ case: "chunk", value: Buffer.from(`data: {"choices":[{"delta":{"content":"a"}}]}\n\n`) });
  await more;
  yield frame({ case: "chunk", value: Buffer.from("data: [DONE]\n\n") });
  yield frame({ case: "end", value: {} });
}

describe("llm peer - soak", () => {
  const CALLS = 2_000;
  const AT_ONCE = 24;

  test(
    `${CALLS} mixed calls, cancelled anywhere - no socket, timer, place or count is left`,
    { timeout: 120_000 },
    async () => {
      const clock = new CountingClock();
      const { upstream, peer } = await usePeer(clock, "maxConcurrent: 8, maxQueued: 64, breakerFailures: 0");
      upstream.replyWith(({ json }) => scriptOf(String(json?.messages?.[0]?.["content"] ?? "embed")));
      const random = seeded(5);
      const kinds = ["ends", "stays", "silent", "fails", "embed", "count", "relay"] as const;
      const ends = { whole: 0, cancelled: 0 };
      let left = CALLS;
      const worker = async (): Promise<void> => {
        while (left-- > 0) {
          const kind = kinds[Math.floor(random() * kinds.length)]!;
          const leaving = new AbortController();
          const turns = Math.floor(random() * 12);
          const call = callOf(kind, leaving.signal).then(
            () => ends.whole++,
            () => ends.cancelled++,
          );
          for (let turn = 0; turn < turns; turn++) await setImmediate();
          if (!["ends", "embed"].includes(kind) || random() < 0.5) leaving.abort();
          await call;
        }
      };
      const callOf = async (kind: (typeof kinds)[number], signal: AbortSignal): Promise<unknown> => {
        switch (kind) {
          case "embed":
            return peer.client.unary("embed", create(EmbedRequestSchema, { modelId: "m", inputs: ["x"] }), {
              signal,
            });
          case "count": {
            const request = completionRequest("c");
            return peer.client.unary(
              "countTokens",
              create(CountTokensRequestSchema, { input: request.input! }),
              { signal },
            );
          }
          case "relay":
            return all(
              peer.client.bidiStream(
                "decodeCompletion",
                relayOf(random() < 0.5 ? setImmediate() : deferred<void>().promise),
                { signal },
              ),
            );
          default: {
            const request = completionRequest("m");
            request.input!.messages[0]!.parts[0]!.part = { case: "text", value: kind };
            return collectDeltas(peer, request, signal);
          }
        }
      };
      await Promise.all(Array.from({ length: AT_ONCE }, worker));
      expect(ends.whole + ends.cancelled).toBe(CALLS);
      expect(Math.min(ends.whole, ends.cancelled)).toBeGreaterThan(CALLS / 10);
      await until(() => isIdle(peer) && clock.sleeping === 0);
      expect(peer.service.load).toEqual(NOTHING);
      await upstream.idle(); // connections that were kept for the next call close soon
    },
  );

  function scriptOf(kind: string) {
    switch (kind) {
      case "ends":
        return [...textChunks("one two three"), DONE];
      case "stays":
        return [...textChunks("one two three"), never];
      case "fails":
        return [status(503), send("{}")];
      case "embed":
        return [status(200), send(`{"data":[{"index":0,"embedding":[1]}]}`)];
      default:
        return [never];
    }
  }
});

/** The system's time; knows how many sleep. */
class CountingClock implements Clock {
  sleeping = 0;
  now = systemClock.now;
  monotonicMs = systemClock.monotonicMs;

  async sleep(ms: number, signal?: AbortSignal): Promise<void> {
    this.sleeping++;
    try {
      await systemClock.sleep(ms, signal);
    } finally {
      this.sleeping--;
    }
  }
}

/** The same numbers in [0, 1) in every run. */
function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

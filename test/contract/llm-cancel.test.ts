/**
 * Who cancels a model call closes the provider's socket: within 50 ms (p99 of 200 calls), in every phase of the call. The time
 * is the plain time between the cancel of the gRPC client and the upstream's own close event; where there is no socket (in the
 * queue, between two attempts), until the llm peer has let the call go. Client, peer and upstream share this process.
 */
import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { setImmediate } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, describe, expect, test, type TestContext } from "vitest";
import type { StreamCompletionRequest } from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import {
  collectDeltas,
  completionRequest,
  llmConfig,
  startLlmPeer,
  type LlmPeer,
} from "../support/llm-peer.js";
import {
  chunk,
  deltaChunk,
  gate,
  never,
  reasoningChunks,
  send,
  startScriptedUpstream,
  status,
  textChunks,
  type Script,
  type ScriptedUpstream,
  type Step,
} from "../support/scripted-upstream.js";

const CALLS = 200;
const ROUNDS = 4;
const LIMIT_MS = 50;
/** A bare socket closes faster than this (p99) when nothing else runs. */
const QUIET_MS = 5;
const TEST_MS = 120_000;

let upstream: ScriptedUpstream;
let peer: LlmPeer;
let bare: SilentServer;

beforeAll(async () => {
  bare = await silentServer();
  upstream = await startScriptedUpstream();
  peer = await startLlmPeer(configOf(upstream.url));
});
afterEach(() => upstream.replyWith(undefined));
afterAll(async () => {
  await peer.close();
  await upstream.close();
  await bare.close();
});

function configOf(baseUrl: string, provider = "", llm = "") {
  return llmConfig(`
providers: [{ name: one, api: openai-chat, baseUrl: "${baseUrl}", models: [m]${provider || ", limits: { breakerFailures: 0 }"} }]
limits: { llm: { retryDelayMs: 60000, maxRetryDelayMs: 60000${llm} } }`);
}

/** Makes one call, cancels it in its phase, and says when what it held was given up. */
type CancelledCall = (call: string, cancelled: () => void) => Promise<number>;

/**
 * Makes CALLS calls and expects the plain time between cancel and close to keep within the limit (p99). What else runs on the
 * machine can only make it longer: after a round that does not hold, bare sockets show whether the machine was disturbed, and
 * the round is made again, ROUNDS in all at most. Where it never was quiet, nothing is known, and the test says so. All is printed.
 */
async function expectPrompt(context: TestContext, phase: string, one: CancelledCall): Promise<void> {
  let quietRounds = 0;
  for (let round = 1; round <= ROUNDS; round++) {
    const p99 = await printedRound(`cancel ${phase}`, one);
    if (p99 <= LIMIT_MS) return;
    const machine = await printedRound("a bare socket on this machine", closeBareSocket);
    if (machine <= QUIET_MS) quietRounds++;
    if (quietRounds === 2) expect(p99).toBeLessThanOrEqual(LIMIT_MS);
  }
  context.skip("the machine is too busy to measure milliseconds");
}

/** Makes a round, prints what came of it, and gives its p99. */
async function printedRound(name: string, one: CancelledCall): Promise<number> {
  const times = await measureRound(one);
  const [p50, p99] = [0.5, 0.99].map((share) => times[Math.ceil(CALLS * share) - 1]!) as [number, number];
  const longest = times.at(-1)!;
  process.stdout.write(
    `${name}: p50 ${p50.toFixed(1)} ms, p99 ${p99.toFixed(1)} ms, longest ${longest.toFixed(1)} ms\n`,
  );
  return p99;
}

/** What closing a socket takes when nobody of ours is in between. */
async function closeBareSocket(_: string, cancelled: () => void): Promise<number> {
  const arrived = bare.nextSocket();
  const client = connect(bare.port, "127.0.0.1");
  const [socket] = await Promise.all([arrived, once(client, "connect")]);
  const closed = closedAt(socket);
  cancelled();
  client.destroy();
  return closed;
}

let calls = 0;

/** The times of a round, the shortest first. */
async function measureRound(one: CancelledCall): Promise<number[]> {
  const times: number[] = [];
  for (let call = 0; call < CALLS; call++) {
    let cancelledAt = Infinity;
    const closed = await one(`call-${calls++}`, () => (cancelledAt = performance.now()));
    times.push(closed - cancelledAt);
  }
  return times.sort((x, y) => x - y);
}

/** When this came true: looked at in each turn of the event loop. */
async function untilTrue(condition: () => boolean): Promise<number> {
  while (!condition()) await setImmediate();
  return performance.now();
}

/** Starts a call that is read to its end, or to its cancel. */
function startCall(
  of: LlmPeer,
  modelId = "m",
): { readonly cancel: () => void; readonly over: Promise<unknown> } {
  const leaving = new AbortController();
  const over = collectDeltas(of, completionRequest(modelId), leaving.signal).catch(() => undefined);
  return { cancel: () => leaving.abort(), over };
}

interface SilentServer {
  readonly port: number;
  /** The next connection, each once. */
  nextSocket(): Promise<Socket>;
  close(): Promise<void>;
}

/** A server that takes connections and never says a word; tells of each. */
async function silentServer(): Promise<SilentServer> {
  const waiting: ((socket: Socket) => void)[] = [];
  const early: Socket[] = [];
  const server: Server = createServer((socket) => {
    socket.on("error", () => undefined); // its end is what is waited for
    socket.resume();
    const wake = waiting.shift();
    if (wake) wake(socket);
    else early.push(socket);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    port: (server.address() as AddressInfo).port,
    nextSocket: () => {
      const socket = early.shift();
      return socket ? Promise.resolve(socket) : new Promise((resolve) => waiting.push(resolve));
    },
    close: () => new Promise((resolve) => server.close(() => resolve())),
  };
}

async function closedAt(socket: Socket): Promise<number> {
  if (!socket.destroyed) await once(socket, "close");
  return performance.now();
}

describe(`llm peer - a cancel closes the upstream's socket within ${LIMIT_MS} ms (p99 of ${CALLS})`, () => {
  test("while connecting", { timeout: TEST_MS }, async (context) => {
    const server = await silentServer();
    // TLS that is never answered: the connection does not come about.
    const own = await startLlmPeer(configOf(`https://127.0.0.1:${server.port}`));
    await expectPrompt(context, "while connecting", cancelWhen(own, server));
    await own.close();
    await server.close();
  });

  test("while waiting for headers", { timeout: TEST_MS }, async (context) => {
    const server = await silentServer();
    const own = await startLlmPeer(configOf(`http://127.0.0.1:${server.port}`));
    const asked = (socket: Socket) => (socket.bytesRead > 0 ? undefined : once(socket, "data"));
    await expectPrompt(context, "while waiting for headers", cancelWhen(own, server, asked));
    await own.close();
    await server.close();
  });

  const PHASES: readonly (readonly [string, Script])[] = [
    ["headers came, no token yet", [status(200, { "content-type": "text/event-stream" })]],
    ["a preamble came, nothing to show yet", [deltaChunk({ role: "assistant", content: "" })]],
    ["in the reasoning", reasoningChunks("let me think")],
    ["in the answer", textChunks("one two three")],
    ["in a tool call's arguments", [toolCallChunk()]],
    ["in the middle of an event", [...textChunks("a"), send(`data: {"choices":[{"delta":{"con`)]],
  ];
  test.for(PHASES)("%s", { timeout: TEST_MS }, async ([phase, script], context) => {
    upstream.replyWith(({ json }) => [...script, gate(questionOf(json)), never]);
    await expectPrompt(context, phase, cancelAtGate);
  });

  test("while our reader takes nothing", { timeout: TEST_MS }, async (context) => {
    const flood = Array.from({ length: 100 }, () => deltaChunk({ content: "x".repeat(8_000) }));
    upstream.replyWith(() => [...flood, never]);
    await expectPrompt(context, "while our reader takes nothing", async (call, cancelled) => {
      const leaving = new AbortController();
      const reader = readerOf(peer, requestOf(call), leaving.signal);
      for (let messages = 0; messages < 3; messages++) await reader.next();
      cancelled();
      leaving.abort();
      return requestNamed(call).closed;
    });
  });

  test("in the queue - it is left, and nobody is asked", { timeout: TEST_MS }, async (context) => {
    // Who does not leave the queue takes the place of the next one, which would be refused and never wait.
    const own = await startLlmPeer(configOf(upstream.url, ", limits: { maxConcurrent: 1, maxQueued: 1 }"));
    upstream.replyWith(() => [gate("queue"), never]);
    const holding = startCall(own);
    await upstream.reached("queue");
    const asked = upstream.requests.length;
    const cancelOne: CancelledCall = async (call, cancelled) => {
      const leaving = new AbortController();
      const over = collectDeltas(own, requestOf(call), leaving.signal).catch(() => undefined);
      await untilTrue(() => own.service.load.waiting === 1);
      cancelled();
      leaving.abort();
      const at = await untilTrue(() => own.service.load.waiting === 0);
      await over;
      return at;
    };
    await expectPrompt(context, "in the queue", cancelOne);
    expect(upstream.requests.length).toBe(asked);
    holding.cancel();
    await holding.over;
    await own.close();
  });

  test(
    "between two attempts - the call ends, and nobody is asked again",
    { timeout: TEST_MS },
    async (context) => {
      upstream.replyWith(() => [status(503), send("{}")]);
      const asked = upstream.requests.length;
      let made = 0;
      const cancelOne: CancelledCall = async (call, cancelled) => {
        const leaving = new AbortController();
        const reader = readerOf(peer, requestOf(call), leaving.signal);
        made++;
        for (let boundary = false; !boundary;) {
          const next = await reader.next();
          boundary = !next.done && next.value.deltas.some(({ delta }) => delta.case === "attemptBoundary");
        }
        cancelled();
        leaving.abort();
        return untilTrue(() => peer.service.load.calls === 0);
      };
      await expectPrompt(context, "between two attempts", cancelOne);
      expect(upstream.requests.length - asked).toBe(made);
    },
  );

  /** A call that is cancelled once its connection is `ready`. */
  function cancelWhen(
    own: LlmPeer,
    server: SilentServer,
    ready?: (socket: Socket) => Promise<unknown> | undefined,
  ): CancelledCall {
    return async (call, cancelled) => {
      const leaving = new AbortController();
      const arrived = server.nextSocket();
      const over = collectDeltas(own, requestOf(call), leaving.signal).catch(() => undefined);
      const socket = await arrived;
      const closed = closedAt(socket);
      await ready?.(socket);
      cancelled();
      leaving.abort();
      const at = await closed;
      await over;
      return at;
    };
  }

  /** A call that is cancelled when the upstream has reached the gate of its name. */
  async function cancelAtGate(call: string, cancelled: () => void): Promise<number> {
    const leaving = new AbortController();
    const over = collectDeltas(peer, requestOf(call), leaving.signal).catch(() => undefined);
    await upstream.reached(call);
    const { closed } = requestNamed(call);
    cancelled();
    leaving.abort();
    const at = await closed;
    await over;
    return at;
  }
});

type Recorded = ScriptedUpstream["requests"][number];

/** A request whose question is the call's name. */
function requestOf(call: string): StreamCompletionRequest {
  const request = completionRequest("m");
  request.input!.messages[0]!.parts[0]!.part = { case: "text", value: call };
  return request;
}

function questionOf(json: Recorded["json"]): string {
  return String(json?.messages?.[0]?.["content"]);
}

function requestNamed(call: string): Recorded {
  return upstream.requests.findLast(({ json }) => questionOf(json) === call)!;
}

function readerOf(of: LlmPeer, request: StreamCompletionRequest, signal: AbortSignal) {
  return of.client.serverStream("streamCompletion", request, { signal })[Symbol.asyncIterator]();
}

function toolCallChunk(): Step {
  const call = { index: 0, id: "c", function: { name: "t", arguments: '{"a' } };
  return chunk({ choices: [{ index: 0, delta: { tool_calls: [call] } }] });
}

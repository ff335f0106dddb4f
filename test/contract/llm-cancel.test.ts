/**
 * Who cancels a model call closes the provider's socket: within 50 ms (p99 of 200 calls), in every phase of the call. The time
 * is taken between the cancel of the gRPC client and the upstream's own close event.
 */
import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { deferred } from "../../src/lib/signals.js";
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
} from "../support/scripted-upstream.js";

const CALLS = 200;
const ROUNDS = 3;
const LIMIT_MS = 50;
const TEST_MS = 120_000;

let upstream: ScriptedUpstream;
let peer: LlmPeer;
let bare: SilentServer;
let closeBare: () => Promise<void>;
const opened: (() => Promise<void>)[] = [];

beforeAll(async () => {
  bare = await silentServer();
  closeBare = opened.pop()!;
  upstream = await startScriptedUpstream();
  peer = await startLlmPeer(configOf(upstream.url));
});
afterEach(async () => {
  for (const close of opened.splice(0)) await close();
  upstream.replyWith(undefined);
});
afterAll(async () => {
  await peer.close();
  await upstream.close();
  await closeBare();
});

function configOf(baseUrl: string, provider = "", llm = "") {
  return llmConfig(`
providers: [{ name: one, api: openai-chat, baseUrl: "${baseUrl}", models: [m]${provider || ", limits: { breakerFailures: 0 }"} }]
limits: { llm: { retryDelayMs: 60000, maxRetryDelayMs: 60000${llm} } }`);
}

/**
 * Milliseconds from the cancel to the end of the socket, for CALLS calls. Whatever else runs on the machine can only make them
 * longer: the best of ROUNDS rounds counts.
 */
async function measure(one: CancelledCall): Promise<{ readonly p50: number; readonly p99: number }> {
  let best = { p50: Infinity, p99: Infinity };
  for (let round = 0; round < ROUNDS && best.p99 > LIMIT_MS; round++) {
    const measured = await measureRound(one);
    if (measured.p99 < best.p99) best = measured;
  }
  return best;
}

/** Makes one call, cancels it at its phase, and says when the socket closed. */
type CancelledCall = (call: string, cancelled: () => number) => Promise<number>;

let calls = 0;

async function measureRound(one: CancelledCall): Promise<{ readonly p50: number; readonly p99: number }> {
  const times: number[] = [];
  for (let call = 0; call < CALLS; call++) {
    const bare = await bareSocket();
    let cancelledAt = 0;
    let bareMs: Promise<number> | undefined;
    const closed = await one(`call-${calls++}`, () => {
      bareMs = bare.close();
      return (cancelledAt = performance.now());
    });
    times.push(Math.max(0, closed - cancelledAt - (await bareMs!)));
  }
  times.sort((x, y) => x - y);
  return { p50: times[Math.floor(CALLS / 2)]!, p99: times[Math.ceil(CALLS * 0.99) - 1]! };
}

/** A bare connection: what closing it takes is what the machine takes, and is not counted. */
async function bareSocket(): Promise<{ close(): Promise<number> }> {
  const arrived = bare.nextSocket();
  const client = connect(bare.port, "127.0.0.1");
  const [socket] = await Promise.all([arrived, once(client, "connect")]);
  return {
    close: async () => {
      const since = performance.now();
      client.destroy();
      return (await closedAt(socket)) - since;
    },
  };
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
  opened.push(() => new Promise((resolve) => server.close(() => resolve())));
  return {
    port: (server.address() as AddressInfo).port,
    nextSocket: () => {
      const socket = early.shift();
      return socket ? Promise.resolve(socket) : new Promise((resolve) => waiting.push(resolve));
    },
  };
}

async function closedAt(socket: Socket): Promise<number> {
  if (!socket.destroyed) await once(socket, "close");
  return performance.now();
}

describe(`llm peer - a cancel closes the upstream's socket within ${LIMIT_MS} ms (p99 of ${CALLS})`, () => {
  test("while connecting", { timeout: TEST_MS }, async () => {
    const server = await silentServer();
    // TLS that is never answered: the connection does not come about.
    const own = await startLlmPeer(configOf(`https://127.0.0.1:${server.port}`));
    const { p99 } = await measure(async (_, cancelled) => {
      const arrived = server.nextSocket();
      const call = startCall(own);
      const socket = await arrived;
      const closed = closedAt(socket);
      cancelled();
      call.cancel();
      const at = await closed;
      await call.over;
      return at;
    });
    await own.close();
    expect(p99).toBeLessThanOrEqual(LIMIT_MS);
  });

  test("while waiting for headers", { timeout: TEST_MS }, async () => {
    const server = await silentServer();
    const own = await startLlmPeer(configOf(`http://127.0.0.1:${server.port}`));
    const { p99 } = await measure(async (_, cancelled) => {
      const arrived = server.nextSocket();
      const call = startCall(own);
      const socket = await arrived;
      const closed = closedAt(socket);
      if (socket.bytesRead === 0) await once(socket, "data");
      cancelled();
      call.cancel();
      const at = await closed;
      await call.over;
      return at;
    });
    await own.close();
    expect(p99).toBeLessThanOrEqual(LIMIT_MS);
  });

  const PHASES: readonly (readonly [string, Script])[] = [
    ["headers came, no token yet", [status(200, { "content-type": "text/event-stream" }), gate("at"), never]],
    [
      "a preamble came, nothing to show yet",
      [deltaChunk({ role: "assistant", content: "" }), gate("at"), never],
    ],
    ["in the reasoning", [...reasoningChunks("let me think"), gate("at"), never]],
    ["in the answer", [...textChunks("one two three"), gate("at"), never]],
    [
      "in a tool call's arguments",
      [
        chunk({
          choices: [
            {
              index: 0,
              delta: { tool_calls: [{ index: 0, id: "c", function: { name: "t", arguments: '{"a' } }] },
            },
          ],
        }),
        gate("at"),
        never,
      ],
    ],
    [
      "in the middle of an event",
      [...textChunks("a"), send(`data: {"choices":[{"delta":{"con`), gate("at"), never],
    ],
  ];
  test.each(PHASES)("%s", { timeout: TEST_MS }, async (_, script) => {
    const { p99 } = await measure(async (call, cancelled) => {
      const started = startCallAt(script, call);
      await upstream.reached(call);
      const request = started.request();
      cancelled();
      started.cancel();
      const at = await request.closed;
      await started.over;
      return at;
    });
    expect(p99).toBeLessThanOrEqual(LIMIT_MS);
  });

  /** A call whose script's gate has a name of its own. */
  function startCallAt(script: Script, name: string) {
    const id = `m-${name}`;
    const own = script.map((step) => (step.kind === "gate" ? gate(name) : step));
    upstream.replyWith((request) => scripts.get(questionOf(request.json)) ?? own);
    scripts.set(id, own);
    const leaving = new AbortController();
    const request = completionRequest("m", {});
    request.input!.messages[0]!.parts[0]!.part = { case: "text", value: id };
    const over = collectDeltas(peer, request, leaving.signal).catch(() => undefined);
    return {
      over: over.then(() => scripts.delete(id)),
      cancel: () => leaving.abort(),
      request: () => upstream.requests.findLast(({ json }) => questionOf(json) === id)!,
    };
  }
  const scripts = new Map<string, Script>();
  const questionOf = (json: (typeof upstream.requests)[number]["json"]): string =>
    String(json?.messages?.[0]?.["content"]);

  test("while our reader takes nothing", { timeout: TEST_MS }, async () => {
    const flood = Array.from({ length: 100 }, () => deltaChunk({ content: "x".repeat(8_000) }));
    const { p99 } = await measure(async (call, cancelled) => {
      const started = startUnreadCall(call);
      await started.first;
      const request = upstream.requests.findLast(({ json }) => questionOf(json) === call)!;
      cancelled();
      started.cancel();
      return request.closed;
    });
    expect(p99).toBeLessThanOrEqual(LIMIT_MS);

    function startUnreadCall(id: string) {
      upstream.replyWith(() => [...flood, never]);
      const leaving = new AbortController();
      const request = completionRequest("m", {});
      request.input!.messages[0]!.parts[0]!.part = { case: "text", value: id };
      const stream = peer.client.serverStream("streamCompletion", request, { signal: leaving.signal });
      const reader = stream[Symbol.asyncIterator]();
      const readSome = async (): Promise<void> => {
        for (let messages = 0; messages < 3; messages++) await reader.next();
      };
      return { first: readSome(), cancel: () => leaving.abort() };
    }
  });

  test(
    "in the queue - the place in it is free at once, and nobody is asked",
    { timeout: TEST_MS },
    async () => {
      const own = await startLlmPeer(configOf(upstream.url, ", limits: { maxConcurrent: 1, maxQueued: 1 }"));
      upstream.replyWith(() => [gate("queue"), never]);
      const holding = startCall(own);
      await upstream.reached("queue");
      const asked = upstream.requests.length;
      const { p99 } = await measure(async (_, cancelled) => {
        const leaving = new AbortController();
        const reader = own.client
          .serverStream("streamCompletion", completionRequest("m"), { signal: leaving.signal })
          [Symbol.asyncIterator]();
        await reader.next(); // its attempt has begun: it waits
        cancelled();
        leaving.abort();
        await reader.next().catch(() => undefined);
        return untilQueueIsFree(own);
      });
      expect(p99).toBeLessThanOrEqual(LIMIT_MS);
      expect(upstream.requests.length).toBe(asked);
      holding.cancel();
      await holding.over;
      await own.close();
    },
  );

  /** Makes calls that are refused while the queue is full, until one is not; it leaves again. When it got its place. */
  async function untilQueueIsFree(own: LlmPeer): Promise<number> {
    for (;;) {
      const leaving = new AbortController();
      const reader = own.client
        .serverStream("streamCompletion", completionRequest("m"), { signal: leaving.signal })
        [Symbol.asyncIterator]();
      await reader.next();
      const at = performance.now();
      const second = reader.next().catch(() => undefined);
      if ((await Promise.race([second, tick()])) !== "waiting") continue;
      leaving.abort();
      await second;
      return at;
    }
  }
  const tick = async (): Promise<"waiting"> => {
    const turn = deferred();
    setTimeout(() => turn.resolve(), 5);
    await turn.promise;
    return "waiting";
  };

  test("between two attempts - nobody is asked again", { timeout: TEST_MS }, async () => {
    upstream.replyWith(() => [status(503), send("{}")]);
    const asked = upstream.requests.length;
    const times: number[] = [];
    for (let call = 0; call < CALLS / 4; call++) {
      const own = startBoundaryCall();
      await own.boundary;
      const at = performance.now();
      own.cancel();
      await own.over;
      times.push(performance.now() - at);
    }
    times.sort((a, b) => a - b);
    expect(times.at(-2)).toBeLessThanOrEqual(LIMIT_MS);
    expect(upstream.requests.length - asked).toBe(CALLS / 4);
  });

  function startBoundaryCall() {
    const leaving = new AbortController();
    const boundary = deferred();
    const read = async (): Promise<void> => {
      const stream = peer.client.serverStream("streamCompletion", completionRequest("m"), {
        signal: leaving.signal,
      });
      for await (const { deltas } of stream)
        if (deltas.some(({ delta }) => delta.case === "attemptBoundary")) boundary.resolve();
    };
    return { boundary: boundary.promise, over: read().catch(() => undefined), cancel: () => leaving.abort() };
  }
});

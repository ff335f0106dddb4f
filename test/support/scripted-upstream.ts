/**
 * A model provider for tests: a real HTTP server on 127.0.0.1 that speaks the OpenAI chat dialect and does exactly what a
 * script says, step by step. Owns: its server, the queue of scripts, the gates. Knows nothing of what is tested.
 *
 * Each POST takes the next queued script, or one from the standing `replyWith` function. GET /v1/models answers the
 * listed models. Every request is recorded with its body and with the moment its connection closed.
 */
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";

/** One thing the upstream does with a request. The response starts with status 200 and an event stream unless `status` says otherwise. */
export type Step =
  | { readonly kind: "status"; readonly status: number; readonly headers: Readonly<Record<string, string>> }
  | { readonly kind: "send"; readonly bytes: Uint8Array }
  | { readonly kind: "gate"; readonly name: string }
  | { readonly kind: "wait"; readonly ms: number }
  | { readonly kind: "never" }
  | { readonly kind: "end" }
  | { readonly kind: "destroy" };

/** What an upstream does with one request; it ends the response after the last step, unless a step said otherwise. */
export type Script = readonly Step[];

/** A request as the upstream saw it. */
export interface RecordedRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
  /** The body as JSON; undefined when it is not. */
  readonly json: ChatRequestJson | undefined;
  /** Number of the connection it came over, from 1. */
  readonly connection: number;
  /** `performance.now()` when the body was complete. */
  readonly receivedAt: number;
  /** `performance.now()` when the connection or response closed; undefined while it is open. */
  closedAt: number | undefined;
  /** True once the client closed the connection before the script had ended the response. */
  closedByClient: boolean;
  /** Resolves with `closedAt`. */
  readonly closed: Promise<number>;
}

/** The members of a chat request that tests look at. */
export interface ChatRequestJson {
  readonly model?: string;
  readonly messages?: readonly Readonly<Record<string, unknown>>[];
  readonly tools?: readonly Readonly<Record<string, unknown>>[];
  readonly [key: string]: unknown;
}

export interface ScriptedUpstream {
  /** Base URL with `/v1`, to be given as OPENAI_BASE_URL. */
  readonly url: string;
  /** The POSTs so far, in order of arrival. */
  readonly requests: readonly RecordedRequest[];
  /** Queues a script for the next request that has none. */
  reply(script: Script): void;
  /** Answers every request that finds no queued script; undefined goes back to status 500. */
  replyWith(choose: ((request: RecordedRequest) => Script) | undefined): void;
  /** What GET /v1/models lists from now on; a status makes it fail instead. */
  setModels(models: readonly string[] | { readonly status: number }): void;
  /** How often GET /v1/models was asked. */
  readonly modelRequests: number;
  /** Resolves once `count` POSTs have arrived, with the last of them. */
  waitForRequest(count: number): Promise<RecordedRequest>;
  /** Lets every request go on that waits, or will wait, at this gate. */
  open(gate: string): void;
  /** Resolves when a request has reached the gate (at once if one has). */
  reached(gate: string): Promise<void>;
  /** Resolves when no connection is open (at once if none is). */
  idle(): Promise<void>;
  /** Closes the server and every connection. */
  close(): Promise<void>;
}

class Gates {
  readonly #opened = new Map<string, PromiseWithOpener>();
  readonly #reached = new Map<string, PromiseWithOpener>();

  open(name: string): void {
    entry(this.#opened, name).open();
  }

  reached(name: string): Promise<void> {
    return entry(this.#reached, name).promise;
  }

  pass(name: string): Promise<void> {
    entry(this.#reached, name).open();
    return entry(this.#opened, name).promise;
  }
}

interface PromiseWithOpener {
  readonly promise: Promise<void>;
  open(): void;
}

function entry(map: Map<string, PromiseWithOpener>, name: string): PromiseWithOpener {
  let found = map.get(name);
  if (!found) {
    let open!: () => void;
    const promise = new Promise<void>((resolve) => (open = resolve));
    found = { promise, open };
    map.set(name, found);
  }
  return found;
}

/** Starts an upstream on a free port. */
export async function startScriptedUpstream(): Promise<ScriptedUpstream> {
  const gates = new Gates();
  const requests: RecordedRequest[] = [];
  const queue: Script[] = [];
  const arrivals: { readonly count: number; resolve(request: RecordedRequest): void }[] = [];
  let choose: ((request: RecordedRequest) => Script) | undefined;
  let models: readonly string[] | { readonly status: number } = ["scripted-model"];
  let modelRequests = 0;
  const connections = new WeakMap<Socket, number>();
  let connectionCount = 0;

  const server = createServer((request, response) => {
    request.socket.setNoDelay(true);
    if (request.method === "GET" && request.url === "/v1/models") {
      modelRequests++;
      answerModels(response, models);
      return;
    }
    void answer(request, response);
  });

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const recorded = await record(request, response, connections.get(request.socket) ?? 0);
    requests.push(recorded);
    for (const arrival of arrivals.splice(0)) {
      if (requests.length >= arrival.count) arrival.resolve(recorded);
      else arrivals.push(arrival);
    }
    const script = queue.shift() ?? choose?.(recorded) ?? NO_SCRIPT;
    await play(script, response, recorded, gates);
  }

  const open = new Set<Socket>();
  const idleWaiters = new Set<() => void>();
  server.on("connection", (socket) => {
    connections.set(socket, ++connectionCount);
    open.add(socket);
    socket.once("close", () => {
      open.delete(socket);
      if (open.size > 0) return;
      for (const wake of idleWaiters) wake();
      idleWaiters.clear();
    });
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(0, "127.0.0.1", resolve);
  });
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}/v1`,
    requests,
    reply: (script) => void queue.push(script),
    replyWith: (fn) => void (choose = fn),
    setModels: (next) => void (models = next),
    get modelRequests() {
      return modelRequests;
    },
    waitForRequest: (count) => {
      const last = requests[count - 1];
      return last ? Promise.resolve(last) : new Promise((resolve) => arrivals.push({ count, resolve }));
    },
    open: (gate) => gates.open(gate),
    reached: (gate) => gates.reached(gate),
    idle: () => (open.size === 0 ? Promise.resolve() : new Promise((resolve) => idleWaiters.add(resolve))),
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

async function record(
  request: IncomingMessage,
  response: ServerResponse,
  connection: number,
): Promise<RecordedRequest> {
  const pieces: Buffer[] = [];
  for await (const piece of request) pieces.push(piece as Buffer);
  const body = Buffer.concat(pieces).toString("utf8");
  let resolveClosed!: (at: number) => void;
  const recorded: RecordedRequest = {
    method: request.method ?? "",
    path: request.url ?? "",
    headers: request.headers,
    body,
    json: parseJson(body),
    connection,
    receivedAt: performance.now(),
    closedAt: undefined,
    closedByClient: false,
    closed: new Promise((resolve) => (resolveClosed = resolve)),
  };
  response.once("close", () => {
    recorded.closedAt = performance.now();
    recorded.closedByClient = !response.writableFinished && !response.writableEnded;
    resolveClosed(recorded.closedAt);
  });
  return recorded;
}

function parseJson(text: string): ChatRequestJson | undefined {
  try {
    return JSON.parse(text) as ChatRequestJson;
  } catch {
    return undefined; // recorded as text only
  }
}

function answerModels(
  response: ServerResponse,
  models: readonly string[] | { readonly status: number },
): void {
  if ("status" in models) {
    response
      .writeHead(models.status, { "content-type": "application/json" })
      .end(`{"error":{"message":"no list"}}`);
    return;
  }
  const data = models.map((id) => ({ id, object: "model", created: 1, owned_by: "scripted" }));
  response
    .writeHead(200, { "content-type": "application/json" })
    .end(JSON.stringify({ object: "list", data }));
}

async function play(
  script: Script,
  response: ServerResponse,
  recorded: RecordedRequest,
  gates: Gates,
): Promise<void> {
  for (const step of script) {
    if (response.destroyed) return;
    switch (step.kind) {
      case "status":
        response.writeHead(step.status, step.headers);
        break;
      case "send":
        await write(response, step.bytes);
        break;
      case "gate":
        if (!response.headersSent) startStream(response);
        await Promise.race([gates.pass(step.name), recorded.closed]);
        break;
      case "wait":
        await new Promise((resolve) => setTimeout(resolve, step.ms));
        break;
      case "never":
        if (!response.headersSent) startStream(response);
        await recorded.closed;
        return;
      case "end":
        response.end();
        return;
      case "destroy":
        response.socket?.resetAndDestroy();
        return;
    }
  }
  if (!response.headersSent) startStream(response);
  response.end();
}

function startStream(response: ServerResponse): void {
  response.writeHead(200, {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
  });
  response.flushHeaders();
}

async function write(response: ServerResponse, bytes: Uint8Array): Promise<void> {
  if (!response.headersSent) startStream(response);
  await new Promise<void>((resolve) => response.write(bytes, () => resolve())); // a failed write ends at the close event
}

const NO_SCRIPT: Script = [
  { kind: "status", status: 500, headers: { "content-type": "application/json" } },
  { kind: "send", bytes: Buffer.from(`{"error":{"message":"no script for this request"}}`) },
];

/** Sends the status line and headers. */
export function status(code: number, headers: Readonly<Record<string, string>> = {}): Step {
  return { kind: "status", status: code, headers: { "content-type": "application/json", ...headers } };
}

/** Sends these bytes in one write. */
export function send(data: string | Uint8Array): Step {
  return { kind: "send", bytes: typeof data === "string" ? Buffer.from(data) : data };
}

/** Sends the text in writes of one byte each. */
export function sendByteByByte(text: string): Step[] {
  return [...Buffer.from(text)].map((byte) => send(Uint8Array.of(byte)));
}

/** Sends one event with this JSON. */
export function chunk(json: unknown): Step {
  return send(`data: ${JSON.stringify(json)}\n\n`);
}

/** Waits until the test opens the gate; the response headers are out by then. */
export function gate(name: string): Step {
  return { kind: "gate", name };
}

/** Waits this long: for pacing in benchmarks; tests use gates. */
export function wait(ms: number): Step {
  return { kind: "wait", ms };
}

/** Says nothing more and keeps the connection open. */
export const never: Step = { kind: "never" };
/** Ends the response properly. */
export const end: Step = { kind: "end" };
/** Resets the connection. */
export const destroySocket: Step = { kind: "destroy" };
/** The end mark of the dialect. */
export const done: Step = send("data: [DONE]\n\n");

/** A chunk whose first choice has this delta. */
export function deltaChunk(
  delta: Readonly<Record<string, unknown>>,
  finishReason: string | null = null,
): Step {
  return chunk({
    id: "chatcmpl-scripted",
    object: "chat.completion.chunk",
    created: 1,
    model: "scripted-model",
    choices: [{ index: 0, delta, finish_reason: finishReason }],
  });
}

/** The text as content deltas, one per word. */
export function textChunks(text: string): Step[] {
  return words(text).map((content) => deltaChunk({ content }));
}

/** The text as reasoning deltas (`reasoning_content`), one per word. */
export function reasoningChunks(text: string): Step[] {
  return words(text).map((piece) => deltaChunk({ reasoning_content: piece }));
}

/** One tool call: head, then its arguments in pieces of `pieceChars` characters. */
export function toolCallChunks(call: {
  readonly id: string;
  readonly name: string;
  readonly args: unknown;
  readonly index?: number;
  readonly pieceChars?: number;
}): Step[] {
  const index = call.index ?? 0;
  const text = typeof call.args === "string" ? call.args : JSON.stringify(call.args);
  const head = deltaChunk({
    tool_calls: [{ index, id: call.id, type: "function", function: { name: call.name, arguments: "" } }],
  });
  const size = call.pieceChars ?? 8;
  const pieces: Step[] = [];
  for (let at = 0; at < text.length; at += size) {
    pieces.push(deltaChunk({ tool_calls: [{ index, function: { arguments: text.slice(at, at + size) } }] }));
  }
  return [head, ...pieces];
}

/** The end of an answer: finish reason, usage chunk, end mark. */
export function finishChunks(
  reason: string,
  usage = { prompt_tokens: 10, completion_tokens: 20, total_tokens: 30 },
): Step[] {
  return [
    deltaChunk({}, reason),
    chunk({
      id: "chatcmpl-scripted",
      object: "chat.completion.chunk",
      created: 1,
      model: "scripted-model",
      choices: [],
      usage,
    }),
    done,
  ];
}

/** A whole answer of text that stops properly. */
export function answerScript(text: string): Script {
  return [deltaChunk({ role: "assistant", content: "" }), ...textChunks(text), ...finishChunks("stop")];
}

/** A whole answer that asks for tools. */
export function toolCallScript(
  ...calls: readonly { readonly id: string; readonly name: string; readonly args: unknown }[]
): Script {
  const chunks = calls.flatMap((call, index) => toolCallChunks({ ...call, index }));
  return [deltaChunk({ role: "assistant", content: null }), ...chunks, ...finishChunks("tool_calls")];
}

function words(text: string): string[] {
  return text.match(/\s*\S+\s*$|\s*\S+/g) ?? (text === "" ? [] : [text]);
}

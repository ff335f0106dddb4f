/**
 * Servers that are reached over HTTP, whatever their dialect: one attempt per call, nothing is repeated here.
 * Owns the connections to one server. Invariants: O1 when the call's signal aborts, its connection closes at once, also
 * while our reader holds us up. O2 every failure after the call was built is a delta, after what was decoded before it.
 * O3 keys never leave but in the request.
 */
import type { CompletionDelta } from "../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import type { Clock } from "../../lib/clock.js";
import { TurnError } from "../../lib/errors.js";
import { newId } from "../../lib/ids.js";
import type { HttpProviderConfig as ServerConfig, LlmLimits } from "../config.js";
import { errorDelta, shows } from "../deltas.js";
import { decodedBody } from "../http/content-encoding.js";
import { secretsOf } from "../http/mask-secrets.js";
import {
  connectionError,
  drain,
  readText,
  UpstreamClient,
  type UpstreamResponse,
} from "../http/upstream-client.js";
import { errorFromResponse, retryAfterMs } from "../http/upstream-error.js";
import { Watchdog } from "../../lib/watchdog.js";
import { parseJson, stringOf, type Json } from "../json.js";
import type { Dialect, DialectRequest, OutgoingRequest, StreamDecoder } from "./dialect.js";
import type {
  CompletionCall,
  CompletionProvider,
  CountCall,
  EmbedCall,
  EmbedResult,
  ListedModel,
} from "./provider.js";

/** How long usage and the end mark may take once the server said how the answer ended. */
const AFTER_FINISH_MS = 2_000;
/** Requests at once for texts that one request cannot hold. */
const EMBED_REQUESTS = 4;

/** Where the server is, and what it is called with: the first key where a call brings none. */
export type HttpProviderConfig = Pick<
  ServerConfig,
  "name" | "baseUrl" | "keys" | "headers" | "secretHeaders"
>;

/** A provider for this server. */
export function createHttpProvider(
  dialect: Dialect,
  config: HttpProviderConfig,
  limits: LlmLimits,
  clock: Clock,
): CompletionProvider {
  const client = new UpstreamClient({
    baseUrl: config.baseUrl,
    connectTimeoutMs: limits.connectTimeoutMs,
    maxConnections: limits.maxConnections,
  });
  const { embedding, tokenCount } = dialect;
  const server: Server = { dialect, config, limits, clock, client };
  return {
    name: config.name,
    prepare(call) {
      const request = dialect.buildRequest(call.input, call.model);
      return {
        droppedParameters: request.dropped,
        stream: (apiKey = config.keys[0]) => streamAnswer(server, { ...call, apiKey }, request),
      };
    },
    listModels: (signal) => listModels(server, signal),
    ...(embedding && { embed: (call: EmbedCall) => embed(server, embedding, call) }),
    ...(tokenCount && { countTokens: (call: CountCall) => countTokens(server, tokenCount, call) }),
    close: () => client.close(),
  };
}

/** A call with the key that it is made with. */
type KeyedCall = CompletionCall & { readonly apiKey: string | undefined };

interface Server {
  readonly dialect: Dialect;
  readonly config: HttpProviderConfig;
  readonly limits: LlmLimits;
  readonly clock: Clock;
  readonly client: UpstreamClient;
}

/** Asks for a document and reads it; nothing is streamed. Throws the server's refusal. */
async function askOnce(
  server: Server,
  request: Pick<DialectRequest, "path" | "headers"> & { readonly body?: DialectRequest["body"] },
  apiKey: string | undefined,
  signal: AbortSignal,
): Promise<Json> {
  const { path, body } = request;
  const headers = { accept: "application/json", ...request.headers };
  const response = await send(
    server,
    body ? "POST" : "GET",
    { path, headers, ...(body && { body: JSON.stringify(body) }) },
    apiKey ?? server.config.keys[0],
    signal,
  );
  if (response.statusCode < 200 || response.statusCode > 299)
    throw await responseError(response, secretsOf(server.config), server.clock);
  const answer = parseJson(await bodyText(response, server.limits.maxResponseBytes).catch(unreadable));
  if (typeof answer !== "object" || answer === null) throw new TurnError(ErrorCode.UPSTREAM_MALFORMED);
  return answer as Json;
}

async function bodyText(response: UpstreamResponse, maxBytes?: number): Promise<string> {
  return readText(decodedBody(response), maxBytes);
}

function unreadable(error: unknown): never {
  throw connectionError(error);
}

async function listModels(server: Server, signal: AbortSignal): Promise<readonly ListedModel[]> {
  const { modelList } = server.dialect;
  if (!modelList) return [];
  return modelList.read(await askOnce(server, { path: modelList.path, headers: {} }, undefined, signal));
}

/** In as many requests as the server needs; the vectors are in the order of the texts. */
async function embed(
  server: Server,
  embedding: NonNullable<Dialect["embedding"]>,
  { inputs, model, apiKey, signal }: EmbedCall,
): Promise<EmbedResult> {
  const ask = async (texts: readonly string[]): Promise<EmbedResult> =>
    embedding.read(await askOnce(server, embedding.request(texts, model), apiKey, signal));
  const size = embedding.maxInputs ?? inputs.length;
  const vectors: (readonly number[])[] = [];
  let inputTokens = 0;
  for (let from = 0; from < inputs.length; from += size * EMBED_REQUESTS) {
    const starts = Array.from({ length: EMBED_REQUESTS }, (_, at) => from + at * size);
    const texts = starts.map((start) => inputs.slice(start, start + size)).filter(({ length }) => length > 0);
    for (const part of await Promise.all(texts.map(ask))) {
      vectors.push(...part.vectors);
      inputTokens += part.inputTokens;
    }
  }
  return { vectors, inputTokens };
}

async function countTokens(
  server: Server,
  tokenCount: NonNullable<Dialect["tokenCount"]>,
  { input, model, apiKey, signal }: CountCall,
): Promise<number> {
  return tokenCount.read(await askOnce(server, tokenCount.request(input, model), apiKey, signal));
}

function send(
  { dialect, config, client }: Server,
  method: OutgoingRequest["method"],
  call: Pick<DialectRequest, "path" | "headers"> & { readonly body?: string },
  apiKey: string | undefined,
  signal: AbortSignal,
): Promise<UpstreamResponse> {
  const headers = {
    ...(call.body !== undefined && { "content-type": "application/json" }),
    ...call.headers,
    ...config.headers,
  };
  const url = `${config.baseUrl}${call.path}`;
  const keys = dialect.authorize({ method, url, headers, body: call.body ?? "" }, apiKey);
  // A configured header takes the place of the dialect's own.
  const request = { method, path: call.path, headers: { ...keys, ...headers } };
  return client.request(call.body === undefined ? request : { ...request, body: call.body }, signal);
}

async function* streamAnswer(
  server: Server,
  call: KeyedCall,
  request: DialectRequest,
): AsyncGenerator<readonly CompletionDelta[], void, undefined> {
  const connection = new AbortController();
  const closeConnection = (): void => connection.abort(call.signal.reason);
  call.signal.addEventListener("abort", closeConnection, { once: true }); // O1
  const stalled = (): void => connection.abort(new TurnError(ErrorCode.UPSTREAM_STALLED));
  const watchdog = new Watchdog(server.clock, { ms: call.firstTokenTimeoutMs, expire: stalled });
  let released = false;
  try {
    call.signal.throwIfAborted();
    yield* answer({ server, call, request, signal: connection.signal, watchdog, stalled });
    released = true;
  } catch (error) {
    call.signal.throwIfAborted();
    const failure: unknown = connection.signal.aborted ? connection.signal.reason : error;
    yield [errorDelta(TurnError.from(failure), call.model.id)];
  } finally {
    watchdog.stop();
    call.signal.removeEventListener("abort", closeConnection);
    if (!released) connection.abort();
  }
}

interface Attempt {
  readonly server: Server;
  readonly call: KeyedCall;
  readonly request: DialectRequest;
  readonly signal: AbortSignal;
  readonly watchdog: Watchdog;
  readonly stalled: () => void;
}

async function* answer(attempt: Attempt): AsyncGenerator<readonly CompletionDelta[], void, undefined> {
  const { call, signal, watchdog } = attempt;
  const { response, decoder } = await openAnswer(attempt);
  const stages = new Stages(watchdog, call, attempt.stalled);
  const body = decodedBody(response);
  const isPlain = body === response.body;
  const reads = body.iterator({ destroyOnReturn: !isPlain }) as AsyncIterator<Buffer>;
  let receivedBytes = 0;
  while (!decoder.ended) {
    watchdog.waiting(stages.started);
    const bytes = await nextRead(reads, signal);
    call.signal.throwIfAborted();
    watchdog.arrived();
    const deltas = bytes instanceof Uint8Array ? decoder.push(bytes) : atEnd(decoder, bytes);
    if (bytes instanceof Uint8Array) receivedBytes += bytes.length;
    stages.advance(deltas.some(shows), decoder.finishSeen);
    if (decoder.ended && bytes instanceof Uint8Array) {
      await reads.return?.();
      if (isPlain) drain(response.body, receivedBytes);
    }
    if (deltas.length > 0) yield deltas;
  }
}

/** Sends the call. Throws the server's refusal. */
async function openAnswer({
  server,
  call,
  request,
  signal,
}: Attempt): Promise<{ readonly response: UpstreamResponse; readonly decoder: StreamDecoder }> {
  const { dialect, config, limits, clock } = server;
  const secrets = secretsOf(config);
  const headers = { accept: dialect.accept, ...request.headers };
  const body = JSON.stringify(request.body);
  const response = await send(server, "POST", { path: request.path, headers, body }, call.apiKey, signal);
  if (response.statusCode < 200 || response.statusCode > 299)
    throw await responseError(response, secrets, clock);
  const contentType = stringOf(response.headers["content-type"]);
  if (contentType.includes("text/html")) throw notAnAnswer();
  const decoder = dialect.createDecoder({
    attempt: call.attempt,
    newCallId: () => `call_${newId()}`,
    secrets,
    reasoningTags: call.model.reasoningTags,
    startsInReasoning: call.model.startsInReasoning,
    reasoningOpen: call.input.reasoningOpen,
    maxEventBytes: limits.maxEventBytes,
    maxResponseBytes: limits.maxResponseBytes,
    contentType,
  });
  return { response, decoder };
}

/** The next bytes; undefined at the end of the body; an error when the connection failed or was aborted. */
async function nextRead(
  reads: AsyncIterator<Buffer>,
  signal: AbortSignal,
): Promise<Uint8Array | Error | undefined> {
  try {
    const next = await reads.next();
    return next.done ? undefined : next.value;
  } catch (error) {
    return signal.aborted ? TurnError.from(signal.reason) : lostConnection(error);
  }
}

function atEnd(decoder: StreamDecoder, failure: Error | undefined): CompletionDelta[] {
  return failure ? decoder.fail(TurnError.from(failure)) : decoder.end();
}

/** A body that broke off: what came is kept. */
function lostConnection(error: unknown): TurnError {
  const known = connectionError(error);
  return known.code === ErrorCode.UPSTREAM_MALFORMED
    ? known
    : new TurnError(ErrorCode.UPSTREAM_TRUNCATED, { cause: error });
}

/** What the watchdog waits for: the first token, then each read, then only usage and the end mark. */
class Stages {
  readonly #watchdog: Watchdog;
  readonly #call: CompletionCall;
  readonly #stalled: () => void;
  #stage: "first" | "stream" | "tail" = "first";

  constructor(watchdog: Watchdog, call: CompletionCall, stalled: () => void) {
    this.#watchdog = watchdog;
    this.#call = call;
    this.#stalled = stalled;
  }

  get started(): boolean {
    return this.#stage === "stream";
  }

  advance(shown: boolean, finishSeen: boolean): void {
    if (finishSeen && this.#stage !== "tail") {
      this.#stage = "tail";
      this.#watchdog.setLimit({ ms: AFTER_FINISH_MS, expire: this.#stalled });
    } else if (shown && this.#stage === "first") {
      this.#stage = "stream";
      this.#watchdog.setLimit({ ms: this.#call.stallTimeoutMs, expire: this.#stalled });
    }
  }
}

async function responseError(
  response: UpstreamResponse,
  secrets: readonly string[],
  clock: Clock,
): Promise<TurnError> {
  const body = await bodyText(response).catch(() => ""); // the status alone speaks then
  const retryAfter = retryAfterMs(response.headers, clock.now());
  return errorFromResponse({ status: response.statusCode, retryAfterMs: retryAfter, body }, secrets);
}

function notAnAnswer(): TurnError {
  return new TurnError(ErrorCode.UPSTREAM_MALFORMED, {
    message: "the model provider answered with a web page: check its base URL",
  });
}

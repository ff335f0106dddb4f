/**
 * Servers that speak the OpenAI chat dialect: OpenAI, vLLM, LM Studio, llama.cpp, Ollama /v1 and their kin.
 * Owns the connections to one server. Invariants: O1 when the call's signal aborts, its connection closes at once, also
 * while our reader holds us up. O2 every failure after the call was built is a delta, after what was decoded before it.
 * O3 keys never leave but in the request.
 */
import type { CompletionDelta } from "../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import type { Clock } from "../../lib/clock.js";
import { TurnError } from "../../lib/errors.js";
import { newId } from "../../lib/ids.js";
import type { LlmLimits, OpenAiChatProviderConfig } from "../config.js";
import { errorDelta } from "../deltas.js";
import {
  connectionError,
  drain,
  readText,
  UpstreamClient,
  type UpstreamResponse,
} from "../http/upstream-client.js";
import { errorFromResponse, retryAfterMs } from "../http/upstream-error.js";
import { Watchdog } from "../http/watchdog.js";
import { objectOf, parseJson, stringOf, uint32Of } from "../json.js";
import { createOpenAiChatDecoder, type OpenAiChatDecoder } from "./openai-chat-decode.js";
import { openAiChatQuirks } from "./openai-chat-quirks.js";
import { buildChatRequest } from "./openai-chat-request.js";
import type { CompletionCall, CompletionProvider, ListedModel } from "./provider.js";

/** How long usage and the end mark may take once the server said how the answer ended. */
const AFTER_FINISH_MS = 2_000;
const MAX_MODEL_LIST_BYTES = 2 * 1024 * 1024;
const MAX_LISTED_MODELS = 1_000;

export function createOpenAiChatProvider(
  config: OpenAiChatProviderConfig,
  limits: LlmLimits,
  clock: Clock,
): CompletionProvider {
  const quirks = openAiChatQuirks(config.baseUrl, config.quirks);
  const secrets = [config.apiKey ?? "", ...Object.values(config.headers)].filter((secret) => secret !== "");
  const client = new UpstreamClient({
    baseUrl: config.baseUrl,
    headers: { ...(config.apiKey && { authorization: `Bearer ${config.apiKey}` }), ...config.headers },
    connectTimeoutMs: limits.connectTimeoutMs,
    maxConnections: limits.maxConnections,
  });
  return {
    name: config.name,
    prepare(call) {
      const request = buildChatRequest(call.input, call.model, quirks);
      const body = JSON.stringify(request.body);
      return {
        droppedParameters: request.dropped,
        stream: () => streamAnswer({ client, clock, limits, secrets, call, body }),
      };
    },
    async listModels(signal) {
      const response = await client.get("/models", signal);
      if (response.statusCode !== 200) throw await responseError(response, secrets, clock);
      const models = readModelList(await readText(response.body, MAX_MODEL_LIST_BYTES));
      const chat = quirks.chatModels ? models.filter(({ id }) => quirks.chatModels?.test(id)) : models;
      const preferred = quirks.preferredModels
        .map((id) => chat.find((model) => model.id === id))
        .find(Boolean);
      return preferred ? [preferred, ...chat.filter((model) => model !== preferred)] : chat;
    },
    close: () => client.close(),
  };
}

interface AnswerStream {
  readonly client: UpstreamClient;
  readonly clock: Clock;
  readonly limits: LlmLimits;
  readonly secrets: readonly string[];
  readonly call: CompletionCall;
  readonly body: string;
}

async function* streamAnswer(
  stream: AnswerStream,
): AsyncGenerator<readonly CompletionDelta[], void, undefined> {
  const { call, clock } = stream;
  const connection = new AbortController();
  const closeConnection = (): void => connection.abort(call.signal.reason);
  call.signal.addEventListener("abort", closeConnection, { once: true }); // O1
  const stalled = (): void => connection.abort(new TurnError(ErrorCode.UPSTREAM_STALLED));
  const watchdog = new Watchdog(clock, { ms: call.firstTokenTimeoutMs, expire: stalled });
  let released = false;
  try {
    call.signal.throwIfAborted();
    yield* answer(stream, connection.signal, watchdog, stalled);
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

async function* answer(
  { client, clock, limits, secrets, call, body }: AnswerStream,
  signal: AbortSignal,
  watchdog: Watchdog,
  stalled: () => void,
): AsyncGenerator<readonly CompletionDelta[], void, undefined> {
  const response = await client.post(
    "/chat/completions",
    body,
    "text/event-stream, application/json",
    signal,
  );
  if (response.statusCode < 200 || response.statusCode > 299)
    throw await responseError(response, secrets, clock);
  if (stringOf(response.headers["content-type"]).includes("text/html")) throw notAnAnswer();
  const decoder = createOpenAiChatDecoder({
    attempt: call.attempt,
    newCallId: () => `call_${newId()}`,
    secrets,
    thinkTags: call.model.thinkTags,
    reasoningOpen: call.input.reasoningOpen,
    maxEventBytes: limits.maxEventBytes,
    maxResponseBytes: limits.maxResponseBytes,
  });
  const stages = new Stages(watchdog, call, stalled);
  const reads = response.body.iterator({ destroyOnReturn: false }) as AsyncIterator<Buffer>;
  let receivedBytes = 0;
  while (!decoder.ended) {
    watchdog.waiting(stages.started);
    const bytes = await nextRead(reads, signal);
    call.signal.throwIfAborted();
    watchdog.arrived();
    const deltas = bytes instanceof Uint8Array ? decoder.push(bytes) : atEnd(decoder, bytes);
    if (bytes instanceof Uint8Array) receivedBytes += bytes.length;
    stages.advance(deltas.length > 0, decoder.finishSeen);
    if (decoder.ended && bytes instanceof Uint8Array) {
      await reads.return?.();
      drain(response.body, receivedBytes);
    }
    if (deltas.length > 0) yield deltas;
  }
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

function atEnd(decoder: OpenAiChatDecoder, failure: Error | undefined): CompletionDelta[] {
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

  advance(deltas: boolean, finishSeen: boolean): void {
    if (finishSeen && this.#stage !== "tail") {
      this.#stage = "tail";
      this.#watchdog.setLimit({ ms: AFTER_FINISH_MS, expire: this.#stalled });
    } else if (deltas && this.#stage === "first") {
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
  const body = await readText(response.body).catch(() => ""); // the status alone speaks then
  const retryAfter = retryAfterMs(response.headers, clock.now());
  return errorFromResponse({ status: response.statusCode, retryAfterMs: retryAfter, body }, secrets);
}

function notAnAnswer(): TurnError {
  return new TurnError(ErrorCode.UPSTREAM_MALFORMED, {
    message: "the model provider answered with a web page: check its base URL",
  });
}

function readModelList(text: string): ListedModel[] {
  const json = parseJson(text);
  const list = Array.isArray(json) ? json : (objectOf(json)["data"] ?? objectOf(json)["models"]);
  if (!Array.isArray(list)) throw new TurnError(ErrorCode.UPSTREAM_MALFORMED);
  return (list as unknown[])
    .map((item) => objectOf(item))
    .map((item) => ({
      id: stringOf(item["id"]) || stringOf(item["model"]) || stringOf(item["name"]),
      ownedBy: stringOf(item["owned_by"]),
      contextTokens:
        uint32Of(item["context_length"]) ??
        uint32Of(item["max_model_len"]) ??
        uint32Of(item["context_window"]) ??
        0,
    }))
    .filter(({ id }) => id !== "" && id.length <= 256)
    .slice(0, MAX_LISTED_MODELS);
}

/**
 * The proxy's half of a caller's own connection: the request that the caller's client will send, and the deltas in the
 * response that it relays. Nothing is sent from here, and no key is known.
 * P1 what is wrong with the frames is an RPC status. P2 what is wrong with the response is an error delta, the last one: what
 * came before it is kept. P3 the answer's end ends the stream, whatever else is relayed. P4 memory is bounded by the limits,
 * time as that of a call of our own: to the first token, between two frames after that, and in all.
 */
import { create } from "@bufbuild/protobuf";
import {
  PrepareCompletionResponseSchema,
  type CompletionDelta,
  type DecodeCompletionRequest,
  type DecodeCompletionResponse,
  type DecodeEnd,
  type DecodeStart,
  type PrepareCompletionRequest,
  type PrepareCompletionResponse,
} from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import type { Clock } from "../lib/clock.js";
import { TurnError } from "../lib/errors.js";
import { newId } from "../lib/ids.js";
import { abortable } from "../lib/signals.js";
import { messageFrame, type StreamFrame } from "../lib/rpc/service-binding.js";
import { CallClock } from "./attempts/call-clock.js";
import { batchDeltas } from "./batch-deltas.js";
import { modelOf } from "./config.js";
import type { LlmLimits, ModelConfig } from "./config.js";
import { attemptStartedDelta, errorDelta, modelSelectedDelta, shows } from "./deltas.js";
import { publicText } from "./http/mask-secrets.js";
import { errorFromResponse } from "./http/upstream-error.js";
import { Watchdog } from "../lib/watchdog.js";
import { createDialect, DIALECT_NAMES } from "./providers/dialects.js";
import type { Dialect, StreamDecoder } from "./providers/dialect.js";
import { ByteCollector } from "./providers/shared/byte-collector.js";
import { DEFAULT_REASONING_TAGS } from "./providers/shared/reasoning-tags.js";
import { VENDORS } from "./providers/openai-chat/vendors.js";

export interface DirectDeps {
  readonly limits: LlmLimits;
  readonly clock: Clock;
  /** The model of the configuration that is called so, here or by its provider. */
  readonly configuredModel: (name: string) => ModelConfig | undefined;
  readonly signal: AbortSignal;
}

/** What such a connection is called where providers are named. */
const PROVIDER = "direct";
/** Where it leads is the caller's matter; dialects want an address. */
const SOMEWHERE = "https://direct.invalid";
/** How long the first frame may take. */
const START_MS = 10_000;
/** Of the body of a refusal. */
const MAX_ERROR_BODY_BYTES = 64 * 1024;

/** Builds the request. Throws INVALID_ARGUMENT naming the field for one that cannot be sent. */
export function prepareCompletion(request: PrepareCompletionRequest): PrepareCompletionResponse {
  const { api, input } = request;
  if (!input) throw invalid("input", "must be set");
  const dialect = dialectOf(api, "api");
  const { path, headers, body, dropped } = dialect.buildRequest(input, modelOf(input.modelId, PROVIDER));
  return create(PrepareCompletionResponseSchema, {
    path,
    headers: { "content-type": "application/json", accept: dialect.accept, ...headers },
    bodyJson: JSON.stringify(body),
    droppedParameters: [...dropped],
  });
}

/** Decodes a relayed response: one start, chunks, one end. */
export async function* decodeCompletion(
  requests: AsyncIterable<DecodeCompletionRequest>,
  deps: DirectDeps,
): AsyncGenerator<StreamFrame<DecodeCompletionResponse>, void, undefined> {
  const { limits, clock, signal } = deps;
  const time = new CallClock(clock, limits.totalTimeoutMs, signal);
  const frames = new FrameReader(requests, clock, time.signal);
  try {
    const first = (await frames.next())?.frame;
    if (first?.case !== "start") throw invalid("frame", "must be a start first");
    const body = bodyReader(first.value, deps);
    const modelId = first.value.input?.modelId ?? "";
    yield* responses([attemptStartedDelta(1, PROVIDER, modelId), modelSelectedDelta(modelId)]);
    frames.allow("first token", limits.firstTokenTimeoutMs);
    let streaming = false;
    while (!body.ended) {
      const deltas = await nextDeltas(frames, body, signal);
      yield* responses(deltas);
      if (streaming || !deltas.some(shows)) continue;
      streaming = true;
      frames.allow("each frame", limits.stallTimeoutMs);
    }
  } finally {
    frames.close();
    time.close();
  }
}

/** What becomes of the relayed bytes. */
type BodyReader = Pick<StreamDecoder, "push" | "end" | "fail" | "ended">;

async function nextDeltas(
  frames: FrameReader,
  body: BodyReader,
  caller: AbortSignal,
): Promise<CompletionDelta[]> {
  let frame: DecodeCompletionRequest["frame"] | undefined;
  try {
    frame = (await frames.next())?.frame;
  } catch (error) {
    caller.throwIfAborted();
    if (frames.lateness) return body.fail(frames.lateness);
    throw error;
  }
  switch (frame?.case) {
    case "chunk":
      return body.push(frame.value);
    case "end":
      return endOf(body, frame.value);
    case undefined: // whoever relayed is gone
      return body.fail(new TurnError(ErrorCode.UPSTREAM_TRUNCATED));
    case "start":
      throw invalid("frame", "must not be a second start");
  }
}

function endOf(body: BodyReader, { truncated, error }: DecodeEnd): CompletionDelta[] {
  if (!truncated && error === "") return body.end();
  const said = publicText(error);
  const message = said === "" ? undefined : `the connection to the model provider failed: ${said}`;
  return body.fail(new TurnError(ErrorCode.UPSTREAM_TRUNCATED, { message }));
}

function bodyReader(start: DecodeStart, { limits, configuredModel }: DirectDeps): BodyReader {
  const { httpStatus, contentType, input } = start;
  const decoder = dialectOf(start.api, "start.api").createDecoder({
    attempt: 1,
    newCallId: () => `call_${newId()}`,
    secrets: [],
    ...tagsOf(start.api, configuredModel(input?.modelId ?? "")),
    reasoningOpen: input?.reasoningOpen ?? false,
    maxEventBytes: limits.maxEventBytes,
    maxResponseBytes: limits.maxResponseBytes,
    contentType,
  });
  if (httpStatus !== 0 && (httpStatus < 200 || httpStatus > 299)) return new RefusalReader(httpStatus);
  return contentType.includes("text/html") ? new WebPageReader() : decoder;
}

/** Of these dialects are the servers that leave reasoning in the text. */
const TAGGING_DIALECTS: readonly string[] = ["openai-chat", "ollama-chat"];

/** A model that is configured is decoded as configured; of any other nobody could say it, so the usual tags hold. */
function tagsOf(
  api: string,
  model: ModelConfig | undefined,
): Pick<ModelConfig, "reasoningTags" | "startsInReasoning"> {
  if (model) return { reasoningTags: model.reasoningTags, startsInReasoning: model.startsInReasoning };
  const tagging = TAGGING_DIALECTS.includes(api) || VENDORS.has(api);
  return { reasoningTags: tagging ? DEFAULT_REASONING_TAGS : [], startsInReasoning: false };
}

/** The body of a status that says failure. */
class RefusalReader implements BodyReader {
  readonly #status: number;
  readonly #body = new ByteCollector();
  ended = false;

  constructor(status: number) {
    this.#status = status;
  }

  push(bytes: Uint8Array): CompletionDelta[] {
    const room = MAX_ERROR_BODY_BYTES - this.#body.length;
    this.#body.push(bytes.subarray(0, room));
    return bytes.length >= room ? this.end() : [];
  }

  end(): CompletionDelta[] {
    this.ended = true;
    const body = this.#body.text();
    return [errorDelta(errorFromResponse({ status: this.#status, retryAfterMs: 0, body }, []))];
  }

  /** The status alone speaks then. */
  fail(): CompletionDelta[] {
    return this.end();
  }
}

/** A page for people, where an answer was expected. */
class WebPageReader implements BodyReader {
  ended = false;

  push(): CompletionDelta[] {
    this.ended = true;
    const message = "the model provider answered with a web page: check its base URL";
    return [errorDelta(new TurnError(ErrorCode.UPSTREAM_MALFORMED, { message }))];
  }

  end(): CompletionDelta[] {
    return this.push();
  }

  fail(): CompletionDelta[] {
    return this.push();
  }
}

/** Frames, each in its time. Owns the wait for them. */
class FrameReader {
  readonly #frames: AsyncIterator<DecodeCompletionRequest>;
  readonly #late = new AbortController();
  readonly #signal: AbortSignal;
  readonly #watchdog: Watchdog;
  #restarts = false;

  /** `signal`: of the whole call. The first frame must come within 10 seconds. */
  constructor(requests: AsyncIterable<DecodeCompletionRequest>, clock: Clock, signal: AbortSignal) {
    this.#frames = requests[Symbol.asyncIterator]();
    this.#signal = AbortSignal.any([signal, this.#late.signal]);
    this.#watchdog = new Watchdog(clock, { ms: START_MS, expire: this.#expire });
  }

  /** The time for the first token is one, however many frames come; after it each frame has its own. */
  allow(what: "first token" | "each frame", ms: number): void {
    this.#restarts = what === "each frame";
    this.#watchdog.setLimit({ ms, expire: this.#expire });
  }

  /** Why no frame can come any more: none came in time, or the call's time is up. */
  get lateness(): TurnError | undefined {
    return this.#signal.aborted ? TurnError.from(this.#signal.reason) : undefined;
  }

  /** The next frame; undefined after the last. Throws the lateness, the caller's reason when it leaves. */
  async next(): Promise<DecodeCompletionRequest | undefined> {
    this.#watchdog.waiting(this.#restarts);
    const next = await abortable(this.#frames.next(), this.#signal);
    this.#watchdog.arrived();
    return next.done ? undefined : next.value;
  }

  /** Does not wait: a frame may be due. */
  close(): void {
    this.#watchdog.stop();
    this.#frames.return?.().catch(() => undefined); // its failure is nobody's concern any more
  }

  readonly #expire = (): void => this.#late.abort(new TurnError(ErrorCode.UPSTREAM_STALLED));
}

function* responses(
  deltas: readonly CompletionDelta[],
): Generator<StreamFrame<DecodeCompletionResponse>, void, undefined> {
  for (const batch of batchDeltas(deltas))
    yield messageFrame({ $typeName: "turnwire.llm.v1.DecodeCompletionResponse", deltas: batch.deltas });
}

/** A dialect, or a vendor of OpenAI chat by its name. */
function dialectOf(api: string, field: string): Dialect {
  if (DIALECT_NAMES.includes(api)) return createDialect(api, { baseUrl: SOMEWHERE, quirks: {} });
  if (VENDORS.has(api)) return createDialect("openai-chat", { baseUrl: SOMEWHERE, quirks: { vendor: api } });
  throw invalid(field, `is not known: use one of ${[...DIALECT_NAMES, ...VENDORS.keys()].join(", ")}`);
}

function invalid(field: string, what: string): TurnError {
  return new TurnError(ErrorCode.INVALID_ARGUMENT, { message: `${field} ${what}`, details: { field } });
}

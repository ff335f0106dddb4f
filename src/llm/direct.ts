/**
 * The proxy's half of a caller's own connection: the request that the caller's client will send, and the deltas in the
 * response that it relays. Nothing is sent from here, and no key is known.
 * P1 what is wrong with the frames is an RPC status. P2 what is wrong with the response is an error delta, the last one: what
 * came before it is kept. P3 the answer's end ends the stream, whatever else is relayed. P4 memory is bounded by the limits,
 * the wait for each frame by a deadline.
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
import { messageFrame, type StreamFrame } from "../lib/rpc/service-binding.js";
import { batchDeltas } from "./batch-deltas.js";
import { modelOf } from "./config.js";
import type { LlmLimits } from "./config.js";
import { attemptStartedDelta, errorDelta, modelSelectedDelta } from "./deltas.js";
import { publicText } from "./http/mask-secrets.js";
import { errorFromResponse } from "./http/upstream-error.js";
import { createDialect, DIALECT_NAMES } from "./providers/dialects.js";
import type { Dialect, StreamDecoder } from "./providers/dialect.js";
import { ByteCollector } from "./providers/shared/byte-collector.js";
import { VENDORS } from "./providers/openai-chat/vendors.js";

export interface DirectDeps {
  readonly limits: LlmLimits;
  readonly clock: Clock;
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
  const frames = new FrameReader(requests, deps);
  try {
    const first = (await frames.next(START_MS))?.frame;
    if (first?.case !== "start") throw invalid("frame", "must be a start first");
    const body = bodyReader(first.value, deps.limits);
    const modelId = first.value.input?.modelId ?? "";
    yield* responses([attemptStartedDelta(1, PROVIDER, modelId), modelSelectedDelta(modelId)]);
    let waitMs = deps.limits.firstTokenTimeoutMs;
    while (!body.ended) {
      const deltas = await nextDeltas(frames, waitMs, body);
      if (deltas.length > 0) waitMs = deps.limits.stallTimeoutMs;
      yield* responses(deltas);
    }
  } finally {
    frames.close();
  }
}

/** What becomes of the relayed bytes. */
type BodyReader = Pick<StreamDecoder, "push" | "end" | "fail" | "ended">;

async function nextDeltas(frames: FrameReader, waitMs: number, body: BodyReader): Promise<CompletionDelta[]> {
  let frame: DecodeCompletionRequest["frame"] | undefined;
  try {
    frame = (await frames.next(waitMs))?.frame;
  } catch (error) {
    if (error instanceof TurnError && error.code === ErrorCode.UPSTREAM_STALLED) return body.fail(error);
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

function bodyReader(start: DecodeStart, limits: LlmLimits): BodyReader {
  const { httpStatus, contentType, input } = start;
  const decoder = dialectOf(start.api, "start.api").createDecoder({
    attempt: 1,
    newCallId: () => `call_${newId()}`,
    secrets: [],
    reasoningTags: [],
    reasoningOpen: input?.reasoningOpen ?? false,
    maxEventBytes: limits.maxEventBytes,
    maxResponseBytes: limits.maxResponseBytes,
    contentType,
  });
  if (httpStatus !== 0 && (httpStatus < 200 || httpStatus > 299)) return new RefusalReader(httpStatus);
  return contentType.includes("text/html") ? new WebPageReader() : decoder;
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

/** Frames, each within its deadline. */
class FrameReader {
  readonly #frames: AsyncIterator<DecodeCompletionRequest>;
  readonly #clock: Clock;
  readonly #signal: AbortSignal;
  /** Ends the running wait. */
  #wait = new AbortController();

  constructor(requests: AsyncIterable<DecodeCompletionRequest>, { clock, signal }: DirectDeps) {
    this.#frames = requests[Symbol.asyncIterator]();
    this.#clock = clock;
    this.#signal = signal;
    signal.addEventListener("abort", this.#cancel, { once: true });
  }

  /** The next frame; undefined after the last. Throws UPSTREAM_STALLED when none comes, the signal's reason when it aborts. */
  async next(withinMs: number): Promise<DecodeCompletionRequest | undefined> {
    this.#signal.throwIfAborted();
    const wait = (this.#wait = new AbortController());
    const late = this.#clock.sleep(withinMs, wait.signal).then(() => {
      throw new TurnError(ErrorCode.UPSTREAM_STALLED);
    });
    late.catch(() => undefined); // heard by the race, if it is still on
    try {
      const next = await Promise.race([this.#frames.next(), late]);
      return next.done ? undefined : next.value;
    } finally {
      wait.abort();
    }
  }

  /** Does not wait: a frame may be due. */
  close(): void {
    this.#signal.removeEventListener("abort", this.#cancel);
    this.#frames.return?.().catch(() => undefined); // its failure is nobody's concern any more
  }

  readonly #cancel = (): void => this.#wait.abort(this.#signal.reason);
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

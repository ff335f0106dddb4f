/**
 * Another peer that serves LlmProxyService, in any language. Owns the connections to it. Its models are listed under a prefix;
 * its deltas go on as they are, but for the names of models.
 * P1 when the call's signal aborts, the peer's call is cancelled at once; its deadline travels with it. P2 every failure is
 * a delta: a status of the peer is a failure of its provider. P3 what a peer sends is bounded like an HTTP answer.
 */
import { create } from "@bufbuild/protobuf";
import {
  CountTokensRequestSchema,
  EmbedRequestSchema,
  ListModelsRequestSchema,
  LlmProxyService,
  StreamCompletionRequestSchema,
  type CompletionDelta,
  type CompletionInput,
  type Model,
} from "../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ErrorCode, type TurnError as TurnErrorMessage } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { ERROR_TABLE, TurnError, type KnownErrorCode } from "../../lib/errors.js";
import { createGrpcClient, type GrpcClient } from "../../lib/rpc/grpc-client.js";
import type { PipeProviderConfig, PriceConfig } from "../config.js";
import { errorDelta, shows } from "../deltas.js";
import { publicText, secretsOf } from "../http/mask-secrets.js";
import { Watchdog } from "../../lib/watchdog.js";
import { watchPeerHealth } from "./peer-health.js";
import type { CompletionCall, CompletionProvider, ListedModel, ProviderDeps } from "./provider.js";

const LIST_TIMEOUT_MS = 5_000;
const PLAIN_TIMEOUT_MS = 60_000;
const MAX_PAGES = 50;
/** Of an error. */
const MAX_DETAILS = 16;
/** How long usage may take once the peer said how the answer ended. */
const AFTER_END_MS = 2_000;

export function createPipeProvider(config: PipeProviderConfig, deps: ProviderDeps): CompletionProvider {
  const client = createGrpcClient(LlmProxyService, {
    addresses: config.address,
    ...(config.keys[0] !== undefined && { token: config.keys[0] }),
    connectWaitMs: deps.limits.connectTimeoutMs,
    logger: deps.logger,
  });
  const health = watchPeerHealth({
    ...{ name: config.name, addresses: config.address, token: config.keys[0] },
    ...{ clock: deps.clock, logger: deps.logger },
  });
  const secrets = secretsOf(config);
  const pipe: Pipe = { config, deps, client, secrets };
  return {
    name: config.name,
    get isDown() {
      return health.isDown;
    },
    prepare: (call) => ({ droppedParameters: [], stream: () => streamAnswer(pipe, call) }),
    listModels: (signal) => listModels(pipe, signal),
    async embed({ inputs, model, caller, signal }) {
      const request = create(EmbedRequestSchema, {
        ...(caller && { caller }),
        modelId: model.upstreamModel,
        inputs: [...inputs],
      });
      const answer = await client
        .unary("embed", request, { signal, timeoutMs: PLAIN_TIMEOUT_MS })
        .catch((error: unknown) => fail(error, secrets));
      return {
        vectors: answer.embeddings.map(({ values }) => values),
        inputTokens: answer.usage?.inputTokens ?? 0,
      };
    },
    async countTokens({ input, model, caller, signal }) {
      const request = create(CountTokensRequestSchema, {
        ...(caller && { caller }),
        input: inputFor(input, model.upstreamModel),
      });
      const answer = await client
        .unary("countTokens", request, { signal, timeoutMs: PLAIN_TIMEOUT_MS })
        .catch((error: unknown) => fail(error, secrets));
      return answer.tokens;
    },
    close() {
      health.close();
      client.close();
      return Promise.resolve();
    },
  };
}

interface Pipe {
  readonly config: PipeProviderConfig;
  readonly deps: ProviderDeps;
  readonly client: GrpcClient<typeof LlmProxyService>;
  readonly secrets: readonly string[];
}

function inputFor(input: CompletionInput, modelId: string): CompletionInput {
  return { ...input, modelId };
}

async function* streamAnswer(
  pipe: Pipe,
  call: CompletionCall,
): AsyncGenerator<readonly CompletionDelta[], void, undefined> {
  const { deps, client, secrets } = pipe;
  const { model, signal } = call;
  const own = new AbortController();
  const leave = (): void => own.abort(signal.reason);
  signal.addEventListener("abort", leave, { once: true }); // P1
  const stalled = (): void => own.abort(new TurnError(ErrorCode.UPSTREAM_STALLED));
  const watchdog = new Watchdog(deps.clock, { ms: call.firstTokenTimeoutMs, expire: stalled });
  let ended = false;
  let streaming = false;
  try {
    signal.throwIfAborted();
    const timeoutMs = call.deadlineMs === undefined ? {} : { timeoutMs: Math.ceil(call.deadlineMs) };
    const responses = client.serverStream("streamCompletion", requestFor(call), {
      signal: own.signal,
      maxStreamBytes: deps.limits.maxResponseBytes, // P3
      ...timeoutMs,
    });
    for await (const { deltas } of responses) {
      watchdog.arrived();
      if (!streaming && deltas.some(shows)) {
        streaming = true;
        watchdog.setLimit({ ms: call.stallTimeoutMs, expire: stalled });
      }
      if (!ended && deltas.some(ends)) {
        ended = true;
        watchdog.setLimit({ ms: AFTER_END_MS, expire: () => own.abort() });
      }
      if (deltas.length > 0) yield deltas.map((delta) => ours(delta, pipe));
      watchdog.waiting(streaming);
    }
    if (!ended) yield [errorDelta(new TurnError(ErrorCode.UPSTREAM_TRUNCATED), model.id)];
  } catch (error) {
    signal.throwIfAborted();
    if (ended) return; // all that matters was said
    const cause: unknown = own.signal.aborted ? own.signal.reason : error;
    yield [errorDelta(upstreamFailure(cause, secrets), model.id)];
  } finally {
    watchdog.stop();
    signal.removeEventListener("abort", leave);
    own.abort();
  }
}

function requestFor(call: CompletionCall) {
  const { input, model, caller, idempotencyKey } = call;
  return create(StreamCompletionRequestSchema, {
    ...(caller && { caller }),
    input: inputFor(input, model.upstreamModel),
    idempotencyKey: idempotencyKey ?? "",
    firstTokenTimeout: durationFromMs(Math.min(call.firstTokenTimeoutMs, 3_600_000)),
    stallTimeout: durationFromMs(Math.min(call.stallTimeoutMs, 3_600_000)),
  });
}

function ends({ delta }: CompletionDelta): boolean {
  return delta.case === "finish" || delta.case === "error";
}

/** The delta with our names for the peer's models, and with its words masked. */
function ours(whole: CompletionDelta, pipe: Pipe): CompletionDelta {
  const { delta } = whole;
  const named = (id: string): string => (id === "" ? "" : pipe.config.prefix + id);
  switch (delta.case) {
    case "modelSelected":
      return {
        ...whole,
        delta: { ...delta, value: { ...delta.value, modelId: named(delta.value.modelId) } },
      };
    case "attemptBoundary": {
      const { cause, nextModelId } = delta.value;
      const value = {
        ...delta.value,
        ...(cause && { cause: publicError(cause, pipe) }),
        nextModelId: named(nextModelId),
      };
      return { ...whole, delta: { ...delta, value } };
    }
    case "error": {
      const value = publicError(delta.value, pipe);
      return { ...whole, delta: { ...delta, value } };
    }
    case "warning": {
      const value = { ...delta.value, message: publicText(delta.value.message, pipe.secrets) };
      return { ...whole, delta: { ...delta, value } };
    }
    default:
      return whole;
  }
}

/** A peer's error as it may be told: our name of its model, and no word that must not leave. */
function publicError(error: TurnErrorMessage, { config, secrets }: Pipe): TurnErrorMessage {
  const { message, modelId, details } = error;
  const pairs = Object.entries(details).slice(0, MAX_DETAILS);
  return {
    ...error,
    message: publicText(message, secrets),
    modelId: modelId === "" ? "" : config.prefix + modelId,
    details: Object.fromEntries(pairs.map((pair) => pair.map((text) => publicText(text, secrets)))),
  };
}

/** What a status of the peer means for those who asked us. */
const BY_STATUS: Readonly<Partial<Record<KnownErrorCode, KnownErrorCode>>> = {
  [ErrorCode.UNAVAILABLE]: ErrorCode.UPSTREAM_UNAVAILABLE,
  [ErrorCode.DEADLINE_EXCEEDED]: ErrorCode.UPSTREAM_STALLED,
  [ErrorCode.OVERLOADED]: ErrorCode.RATE_LIMIT,
  [ErrorCode.UNAUTHENTICATED]: ErrorCode.UPSTREAM_AUTH,
  [ErrorCode.PERMISSION_DENIED]: ErrorCode.UPSTREAM_AUTH,
  [ErrorCode.NOT_FOUND]: ErrorCode.MODEL_NOT_FOUND,
  [ErrorCode.INVALID_ARGUMENT]: ErrorCode.UPSTREAM_REJECTED,
  [ErrorCode.NOT_BUILT]: ErrorCode.UPSTREAM_REJECTED,
  [ErrorCode.CANCELLED]: ErrorCode.UPSTREAM_TRUNCATED,
  [ErrorCode.INTERNAL]: ErrorCode.UPSTREAM_MALFORMED,
};

function upstreamFailure(error: unknown, secrets: readonly string[]): TurnError {
  const known = TurnError.from(error);
  const code = BY_STATUS[known.code] ?? known.code;
  const base = ERROR_TABLE[code].message;
  const told = known.message === ERROR_TABLE[known.code].message ? "" : publicText(known.message, secrets);
  return new TurnError(code, {
    message: told === "" || code === known.code ? told || base : `${base}: ${told}`,
    retryAfterMs: known.retryAfterMs,
    cause: error,
  });
}

function fail(error: unknown, secrets: readonly string[]): never {
  throw upstreamFailure(error, secrets);
}

async function listModels(
  { config, client, secrets }: Pipe,
  signal: AbortSignal,
): Promise<readonly ListedModel[]> {
  const models: ListedModel[] = [];
  let pageToken = "";
  try {
    for (let page = 0; page < MAX_PAGES; page++) {
      const request = create(ListModelsRequestSchema, { pageToken });
      const answer = await client.unary("listModels", request, { signal, timeoutMs: LIST_TIMEOUT_MS });
      models.push(
        ...answer.models.filter(({ modelId }) => modelId !== "").map((model) => listed(model, config)),
      );
      pageToken = answer.nextPageToken;
      if (pageToken === "") break;
    }
  } catch (error) {
    signal.throwIfAborted();
    fail(error, secrets);
  }
  return models;
}

function listed(model: Model, { prefix }: PipeProviderConfig): ListedModel {
  return {
    id: prefix + model.modelId,
    ownedBy: model.ownedBy,
    contextTokens: model.contextTokens,
    facts: {
      upstreamModel: model.modelId,
      displayName: model.displayName || model.modelId,
      aliases: model.aliases.map((alias) => prefix + alias),
      maxOutputTokens: model.maxOutputTokens,
      modalities: model.modalities,
      tools: model.tools,
      reasoning: model.reasoning,
      price: priceOf(model),
      access: model.access?.restricted ? model.access.groups : undefined,
    },
  };
}

function priceOf({ price }: Model): PriceConfig | undefined {
  return (
    price && {
      currency: price.currency,
      input: Number(price.inputMicrosPerMtok),
      output: Number(price.outputMicrosPerMtok),
      cacheRead: Number(price.cacheReadMicrosPerMtok),
      cacheWrite: Number(price.cacheWriteMicrosPerMtok),
    }
  );
}

/**
 * LlmProxyService: StreamCompletion and ListModels over the configured providers. Owns the providers' connections and the
 * count of running calls. L1 what is wrong with the request is an RPC status, before anything is sent. L2 what goes wrong
 * after that is an error delta, the last one: what came before it is kept. L3 a set field whose behaviour is not built is
 * refused, naming it.
 */
import { create } from "@bufbuild/protobuf";
import type { Duration } from "@bufbuild/protobuf/wkt";
import {
  ListModelsResponseSchema,
  LlmProxyService,
  ModelSchema,
  type CompletionDelta,
  type ListModelsRequest,
  type ListModelsResponse,
  type StreamCompletionRequest,
  type StreamCompletionResponse,
} from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ErrorCode, type TurnError as TurnErrorMessage } from "../../gen/turnwire/packet/v1/common_pb.js";
import { assertNever } from "../lib/assert-never.js";
import type { Clock } from "../lib/clock.js";
import { errorCodeName, TurnError } from "../lib/errors.js";
import type { Logger } from "../lib/log.js";
import {
  bindService,
  messageFrame,
  type CallContext,
  type ServiceBinding,
  type StreamFrame,
} from "../lib/rpc/service-binding.js";
import { batchDeltas } from "./batch-deltas.js";
import { DEMO_MODEL_ID, type LlmConfig, type ProviderConfig } from "./config.js";
import { attemptStartedDelta, errorDelta, modelSelectedDelta, parametersDroppedDelta } from "./deltas.js";
import { ModelCatalog, type ModelEntry, type ResolvedModel } from "./model-catalog.js";
import { createDemoProvider } from "./providers/demo.js";
import { createDialect } from "./providers/dialects.js";
import { createHttpProvider } from "./providers/http-provider.js";
import type { CompletionProvider, PreparedCompletion } from "./providers/provider.js";

export interface LlmServiceDeps {
  readonly config: LlmConfig;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** The bound service, and the end of its connections. */
export interface LlmService extends ServiceBinding {
  /** Closes the connections to the providers; running calls end with an error. */
  close(): Promise<void>;
}

const DEFAULT_PAGE_SIZE = 100;
const MAX_PAGE_SIZE = 500;

export function createLlmService({ config, clock, logger }: LlmServiceDeps): LlmService {
  const providers = config.providers.map((provider) => createProvider(provider, config, clock));
  const catalog = new ModelCatalog(config, providers, clock, logger);
  let calls = 0;

  async function* streamCompletion(
    request: StreamCompletionRequest,
    context: CallContext,
  ): AsyncGenerator<StreamFrame<StreamCompletionResponse>, void, undefined> {
    refuseUnbuilt(request);
    if (calls >= config.limits.maxCalls) throw new TurnError(ErrorCode.OVERLOADED);
    calls++;
    try {
      const resolved = await resolveModel(catalog, request, context.signal);
      const prepared = prepareCall(resolved, request, context.signal);
      for (const response of batchDeltas(openingDeltas(resolved, prepared))) yield messageFrame(response);
      yield* answerFrames(resolved, prepared, context.signal);
    } finally {
      calls--;
    }
  }

  function prepareCall(
    { model, provider }: ResolvedModel,
    request: StreamCompletionRequest,
    signal: AbortSignal,
  ): PreparedCompletion {
    const { input } = request;
    if (!input) throw missing("input");
    return provider.prepare({
      input,
      model,
      attempt: 1,
      firstTokenTimeoutMs:
        milliseconds(request.firstTokenTimeout, "first_token_timeout") ?? config.limits.firstTokenTimeoutMs,
      stallTimeoutMs: milliseconds(request.stallTimeout, "stall_timeout") ?? config.limits.stallTimeoutMs,
      signal,
    });
  }

  async function* answerFrames(
    { model, provider }: ResolvedModel,
    prepared: PreparedCompletion,
    signal: AbortSignal,
  ): AsyncGenerator<StreamFrame<StreamCompletionResponse>, void, undefined> {
    const facts = { provider: provider.name, model: model.id };
    try {
      for await (const deltas of prepared.stream()) {
        const end = deltas.at(-1)?.delta;
        if (end?.case === "error") logger.warn({ ...facts, ...describe(end.value) }, "a model call failed");
        for (const response of batchDeltas(deltas)) yield messageFrame(response);
      }
    } catch (error) {
      signal.throwIfAborted();
      logger.error({ err: error, ...facts }, "a model call failed inside Turnwire");
      for (const response of batchDeltas([errorDelta(TurnError.from(error), model.id)]))
        yield messageFrame(response);
    }
  }

  const binding = bindService(LlmProxyService, {
    streamCompletion,
    listModels: async (request, context) => pageOfModels(await catalog.list(context.signal), request),
  });
  return {
    ...binding,
    async close() {
      await Promise.all(providers.map((provider) => provider.close()));
    },
  };
}

/** What the log says of a failed call: the public words, which hold no secret. */
function describe(error: TurnErrorMessage): Readonly<Record<string, string>> {
  return { code: errorCodeName(error.code), failure: error.message };
}

function createProvider(provider: ProviderConfig, config: LlmConfig, clock: Clock): CompletionProvider {
  switch (provider.api) {
    case "openai-chat":
      return createHttpProvider(createDialect(provider.api, provider), provider, config.limits, clock);
    case "demo":
      return createDemoProvider(provider, clock);
    default:
      return assertNever(provider, "provider");
  }
}

async function resolveModel(
  catalog: ModelCatalog,
  request: StreamCompletionRequest,
  signal: AbortSignal,
): Promise<ResolvedModel> {
  const id = request.input?.modelId ?? "";
  if (id === "") throw missing("input.model_id");
  return catalog.resolve(id, signal);
}

function openingDeltas({ model, provider }: ResolvedModel, prepared: PreparedCompletion): CompletionDelta[] {
  const deltas = [attemptStartedDelta(1, provider.name, model.upstreamModel), modelSelectedDelta(model.id)];
  if (prepared.droppedParameters.length > 0) deltas.push(parametersDroppedDelta(prepared.droppedParameters));
  return deltas;
}

/** L3. Parts of messages are looked at by the dialect that would have to send them. */
function refuseUnbuilt(request: StreamCompletionRequest): void {
  if (request.fallbackModelIds.length > 0) {
    const field = "fallback_model_ids";
    throw new TurnError(ErrorCode.NOT_BUILT, { message: `${field} is not built yet`, details: { field } });
  }
}

function milliseconds(duration: Duration | undefined, field: string): number | undefined {
  if (!duration) return undefined;
  const ms = Number(duration.seconds) * 1000 + duration.nanos / 1e6;
  if (ms > 0 && ms <= 86_400_000) return ms;
  throw new TurnError(ErrorCode.INVALID_ARGUMENT, {
    message: `${field} must be more than zero and at most a day`,
    details: { field },
  });
}

function missing(field: string): TurnError {
  return new TurnError(ErrorCode.INVALID_ARGUMENT, { message: `${field} must be set`, details: { field } });
}

/** A page token is the id of the last model of the page before. */
function pageOfModels(entries: readonly ModelEntry[], request: ListModelsRequest): ListModelsResponse {
  const after =
    request.pageToken === "" ? -1 : entries.findIndex(({ model }) => model.id === request.pageToken);
  if (request.pageToken !== "" && after === -1) {
    throw new TurnError(ErrorCode.INVALID_ARGUMENT, {
      message: "page_token is not valid any more",
      details: { field: "page_token" },
    });
  }
  const size = Math.min(request.pageSize === 0 ? DEFAULT_PAGE_SIZE : request.pageSize, MAX_PAGE_SIZE);
  const page = entries.slice(after + 1, after + 1 + size);
  const more = after + 1 + size < entries.length;
  return create(ListModelsResponseSchema, {
    models: page.map(modelMessage),
    nextPageToken: more ? (page.at(-1)?.model.id ?? "") : "",
  });
}

function modelMessage({ model, isDefault }: ModelEntry): ReturnType<typeof create<typeof ModelSchema>> {
  return create(ModelSchema, {
    modelId: model.id,
    displayName: model.displayName,
    ownedBy: model.ownedBy,
    contextTokens: model.contextTokens,
    maxOutputTokens: model.maxOutputTokens,
    modalities: ["text"],
    tools: model.tools ?? true,
    reasoning: model.reasoning ?? false,
    nativeToolCalling: model.tools ?? true,
    aliases: [...model.aliases],
    isDefault,
    demo: model.id === DEMO_MODEL_ID,
  });
}

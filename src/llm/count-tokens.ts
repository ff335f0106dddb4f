/** CountTokens: the provider's own count where it has one, else that of a tokenizer, marked as an estimate. */
import { create } from "@bufbuild/protobuf";
import {
  CountTokensResponseSchema,
  type Caller,
  type CompletionInput,
  type CountTokensRequest,
  type CountTokensResponse,
} from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import type { Clock } from "../lib/clock.js";
import { errorCodeName, TurnError } from "../lib/errors.js";
import type { Logger } from "../lib/log.js";
import { countWithTokenizer } from "./accounting/tokenizer.js";
import { askUpstream } from "./attempts/ask-upstream.js";
import type { FoundModel, ModelCatalog } from "./model-catalog.js";
import { Targets } from "./routing/targets.js";

const TIMEOUT_MS = 10_000;

export interface CountDeps {
  readonly catalog: ModelCatalog;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** Throws MODEL_NOT_FOUND. A provider that fails to count does not fail the call: an estimate is given. */
export async function countTokens(
  request: CountTokensRequest,
  deps: CountDeps,
  signal: AbortSignal,
): Promise<CountTokensResponse> {
  const { input } = request;
  if (!input) {
    throw new TurnError(ErrorCode.INVALID_ARGUMENT, {
      message: "input must be set",
      details: { field: "input" },
    });
  }
  const { first } = await Targets.of({ ...request, fallbackModelIds: [] }, deps.catalog, signal);
  const told = await providerCount(request.caller, input, first, deps, signal);
  if (told !== undefined) return create(CountTokensResponseSchema, { tokens: told });
  const tokens = await countWithTokenizer(input, signal);
  return create(CountTokensResponseSchema, { tokens, estimated: true });
}

async function providerCount(
  caller: Caller | undefined,
  input: CompletionInput,
  { model, upstream }: FoundModel,
  { clock, logger }: CountDeps,
  signal: AbortSignal,
): Promise<number | undefined> {
  const { provider } = upstream;
  if (!provider.countTokens) return undefined;
  const count = provider.countTokens.bind(provider);
  try {
    return await askUpstream(
      {
        ...{ upstream, clock, timeoutMs: TIMEOUT_MS },
        ask: (apiKey, signal) =>
          count({ model, input, signal, caller, ...(apiKey !== undefined && { apiKey }) }),
      },
      signal,
    );
  } catch (error) {
    signal.throwIfAborted();
    const { code, message } = TurnError.from(error);
    const facts = { provider: upstream.name, model: model.id, code: errorCodeName(code), failure: message };
    logger.warn(facts, "a provider could not count tokens: they are estimated");
    return undefined;
  }
}

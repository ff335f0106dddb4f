/** CountTokens: the provider's own count where it has one, else that of a tokenizer, marked as an estimate. */
import { create } from "@bufbuild/protobuf";
import {
  CountTokensResponseSchema,
  type CompletionInput,
  type CountTokensRequest,
  type CountTokensResponse,
} from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../lib/errors.js";
import { countWithTokenizer } from "./accounting/tokenizer.js";
import { askUpstream } from "./attempts/ask-upstream.js";
import type { FoundModel, ModelCatalog } from "./model-catalog.js";
import { Targets } from "./routing/targets.js";

const TIMEOUT_MS = 10_000;

/** Throws MODEL_NOT_FOUND. A provider that fails to count does not fail the call: an estimate is given. */
export async function countTokens(
  request: CountTokensRequest,
  catalog: ModelCatalog,
  caller: AbortSignal,
): Promise<CountTokensResponse> {
  const { input } = request;
  if (!input) {
    throw new TurnError(ErrorCode.INVALID_ARGUMENT, {
      message: "input must be set",
      details: { field: "input" },
    });
  }
  const { first } = await Targets.of({ ...request, fallbackModelIds: [] }, catalog, caller);
  const told = await providerCount(request, input, first, caller);
  if (told !== undefined) return create(CountTokensResponseSchema, { tokens: told });
  const tokens = await countWithTokenizer(input, caller);
  return create(CountTokensResponseSchema, { tokens, estimated: true });
}

async function providerCount(
  request: CountTokensRequest,
  input: CompletionInput,
  { model, upstream }: FoundModel,
  caller: AbortSignal,
): Promise<number | undefined> {
  const { provider } = upstream;
  if (!provider.countTokens) return undefined;
  const count = provider.countTokens.bind(provider);
  const signal = AbortSignal.any([caller, AbortSignal.timeout(TIMEOUT_MS)]);
  try {
    return await askUpstream(
      upstream,
      (apiKey) =>
        count({ model, input, signal, caller: request.caller, ...(apiKey !== undefined && { apiKey }) }),
      signal,
    );
  } catch {
    caller.throwIfAborted();
    return undefined; // counted by the tokenizer then
  }
}

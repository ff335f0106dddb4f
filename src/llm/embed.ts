/** Embed: the vectors of texts, from the provider of the model. */
import { create } from "@bufbuild/protobuf";
import {
  EmbedResponseSchema,
  type EmbedRequest,
  type EmbedResponse,
} from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ErrorCode, UsageSchema } from "../../gen/turnwire/packet/v1/common_pb.js";
import type { Clock } from "../lib/clock.js";
import { TurnError } from "../lib/errors.js";
import { TokenEstimate, withCost } from "./accounting/usage.js";
import { askUpstream } from "./attempts/ask-upstream.js";
import type { ModelCatalog } from "./model-catalog.js";
import { mayUse } from "./routing/access.js";
import { noSuchModel } from "./routing/targets.js";

const TIMEOUT_MS = 60_000;

/** Throws MODEL_NOT_FOUND, NOT_BUILT for a model that cannot embed, and the provider's failure. */
export async function embed(
  request: EmbedRequest,
  { catalog, clock }: { readonly catalog: ModelCatalog; readonly clock: Clock },
  signal: AbortSignal,
): Promise<EmbedResponse> {
  const { caller, modelId, inputs } = request;
  const found = await catalog.find(modelId, signal);
  if (!found || !mayUse(found.model.access, caller)) throw noSuchModel(modelId);
  const { model, upstream } = found;
  const { provider } = upstream;
  if (!provider.embed) {
    throw new TurnError(ErrorCode.NOT_BUILT, {
      message: `the provider of ${model.id.slice(0, 128)} has no embeddings`,
      details: { field: "model_id" },
    });
  }
  const ask = provider.embed.bind(provider);
  const { vectors, inputTokens } = await askUpstream(
    {
      ...{ upstream, clock, timeoutMs: TIMEOUT_MS },
      ask: (apiKey, signal) =>
        ask({ model, inputs, signal, caller, ...(apiKey !== undefined && { apiKey }) }),
    },
    signal,
  );
  if (vectors.length !== inputs.length) throw new TurnError(ErrorCode.UPSTREAM_MALFORMED);
  const usage = create(UsageSchema, {
    inputTokens: inputTokens > 0 ? inputTokens : estimate(inputs),
    estimated: inputTokens === 0,
    attempts: 1,
  });
  return create(EmbedResponseSchema, {
    embeddings: vectors.map((values) => ({ values: [...values] })),
    usage: withCost(usage, model.price),
  });
}

function estimate(texts: readonly string[]): number {
  const tokens = new TokenEstimate();
  for (const text of texts) tokens.add(text);
  return tokens.tokens;
}

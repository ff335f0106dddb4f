/** What a model call cost: tokens from the provider, or estimated where it gave none; money from the price table. */
import { create } from "@bufbuild/protobuf";
import type { CompletionInput } from "../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { UsageSchema, type Usage } from "../../../gen/turnwire/packet/v1/common_pb.js";
import type { PriceConfig, TokenPrices } from "../config.js";

const PER_MILLION = 1_000_000n;

/** The usage with its cost, unless the provider told one or the price is unknown. `images`: those that the model made. */
export function withCost(usage: Usage, price: PriceConfig | undefined, images = 0): Usage {
  if (!price || usage.costMicros !== "0") return usage;
  const tokens = costOfTokens(usage, pricesFor(usage.inputTokens, price));
  const rest = BigInt(price.request ?? 0) + BigInt(images) * BigInt(price.image ?? 0);
  const costMicros = ((tokens + PER_MILLION / 2n) / PER_MILLION + rest).toString();
  return { ...usage, costMicros, currency: price.currency };
}

/** A tier holds for all tokens of a request. */
function pricesFor(inputTokens: number, price: PriceConfig): TokenPrices {
  return price.tiers?.find(({ aboveInputTokens }) => inputTokens > aboveInputTokens) ?? price;
}

function costOfTokens(usage: Usage, prices: TokenPrices): bigint {
  const cached = usage.cacheReadTokens + usage.cacheWriteTokens;
  const reasoning = Math.min(usage.reasoningTokens, usage.outputTokens);
  return (
    cost(Math.max(0, usage.inputTokens - cached), prices.input) +
    cost(usage.cacheReadTokens, prices.cacheRead) +
    cost(usage.cacheWriteTokens, prices.cacheWrite) +
    cost(usage.outputTokens - reasoning, prices.output) +
    cost(reasoning, prices.reasoning ?? prices.output)
  );
}

function cost(tokens: number, microsPerMillion: number): bigint {
  return BigInt(tokens) * BigInt(microsPerMillion);
}

/**
 * Counts the tokens of texts roughly, without a tokenizer: a quarter token per ASCII character, nearly one per other
 * character. Cheap enough to run along with every stream; a test holds it against a real tokenizer.
 */
export class TokenEstimate {
  #units = 0;
  #bytes = 0;

  add(text: string): void {
    this.#units += text.length;
    this.#bytes += Buffer.byteLength(text);
  }

  get tokens(): number {
    const wide = (this.#bytes - this.#units) / 2;
    return Math.ceil(Math.max(0, this.#units - wide) / 4 + wide * 0.9);
  }
}

const TOKENS_PER_MESSAGE = 4;
const TOKENS_PER_MEDIA = 1_000;

/** Rough tokens of everything that a model is given. */
export function estimateInputTokens(input: CompletionInput): number {
  const estimate = new TokenEstimate();
  const media = forEachText(input, (text) => estimate.add(text));
  return estimate.tokens + input.messages.length * TOKENS_PER_MESSAGE + media * TOKENS_PER_MEDIA;
}

/** Hands out all texts that a model is given; returns how many pictures, sounds and documents there are beside them. */
export function forEachText(input: CompletionInput, take: (text: string) => void): number {
  let media = 0;
  for (const message of input.messages) {
    for (const { part } of message.parts) {
      switch (part.case) {
        case "text":
        case "reasoning":
        case "refusal":
          take(part.value);
          break;
        case "toolCall":
          take(part.value.name);
          take(part.value.argumentsJson);
          break;
        case "toolResult":
          take(part.value.text);
          media += part.value.media.length;
          break;
        case "media":
          media++;
          break;
        case "providerState":
        case undefined:
          break; // not the model's to read
      }
    }
  }
  for (const tool of input.tools) {
    take(tool.name);
    take(tool.description);
    take(tool.parametersJsonSchema);
  }
  if (input.responseFormat) take(input.responseFormat.jsonSchema);
  return media;
}

/** Usage that nobody told, marked as such. */
export function estimatedUsage(input: CompletionInput, outputTokens: number): Usage {
  return create(UsageSchema, { inputTokens: estimateInputTokens(input), outputTokens, estimated: true });
}

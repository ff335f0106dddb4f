import type { Model } from "../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { formatCost, formatTokens } from "../ui/format.js";

/** The most models that are asked at once: more do not fit beside each other. */
export const MAX_LANES = 3;

/** What is known of a model, in few words: its maker, its room, what it can, its price per million tokens. */
export function modelFacts(model: Model): string[] {
  const { contextTokens, tools, reasoning, modalities, price, demo, isDefault, ownedBy } = model;
  const money = (micros: string): string => formatCost(micros, price?.currency ?? "");
  return [
    demo ? "a script, no language model" : ownedBy,
    isDefault ? "default" : "",
    contextTokens > 0 ? `${formatTokens(contextTokens)} context` : "",
    reasoning ? "reasons" : "",
    tools ? "tools" : "",
    ...modalities.filter((kind) => kind !== "text"),
    price ? `${money(price.inputMicrosPerMtok)} in, ${money(price.outputMicrosPerMtok)} out per M` : "",
  ].filter(Boolean);
}

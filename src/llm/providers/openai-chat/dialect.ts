/** The dialect of OpenAI's chat completions, spoken by many servers; how they differ is data (`vendors.ts`). */
import type { ModelConfig } from "../../config.js";
import { objectOf, stringOf, uint32Of, type Json } from "../../json.js";
import type { DecoderOptions, Dialect, DialectSettings, ListedModel, StreamDecoder } from "../dialect.js";
import { createFramedDecoder } from "../shared/framed-decoder.js";
import { openAiEmbedding } from "../shared/openai-embedding.js";
import { ChatChunkReader } from "./chunk-reader.js";
import type { ChatQuirks } from "./chat-quirks.js";
import { chatQuirks, quirksOfModel } from "./quirks.js";
import { buildChatRequest } from "./request.js";
import type { Vendor } from "./vendors.js";

const MAX_LISTED_MODELS = 1_000;

/** The dialect as the server at this address speaks it. Throws INVALID_ARGUMENT for quirks that are wrong. */
export function createOpenAiChatDialect(settings: DialectSettings): Dialect {
  const quirks = chatQuirks(settings);
  return {
    api: "openai-chat",
    accept: "text/event-stream, application/json",
    buildRequest: (input, model) => ({
      path: pathOf(quirks.path, quirks, model),
      headers: {},
      ...buildChatRequest(input, model, quirksOfModel(quirks, model.upstreamModel)),
    }),
    authorize(_request, apiKey): Record<string, string> {
      if (apiKey === undefined) return {};
      return { [quirks.keyHeader]: quirks.keyHeader === "authorization" ? `Bearer ${apiKey}` : apiKey };
    },
    createDecoder: createOpenAiChatDecoder,
    ...(quirks.modelsPath !== "" && {
      modelList: { path: quirks.modelsPath, read: (answer: Json) => readModelList(answer, quirks.vendor) },
    }),
    embedding: {
      ...openAiEmbedding,
      request: (inputs, model) => ({
        ...openAiEmbedding.request(inputs, model),
        path: pathOf(quirks.embeddingsPath, quirks, model),
      }),
    },
  };
}

/** A decoder for one response. */
export function createOpenAiChatDecoder(options: DecoderOptions): StreamDecoder {
  return createFramedDecoder({ ...options, reader: new ChatChunkReader(options), framing: "sse" });
}

function pathOf(template: string, quirks: ChatQuirks, model: ModelConfig): string {
  return template
    .replace("{model}", encodeURIComponent(model.upstreamModel))
    .replace("{apiVersion}", encodeURIComponent(quirks.apiVersion));
}

function listOf(value: unknown): Json[] {
  return Array.isArray(value) ? (value as unknown[]).map(objectOf) : [];
}

function readModelList(answer: Json, vendor: Vendor): ListedModel[] {
  const { chatModels, preferredModels = [] } = vendor;
  const models = listOf(Array.isArray(answer) ? answer : (answer["data"] ?? answer["models"]))
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
    .filter(({ id }) => chatModels?.test(id) ?? true)
    .slice(0, MAX_LISTED_MODELS);
  const preferred = preferredModels.map((id) => models.find((model) => model.id === id)).find(Boolean);
  return preferred ? [preferred, ...models.filter((model) => model !== preferred)] : models;
}

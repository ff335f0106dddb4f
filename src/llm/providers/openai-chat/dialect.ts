/** The dialect of OpenAI's chat completions, spoken by many servers; how they differ is data (`vendors.ts`). */
import { objectOf, stringOf, uint32Of, type Json } from "../../json.js";
import type { DecoderOptions, Dialect, DialectSettings, ListedModel, StreamDecoder } from "../dialect.js";
import { createFramedDecoder } from "../shared/framed-decoder.js";
import { ChatChunkReader } from "./chunk-reader.js";
import { buildChatRequest } from "./request.js";
import { openAiChatQuirks, type OpenAiChatQuirks } from "./vendors.js";

const MAX_LISTED_MODELS = 1_000;

/** The dialect as the server at this address speaks it. */
export function createOpenAiChatDialect(settings: DialectSettings): Dialect {
  const quirks = openAiChatQuirks(settings.baseUrl, settings.quirks as Partial<OpenAiChatQuirks>);
  return {
    api: "openai-chat",
    accept: "text/event-stream, application/json",
    buildRequest: (input, model) => ({
      path: "/chat/completions",
      headers: {},
      ...buildChatRequest(input, model, quirks),
    }),
    authorize(_request, apiKey): Record<string, string> {
      return apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` };
    },
    createDecoder: createOpenAiChatDecoder,
    modelList: { path: "/models", read: (answer) => readModelList(answer, quirks) },
  };
}

/** A decoder for one response. */
export function createOpenAiChatDecoder(options: DecoderOptions): StreamDecoder {
  return createFramedDecoder({ ...options, reader: new ChatChunkReader(options), framing: "sse" });
}

function readModelList(answer: Json, quirks: OpenAiChatQuirks): ListedModel[] {
  const list: unknown = Array.isArray(answer) ? answer : (answer["data"] ?? answer["models"]);
  const models = (Array.isArray(list) ? (list as unknown[]) : [])
    .map((item) => objectOf(item))
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
    .filter(({ id }) => quirks.chatModels?.test(id) ?? true)
    .slice(0, MAX_LISTED_MODELS);
  const preferred = quirks.preferredModels.map((id) => models.find((model) => model.id === id)).find(Boolean);
  return preferred ? [preferred, ...models.filter((model) => model !== preferred)] : models;
}

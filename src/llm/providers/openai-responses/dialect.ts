/** The dialect of OpenAI's Responses, spoken by OpenAI, Azure, xAI, OpenRouter, DeepSeek, LM Studio and others. */
import { objectOf, stringOf, uint32Of, type Json } from "../../json.js";
import type { DecoderOptions, Dialect, DialectSettings, ListedModel, StreamDecoder } from "../dialect.js";
import { createFramedDecoder } from "../shared/framed-decoder.js";
import { openAiEmbedding } from "../shared/openai-embedding.js";
import { invalid } from "../shared/request-input.js";
import { responsesQuirks, type ResponsesQuirks } from "./models.js";
import { ResponseReader } from "./reader.js";
import { buildCountRequest, buildResponsesRequest } from "./request.js";

const MAX_LISTED_MODELS = 1_000;

/** The dialect as the server at this address speaks it. */
export function createOpenAiResponsesDialect(settings: DialectSettings): Dialect {
  const quirks = responsesQuirks(settings.baseUrl, readQuirks(settings.quirks));
  return {
    api: "openai-responses",
    accept: "text/event-stream, application/json",
    buildRequest: (input, model) => ({
      path: "/responses",
      headers: {},
      ...buildResponsesRequest(input, model, quirks),
    }),
    authorize(_request, apiKey): Record<string, string> {
      if (apiKey === undefined) return {};
      return quirks.auth === "bearer" ? { authorization: `Bearer ${apiKey}` } : { "api-key": apiKey };
    },
    createDecoder: (options) => createOpenAiResponsesDecoder(options, quirks.rawReasoning),
    modelList: { path: "/models", read: (answer) => readModelList(answer, quirks) },
    embedding: openAiEmbedding,
    ...(quirks.countsTokens && {
      tokenCount: {
        request: (input, model) => ({
          path: "/responses/input_tokens",
          headers: {},
          ...buildCountRequest(input, model, quirks),
        }),
        read: (answer) => uint32Of(answer["input_tokens"]) ?? 0,
      },
    }),
  };
}

/** A decoder for one response. `rawReasoning`: show reasoning that is no summary. */
export function createOpenAiResponsesDecoder(options: DecoderOptions, rawReasoning = false): StreamDecoder {
  const reader = new ResponseReader({ ...options, rawReasoning });
  return createFramedDecoder({ ...options, reader, framing: "sse" });
}

const FLAGS = [
  "rawReasoning",
  "sealedReasoning",
  "reasoningSummary",
  "cacheKey",
  "plainEvents",
  "countsTokens",
];

function readQuirks(quirks: Readonly<Record<string, unknown>>): Partial<ResponsesQuirks> {
  for (const [name, value] of Object.entries(quirks)) {
    if (name === "auth") {
      if (value !== "bearer" && value !== "api-key")
        throw invalid("quirks.auth", "must be bearer or api-key");
    } else if (!FLAGS.includes(name)) {
      throw invalid(`quirks.${name}`, "is not known to openai-responses");
    } else if (typeof value !== "boolean") {
      throw invalid(`quirks.${name}`, "must be true or false");
    }
  }
  return quirks;
}

function readModelList(answer: Json, quirks: ResponsesQuirks): ListedModel[] {
  const list = answer["data"];
  const models = (Array.isArray(list) ? (list as unknown[]) : [])
    .map((item) => objectOf(item))
    .map((item) => ({
      id: stringOf(item["id"]),
      ownedBy: stringOf(item["owned_by"]),
      contextTokens: uint32Of(item["context_length"]) ?? uint32Of(item["context_window"]) ?? 0,
    }))
    .filter(({ id }) => id !== "" && id.length <= 256 && (quirks.chatModels?.test(id) ?? true))
    .slice(0, MAX_LISTED_MODELS);
  const preferred = quirks.preferredModels.map((id) => models.find((model) => model.id === id)).find(Boolean);
  return preferred ? [preferred, ...models.filter((model) => model !== preferred)] : models;
}

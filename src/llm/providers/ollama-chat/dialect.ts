/** The dialect of Ollama's own API: one JSON object per line. */
import { objectsOf, stringOf, uint32Of, type Json } from "../../json.js";
import type { DecoderOptions, Dialect, DialectSettings, ListedModel, StreamDecoder } from "../dialect.js";
import { createFramedDecoder } from "../shared/framed-decoder.js";
import { OllamaReader } from "./reader.js";
import { buildOllamaRequest } from "./request.js";

const MAX_LISTED_MODELS = 1_000;

/** The dialect for a server; its address may end with /api. */
export function createOllamaChatDialect(settings: DialectSettings): Dialect {
  const root = settings.baseUrl.endsWith("/api") ? "" : "/api";
  return {
    api: "ollama-chat",
    accept: "application/x-ndjson, application/json",
    buildRequest: (input, model) => ({
      path: `${root}/chat`,
      headers: {},
      ...buildOllamaRequest(input, model),
    }),
    authorize(_request, apiKey): Record<string, string> {
      return apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` };
    },
    createDecoder: createOllamaChatDecoder,
    modelList: { path: `${root}/tags`, read: readModelList },
    embedding: {
      request: (inputs, model) => ({
        path: `${root}/embed`,
        headers: {},
        body: { model: model.upstreamModel, input: [...inputs] },
        dropped: [],
      }),
      read: (answer) => ({
        vectors: Array.isArray(answer["embeddings"]) ? (answer["embeddings"] as number[][]) : [],
        inputTokens: uint32Of(answer["prompt_eval_count"]) ?? 0,
      }),
    },
  };
}

/** A decoder for one response. */
export function createOllamaChatDecoder(options: DecoderOptions): StreamDecoder {
  return createFramedDecoder({ ...options, reader: new OllamaReader(options), framing: "ndjson" });
}

/** Embedding models are listed among the others; their names tell. */
function readModelList(answer: Json): ListedModel[] {
  return objectsOf(answer["models"])
    .map((item) => stringOf(item["model"]) || stringOf(item["name"]))
    .filter((id) => id !== "" && id.length <= 256 && !/embed|minilm|bge-/i.test(id))
    .slice(0, MAX_LISTED_MODELS)
    .map((id) => ({ id, ownedBy: "ollama", contextTokens: 0 }));
}

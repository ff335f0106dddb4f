/** The dialect of Cohere's v2 chat. */
import { objectOf, objectsOf, stringOf, uint32Of, type Json } from "../../json.js";
import type { DecoderOptions, Dialect, ListedModel, StreamDecoder } from "../dialect.js";
import { createFramedDecoder } from "../shared/framed-decoder.js";
import { CohereReader } from "./reader.js";
import { buildCohereRequest } from "./request.js";

const MAX_LISTED_MODELS = 1_000;
/** Texts of one embedding request. */
const MAX_EMBEDDED = 96;

/** The dialect for a server; its address ends before the version. */
export function createCohereV2Dialect(): Dialect {
  return {
    api: "cohere-v2",
    accept: "text/event-stream, application/json",
    buildRequest: (input, model) => ({ path: "/v2/chat", headers: {}, ...buildCohereRequest(input, model) }),
    authorize(_request, apiKey): Record<string, string> {
      return apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` };
    },
    createDecoder: createCohereV2Decoder,
    modelList: { path: "/v1/models?endpoint=chat&page_size=1000", read: readModelList },
    embedding: {
      maxInputs: MAX_EMBEDDED,
      request: (inputs, model) => ({
        path: "/v2/embed",
        headers: {},
        body: {
          model: model.upstreamModel,
          texts: [...inputs],
          input_type: "search_document",
          embedding_types: ["float"],
        },
        dropped: [],
      }),
      read: readEmbeddings,
    },
  };
}

/** A decoder for one response. */
export function createCohereV2Decoder(options: DecoderOptions): StreamDecoder {
  return createFramedDecoder({ ...options, reader: new CohereReader(options), framing: "sse" });
}

function readEmbeddings(answer: Json) {
  const floats = objectOf(answer["embeddings"])["float"];
  const billed = objectOf(objectOf(answer["meta"])["billed_units"]);
  return {
    vectors: Array.isArray(floats) ? (floats as number[][]) : [],
    inputTokens: uint32Of(billed["input_tokens"]) ?? 0,
  };
}

function readModelList(answer: Json): ListedModel[] {
  return objectsOf(answer["models"])
    .filter((item) => !Array.isArray(item["endpoints"]) || item["endpoints"].includes("chat"))
    .map((item) => ({
      id: stringOf(item["name"]),
      ownedBy: "cohere",
      contextTokens: uint32Of(item["context_length"]) ?? 0,
    }))
    .filter(({ id }) => id !== "" && id.length <= 256)
    .slice(0, MAX_LISTED_MODELS);
}

/** The dialect of Gemini's generateContent: the Gemini API and Vertex AI, told apart by their address. */
import { ErrorCode } from "../../../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../../../lib/errors.js";
import { objectOf, objectsOf, stringOf, uint32Of, type Json } from "../../json.js";
import type { DecoderOptions, Dialect, DialectSettings, ListedModel, StreamDecoder } from "../dialect.js";
import { createFramedDecoder } from "../shared/framed-decoder.js";
import { GeminiReader } from "./reader.js";
import { buildBody, buildGeminiRequest, modelPath } from "./request.js";

const MAX_LISTED_MODELS = 1_000;
/** Texts of one embedding request. */
const MAX_EMBEDDED = 100;
/** The first that a server lists is offered first. */
const PREFERRED_MODELS = ["gemini-flash-latest", "gemini-3-flash-preview", "gemini-2.5-flash"];

/**
 * The dialect as the server at this address speaks it. `quirks.auth`: "bearer" or "api-key". Default: an access token at
 * Vertex AI, a key everywhere else.
 */
export function createGeminiDialect(settings: DialectSettings): Dialect {
  const vertex = /(^|\.|-)aiplatform\.googleapis\.com(:\d+)?\//i.test(
    `${settings.baseUrl}/`.replace(/^https?:\/\//i, ""),
  );
  const auth = authQuirk(settings.quirks["auth"]);
  return {
    api: "gemini",
    accept: "text/event-stream, application/json",
    buildRequest: buildGeminiRequest,
    authorize(_request, apiKey): Record<string, string> {
      if (apiKey === undefined) return {};
      const bearer = auth === undefined ? vertex && !isApiKey(apiKey) : auth === "bearer";
      return bearer ? { authorization: `Bearer ${apiKey}` } : { "x-goog-api-key": apiKey };
    },
    createDecoder: createGeminiDecoder,
    modelList: { path: "/models?pageSize=1000", read: readModelList },
    embedding: {
      maxInputs: MAX_EMBEDDED,
      request: (inputs, model) => (vertex ? vertexEmbedding : geminiEmbedding)(inputs, model.upstreamModel),
      read: readEmbeddings,
    },
    tokenCount: {
      request(input, model) {
        const dropped: string[] = [];
        const body = buildBody(input, model, dropped);
        const name = modelPath(model.upstreamModel);
        const path = `${name}:countTokens`;
        // Vertex AI takes the parts beside each other, the Gemini API a whole request.
        const request = vertex ? body : { generateContentRequest: { model: name.slice(1), ...body } };
        return { path, headers: {}, body: request, dropped };
      },
      read: (answer) => uint32Of(answer["totalTokens"]) ?? 0,
    },
  };
}

/** A decoder for one response. */
export function createGeminiDecoder(options: DecoderOptions): StreamDecoder {
  return createFramedDecoder({ ...options, reader: new GeminiReader(options), framing: "sse" });
}

function authQuirk(auth: unknown): "bearer" | "api-key" | undefined {
  if (auth === undefined || auth === "bearer" || auth === "api-key") return auth;
  const message = 'quirks.auth must be "bearer" or "api-key"';
  throw new TurnError(ErrorCode.INVALID_ARGUMENT, { message, details: { field: "quirks.auth" } });
}

/** Keys of Google Cloud; access tokens look otherwise. */
function isApiKey(key: string): boolean {
  return /^(AIza|AQ\.)/.test(key);
}

function geminiEmbedding(inputs: readonly string[], upstreamModel: string) {
  const name = modelPath(upstreamModel);
  const requests = inputs.map((text) => ({ model: name.slice(1), content: { parts: [{ text }] } }));
  return { path: `${name}:batchEmbedContents`, headers: {}, body: { requests }, dropped: [] };
}

function vertexEmbedding(inputs: readonly string[], upstreamModel: string) {
  const instances = inputs.map((content) => ({ content }));
  return { path: `${modelPath(upstreamModel)}:predict`, headers: {}, body: { instances }, dropped: [] };
}

function readEmbeddings(answer: Json) {
  const gemini = objectsOf(answer["embeddings"]).map((item) => numbersOf(item["values"]));
  const predicted = objectsOf(answer["predictions"]).map((item) => objectOf(item["embeddings"]));
  const tokens = predicted.map((item) => uint32Of(objectOf(item["statistics"])["token_count"]) ?? 0);
  return {
    vectors: gemini.length > 0 ? gemini : predicted.map((item) => numbersOf(item["values"])),
    inputTokens: tokens.reduce((sum, count) => sum + count, 0),
  };
}

function readModelList(answer: Json): ListedModel[] {
  const models = objectsOf(answer["models"])
    .filter((item) => {
      const methods = item["supportedGenerationMethods"];
      return !Array.isArray(methods) || methods.includes("generateContent");
    })
    .map((item) => ({
      id: stringOf(item["name"]).replace(/^models\//, ""),
      ownedBy: "google",
      contextTokens: uint32Of(item["inputTokenLimit"]) ?? 0,
    }))
    .filter(({ id }) => id !== "" && id.length <= 256)
    .slice(0, MAX_LISTED_MODELS);
  const preferred = PREFERRED_MODELS.map((id) => models.find((model) => model.id === id)).find(Boolean);
  return preferred ? [preferred, ...models.filter((model) => model !== preferred)] : models;
}

function numbersOf(value: unknown): number[] {
  return Array.isArray(value) ? (value as unknown[]).map(Number) : [];
}

/** The dialect of Anthropic's Messages, spoken by Claude and by servers that stand in for it. */
import { objectOf, stringOf, uint32Of, type Json } from "../../json.js";
import type {
  DecoderOptions,
  Dialect,
  DialectRequest,
  DialectSettings,
  ListedModel,
  StreamDecoder,
} from "../dialect.js";
import { createFramedDecoder } from "../shared/framed-decoder.js";
import { invalid } from "../shared/request-input.js";
import { familyOf } from "./models.js";
import { MessageReader } from "./reader.js";
import { buildCountRequest, buildMessagesRequest, type MessagesRequest } from "./request.js";

const VERSION = "2023-06-01";
const MAX_LISTED_MODELS = 1_000;
/** What every Claude can read where the list does not say. */
const CONTEXT_TOKENS = 200_000;

/** The dialect as the server at this address speaks it. Quirk: `auth: bearer` for servers that want a bearer token. */
export function createAnthropicMessagesDialect({ quirks }: DialectSettings): Dialect {
  const unknown = Object.keys(quirks).find((name) => name !== "auth");
  if (unknown !== undefined) throw invalid(`quirks.${unknown}`, "is not known to anthropic-messages");
  const auth = quirks["auth"] ?? "x-api-key";
  if (auth !== "x-api-key" && auth !== "bearer") throw invalid("quirks.auth", "must be x-api-key or bearer");
  return {
    api: "anthropic-messages",
    accept: "text/event-stream, application/json",
    buildRequest: (input, model) => requestTo("/messages", buildMessagesRequest(input, model)),
    authorize(_request, apiKey): Record<string, string> {
      const headers: Record<string, string> = { "anthropic-version": VERSION }; // the list of models wants it, too
      if (apiKey !== undefined && auth === "bearer") headers["authorization"] = `Bearer ${apiKey}`;
      else if (apiKey !== undefined) headers["x-api-key"] = apiKey;
      return headers;
    },
    createDecoder: createAnthropicMessagesDecoder,
    modelList: { path: "/models?limit=1000", read: readModelList },
    tokenCount: {
      request: (input, model) => requestTo("/messages/count_tokens", buildCountRequest(input, model)),
      read: (answer) => uint32Of(answer["input_tokens"]) ?? 0,
    },
  };
}

/** A decoder for one response. */
export function createAnthropicMessagesDecoder(options: DecoderOptions): StreamDecoder {
  return createFramedDecoder({ ...options, reader: new MessageReader(options), framing: "sse" });
}

/** `anthropic_beta` among the provider options is a header on the wire. */
function requestTo(path: string, { body, dropped }: MessagesRequest): DialectRequest {
  const { anthropic_beta: beta, ...rest } = body;
  const betas = (Array.isArray(beta) ? (beta as unknown[]) : [beta])
    .map(stringOf)
    .filter((name) => name !== "");
  const headers = {
    "anthropic-version": VERSION,
    ...(betas.length > 0 && { "anthropic-beta": betas.join(",") }),
  };
  return { path, headers, body: rest, dropped };
}

/** The newest comes first; the newest of the middle size is the best default. */
function readModelList(answer: Json): ListedModel[] {
  const list = answer["data"];
  const models = (Array.isArray(list) ? (list as unknown[]) : [])
    .map((item) => objectOf(item))
    .map((item) => listed(item, stringOf(item["id"])))
    .filter(({ id }) => id !== "" && id.length <= 256)
    .slice(0, MAX_LISTED_MODELS);
  const preferred = models.find(({ id }) => id.includes("sonnet"));
  return preferred ? [preferred, ...models.filter((model) => model !== preferred)] : models;
}

function listed(item: Json, id: string): ListedModel {
  const isClaude = id.includes("claude");
  const displayName = stringOf(item["display_name"]);
  return {
    id,
    ownedBy: isClaude ? "anthropic" : stringOf(item["owned_by"]),
    contextTokens: uint32Of(item["max_input_tokens"]) ?? (isClaude ? CONTEXT_TOKENS : 0),
    facts: {
      ...(displayName !== "" && { displayName }),
      ...(isClaude && {
        maxOutputTokens: uint32Of(item["max_tokens"]) ?? familyOf(id).maxOutputTokens,
        modalities: ["image", "document"],
        reasoning: familyOf(id).thinking !== "none",
        tools: true,
      }),
    },
  };
}

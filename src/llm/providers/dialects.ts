/** The dialects by their name in the configuration (`api`). */
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../../lib/errors.js";
import type { Dialect, DialectSettings } from "./dialect.js";
import { createAnthropicMessagesDialect } from "./anthropic-messages/dialect.js";
import { createBedrockConverseDialect } from "./bedrock-converse/dialect.js";
import { createCohereV2Dialect } from "./cohere-v2/dialect.js";
import { createGeminiDialect } from "./gemini/dialect.js";
import { createOllamaChatDialect } from "./ollama-chat/dialect.js";
import { createOpenAiChatDialect } from "./openai-chat/dialect.js";
import { createOpenAiResponsesDialect } from "./openai-responses/dialect.js";

const DIALECTS: ReadonlyMap<string, (settings: DialectSettings) => Dialect> = new Map([
  ["openai-chat", createOpenAiChatDialect],
  ["openai-responses", createOpenAiResponsesDialect],
  ["anthropic-messages", createAnthropicMessagesDialect],
  ["gemini", createGeminiDialect],
  ["ollama-chat", createOllamaChatDialect],
  ["cohere-v2", createCohereV2Dialect],
  ["bedrock-converse", createBedrockConverseDialect],
]);

/** Their names. */
export const DIALECT_NAMES: readonly string[] = [...DIALECTS.keys()];

/** Makes a dialect for a server. Throws INVALID_ARGUMENT for a name that is not known, and for quirks that are wrong. */
export function createDialect(api: string, settings: DialectSettings): Dialect {
  const create = DIALECTS.get(api);
  if (create) return create(settings);
  const message = `api ${api} is not known: use one of ${DIALECT_NAMES.join(", ")}`;
  throw new TurnError(ErrorCode.INVALID_ARGUMENT, { message, details: { field: "api" } });
}

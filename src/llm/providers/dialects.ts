/** The dialects by their name in the configuration (`api`). */
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../../lib/errors.js";
import type { Dialect, DialectSettings } from "./dialect.js";
import { createAnthropicMessagesDialect } from "./anthropic-messages/dialect.js";
import { createOpenAiChatDialect } from "./openai-chat/dialect.js";

const DIALECTS: ReadonlyMap<string, (settings: DialectSettings) => Dialect> = new Map([
  ["openai-chat", createOpenAiChatDialect],
  ["anthropic-messages", createAnthropicMessagesDialect],
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

/**
 * The port every tool implements. A tool is a description (the proto message that peers and models see) and a function
 * that yields packet payloads and returns one result. It knows nothing of RPC, placement, ledgers or limits: the service
 * around it checks arguments, counts, times, cancels and cuts.
 */
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { Attachment, TurnError as TurnErrorMessage } from "../../gen/turnwire/packet/v1/common_pb.js";
import { ErrorCode, TurnErrorSchema } from "../../gen/turnwire/packet/v1/common_pb.js";
import type { PacketSchema } from "../../gen/turnwire/packet/v1/packet_pb.js";
import {
  type SearchScope,
  type Tool,
  type ToolCaller,
  ToolOutcome,
  type ToolResult,
  ToolResultSchema,
} from "../../gen/turnwire/tool/v1/tool_service_pb.js";
import { ERROR_TABLE, type KnownErrorCode, TurnError } from "../lib/errors.js";
import type { Logger } from "../lib/log.js";

/** A packet's payload as a tool yields it: the oneof case and its value. */
export type ToolPayload = Exclude<
  NonNullable<MessageInitShape<typeof PacketSchema>["payload"]>,
  { case?: undefined }
>;

/** What a call brings along, already checked. */
export interface ToolInput {
  /** Arguments that satisfied the tool's JSON schema. Parsed text: own properties only, never merge it into anything. */
  readonly args: Readonly<Record<string, unknown>>;
  readonly caller: ToolCaller | undefined;
  readonly callId: string;
  readonly files: readonly Attachment[];
  /** Per-call secrets, by name. Never logged, never part of a packet or a result. */
  readonly credentials: Readonly<Record<string, string>>;
  /** The number of the first citeable document; the next ones count up. 0 = number none. */
  readonly firstCitationNumber: number;
  /** What the user asked, for tools that rank or summarise; may be empty. */
  readonly userQuery: string;
  /** What narrows a search of the caller's documents; absent = nothing. */
  readonly searchScope?: SearchScope | undefined;
  /** How many characters of model text the caller wants at most; 0 = the tool's own default. */
  readonly maxModelChars: number;
}

export interface ToolContext {
  /** Aborts when the call is cancelled or its time is over. A tool that does not end within a second is abandoned. */
  readonly signal: AbortSignal;
  readonly logger: Logger;
}

/** A tool: what it says about itself, and what it does. */
export interface ToolDefinition {
  readonly tool: Tool;
  /**
   * Runs one call. Yields payloads as they come and returns the result. A thrown `TurnError` shows its public message to
   * the model; anything else that is thrown is logged and shown as a plain failure.
   */
  run(input: ToolInput, context: ToolContext): AsyncGenerator<ToolPayload, ToolResult, undefined>;
  /** Releases what the tool holds (processes, sockets). Optional; called once, at shutdown. */
  close?(): Promise<void>;
}

/** The TurnError message for a code of the table, with a public text. */
export function errorMessage(code: KnownErrorCode, message?: string): TurnErrorMessage {
  const row = ERROR_TABLE[code];
  return create(TurnErrorSchema, { code, message: message ?? row.message, retryable: row.retryable });
}

/** A result that says what went wrong: `modelText` tells the model what it can do about it. */
export function errorResult(
  modelText: string,
  code: KnownErrorCode = ErrorCode.TOOL_FAILED,
  outcome: ToolOutcome = ToolOutcome.ERROR,
): ToolResult {
  return create(ToolResultSchema, { outcome, modelText, error: errorMessage(code, modelText) });
}

/** The text of a failure that a model and its user may read: a TurnError's own message, else nothing specific. */
export function publicFailureText(thrown: unknown): string {
  return thrown instanceof TurnError && thrown.code !== ErrorCode.INTERNAL
    ? thrown.message
    : ERROR_TABLE[ErrorCode.TOOL_FAILED].message;
}

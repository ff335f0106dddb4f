/**
 * The error table: one code for each thing that can go wrong, with what clients are told and how the RPC layer says it.
 * A test keeps this table, the proto enum and the docs page equal. No other file maps codes to statuses.
 */
import type { DescMessage } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";

/** One row: the RPC status, whether the same request may succeed later, and the public message when none is given. */
export interface ErrorRow {
  readonly status: Code;
  readonly retryable: boolean;
  readonly message: string;
}

const row = (status: Code, retryable: boolean, message: string): ErrorRow => ({ status, retryable, message });

export const ERROR_TABLE: Readonly<Record<Exclude<ErrorCode, ErrorCode.UNSPECIFIED>, ErrorRow>> = {
  [ErrorCode.INTERNAL]: row(Code.Internal, false, "something went wrong inside Turnwire"),
  [ErrorCode.INVALID_ARGUMENT]: row(Code.InvalidArgument, false, "the request is not valid"),
  [ErrorCode.UNAUTHENTICATED]: row(Code.Unauthenticated, false, "a valid bearer token is needed"),
  [ErrorCode.PERMISSION_DENIED]: row(Code.PermissionDenied, false, "the caller may not do this"),
  [ErrorCode.NOT_FOUND]: row(Code.NotFound, false, "not found"),
  [ErrorCode.REQUEST_CONFLICT]: row(
    Code.AlreadyExists,
    false,
    "this request_id was used for a different request",
  ),
  [ErrorCode.SESSION_BUSY]: row(Code.FailedPrecondition, true, "the session already runs a turn"),
  [ErrorCode.NOT_BUILT]: row(Code.Unimplemented, false, "this is not built yet"),
  [ErrorCode.UNAVAILABLE]: row(Code.Unavailable, true, "the service is not available, try again"),
  [ErrorCode.OVERLOADED]: row(Code.ResourceExhausted, true, "the service is at its limit, try again later"),
  [ErrorCode.DEADLINE_EXCEEDED]: row(Code.DeadlineExceeded, true, "the deadline passed"),
  [ErrorCode.CANCELLED]: row(Code.Canceled, false, "the call was cancelled"),
  [ErrorCode.MODEL_NOT_FOUND]: row(Code.NotFound, false, "no such model"),
  [ErrorCode.TOOL_NOT_FOUND]: row(Code.NotFound, false, "no such tool"),
  [ErrorCode.RATE_LIMIT]: row(
    Code.ResourceExhausted,
    true,
    "the model provider limits the rate, try again later",
  ),
  [ErrorCode.BUDGET_EXCEEDED]: row(Code.ResourceExhausted, false, "the budget is used up"),
  [ErrorCode.CONTEXT_TOO_LONG]: row(
    Code.InvalidArgument,
    false,
    "the conversation is too long for this model",
  ),
  [ErrorCode.MODEL_REFUSAL]: row(Code.FailedPrecondition, false, "the model refused to answer"),
  [ErrorCode.EMPTY_RESPONSE]: row(Code.Internal, true, "the model returned an empty answer"),
  [ErrorCode.UPSTREAM_REJECTED]: row(
    Code.FailedPrecondition,
    false,
    "the model provider rejected the request",
  ),
  [ErrorCode.UPSTREAM_AUTH]: row(
    Code.FailedPrecondition,
    false,
    "the model provider refused the configured key",
  ),
  [ErrorCode.UPSTREAM_UNAVAILABLE]: row(Code.Unavailable, true, "the model provider is not available"),
  [ErrorCode.UPSTREAM_TRUNCATED]: row(Code.Unavailable, true, "the model provider's stream ended early"),
  [ErrorCode.UPSTREAM_STALLED]: row(Code.Unavailable, true, "the model provider sent nothing for too long"),
  [ErrorCode.UPSTREAM_MALFORMED]: row(Code.Internal, true, "the model provider sent something unreadable"),
  [ErrorCode.TOOL_FAILED]: row(Code.Internal, false, "the tool failed"),
  [ErrorCode.TOOL_TIMEOUT]: row(Code.DeadlineExceeded, true, "the tool took too long"),
  [ErrorCode.CYCLE_LIMIT]: row(Code.ResourceExhausted, false, "the turn used all its model calls"),
  [ErrorCode.SIZE_LIMIT]: row(Code.ResourceExhausted, false, "the size limit was reached"),
  [ErrorCode.CURSOR_EXPIRED]: row(
    Code.OutOfRange,
    false,
    "the packets after this cursor are no longer in the log",
  ),
  [ErrorCode.CURSOR_AHEAD]: row(Code.FailedPrecondition, false, "the cursor is beyond the head of the turn"),
  [ErrorCode.LOG_REPLACED]: row(
    Code.FailedPrecondition,
    false,
    "the log was replaced since this cursor was taken",
  ),
  [ErrorCode.READER_STALLED]: row(
    Code.ResourceExhausted,
    true,
    "the reader fell too far behind, resume from the last seq",
  ),
  [ErrorCode.LOG_TRUNCATED]: row(Code.DataLoss, false, "the log lost packets that had been acknowledged"),
  [ErrorCode.OWNER_LOST]: row(Code.Unavailable, true, "the process that ran the turn ended"),
};

/** A known code of the table. */
export type KnownErrorCode = keyof typeof ERROR_TABLE;

export interface TurnErrorOptions {
  /** What clients may read; default: the table's message. Never a stack, key, host or prompt. */
  readonly message?: string;
  /** How long a client should wait before it tries again, milliseconds. */
  readonly retryAfterMs?: number;
  /** For the log only; never leaves the process. */
  readonly cause?: unknown;
  /** Public key-value facts, for example the field that is wrong. */
  readonly details?: Readonly<Record<string, string>>;
  /** Typed messages that travel with an RPC status (CursorExpired, SessionBusy, ...). */
  readonly typed?: readonly ErrorDetailMessage[];
}

/** A typed status detail, as @connectrpc/connect takes it: a schema and the message's init. */
export interface ErrorDetailMessage {
  readonly desc: DescMessage;
  readonly value: Record<string, unknown>;
}

/** The one error class. Anything else that is thrown becomes INTERNAL with the cause kept for the log. */
export class TurnError extends Error {
  override readonly name = "TurnError";
  readonly code: KnownErrorCode;
  readonly retryable: boolean;
  readonly status: Code;
  readonly retryAfterMs: number;
  readonly details: Readonly<Record<string, string>>;
  readonly typed: readonly ErrorDetailMessage[];

  constructor(code: KnownErrorCode, options: TurnErrorOptions = {}) {
    const known = ERROR_TABLE[code];
    super(
      options.message ?? known.message,
      options.cause === undefined ? undefined : { cause: options.cause },
    );
    this.code = code;
    this.retryable = known.retryable;
    this.status = known.status;
    this.retryAfterMs = options.retryAfterMs ?? 0;
    this.details = options.details ?? {};
    this.typed = options.typed ?? [];
  }

  /** Wraps whatever was thrown: a TurnError stays itself, anything else is INTERNAL with the cause kept. */
  static from(thrown: unknown): TurnError {
    return thrown instanceof TurnError ? thrown : new TurnError(ErrorCode.INTERNAL, { cause: thrown });
  }
}

/** The enum's name of a code without its prefix, as it stands in ErrorInfo.reason and the docs: "SESSION_BUSY". */
export function errorCodeName(code: ErrorCode): string {
  return ErrorCode[code] ?? `CODE_${code}`;
}

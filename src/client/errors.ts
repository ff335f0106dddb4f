/** What the client throws: one class, made of the typed details that travel with an RPC status. */
import { Code, ConnectError } from "@connectrpc/connect";
import {
  CursorAheadSchema,
  CursorExpiredSchema,
  ErrorDetailSchema,
  LogReplacedSchema,
  NotBuiltSchema,
  ReaderStalledSchema,
  SessionBusySchema,
  type CursorAhead,
  type CursorExpired,
  type LogReplaced,
  type NotBuilt,
  type ReaderStalled,
  type SessionBusy,
} from "../../gen/turnwire/chat/v1/errors_pb.js";
import { BadRequestSchema, ErrorInfoSchema, RetryInfoSchema } from "../../gen/google/rpc/error_details_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { ERROR_TABLE, errorCodeName, type KnownErrorCode } from "../lib/errors.js";

/** The typed messages of a status, decoded; a member is absent when the server sent none. */
export interface ErrorDetails {
  readonly cursorExpired?: CursorExpired;
  readonly cursorAhead?: CursorAhead;
  readonly logReplaced?: LogReplaced;
  readonly readerStalled?: ReaderStalled;
  readonly sessionBusy?: SessionBusy;
  readonly notBuilt?: NotBuilt;
  /** Public facts of the error, by key (google.rpc.ErrorInfo.metadata). */
  readonly facts: Readonly<Record<string, string>>;
  /** Fields that the server refused, with its reason (google.rpc.BadRequest). */
  readonly violations: readonly { readonly field: string; readonly description: string }[];
}

export interface TurnwireClientErrorInit {
  readonly code: ErrorCode;
  readonly message: string;
  readonly status: Code;
  readonly retryable: boolean;
  readonly typed: boolean;
  readonly retryAfterMs?: number;
  readonly details?: ErrorDetails;
  readonly cause?: unknown;
}

const NO_DETAILS: ErrorDetails = { facts: {}, violations: [] };

/** The one error class of the client. `code` is the row of the error table, whatever the protocol made of it. */
export class TurnwireClientError extends Error {
  override readonly name = "TurnwireClientError";
  readonly code: ErrorCode;
  /** The RPC status that carried the error. */
  readonly status: Code;
  /** Whether the same request may succeed later. */
  readonly retryable: boolean;
  /** True when the service itself said so; false when the network, a proxy or the client library failed. */
  readonly typed: boolean;
  /** How long the server asks to wait before the next try, milliseconds; 0 = it did not say. */
  readonly retryAfterMs: number;
  readonly details: ErrorDetails;

  constructor(init: TurnwireClientErrorInit) {
    super(init.message, init.cause === undefined ? undefined : { cause: init.cause });
    this.code = init.code;
    this.status = init.status;
    this.retryable = init.retryable;
    this.typed = init.typed;
    this.retryAfterMs = init.retryAfterMs ?? 0;
    this.details = init.details ?? NO_DETAILS;
  }

  /** The code's name as the error table spells it: "NOT_FOUND". */
  get codeName(): string {
    return errorCodeName(this.code);
  }
}

/** An error that the client itself found (an ended stream, silence, an abort); message and retryability from the table. */
export function clientError(code: KnownErrorCode, message?: string, cause?: unknown): TurnwireClientError {
  const row = ERROR_TABLE[code];
  return new TurnwireClientError({
    code,
    message: message ?? row.message,
    status: row.status,
    retryable: row.retryable,
    typed: false,
    cause,
  });
}

/** Turns whatever a transport threw into a TurnwireClientError; one that already is stays itself. */
export function toClientError(thrown: unknown): TurnwireClientError {
  if (thrown instanceof TurnwireClientError) return thrown;
  const error = ConnectError.from(thrown, Code.Unknown);
  const detail = error.findDetails(ErrorDetailSchema)[0];
  const info = error.findDetails(ErrorInfoSchema)[0];
  const named = codeByName(info?.reason);
  const typed = detail !== undefined || named !== undefined;
  const code = detail?.code || named || codeOfStatus(error.code);
  return new TurnwireClientError({
    code,
    message: error.rawMessage || errorCodeName(code),
    status: error.code,
    retryable: detail?.retryable ?? (typed ? isRetryableCode(code) : isLoss(error)),
    typed,
    retryAfterMs: Math.max(detail?.retryAfterMs ?? 0, retryDelayMs(error)),
    details: decodeDetails(error, info?.metadata),
    cause: thrown,
  });
}

function decodeDetails(
  error: ConnectError,
  facts: Readonly<Record<string, string>> | undefined,
): ErrorDetails {
  const violations = error
    .findDetails(BadRequestSchema)
    .flatMap((request) => request.fieldViolations)
    .map(({ field, description }) => ({ field, description }));
  return {
    cursorExpired: error.findDetails(CursorExpiredSchema)[0],
    cursorAhead: error.findDetails(CursorAheadSchema)[0],
    logReplaced: error.findDetails(LogReplacedSchema)[0],
    readerStalled: error.findDetails(ReaderStalledSchema)[0],
    sessionBusy: error.findDetails(SessionBusySchema)[0],
    notBuilt: error.findDetails(NotBuiltSchema)[0],
    facts: facts ?? {},
    violations,
  };
}

function retryDelayMs(error: ConnectError): number {
  const delay = error.findDetails(RetryInfoSchema)[0]?.retryDelay;
  return delay ? Number(delay.seconds) * 1000 + delay.nanos / 1e6 : 0;
}

function codeByName(reason: string | undefined): ErrorCode | undefined {
  if (!reason) return undefined;
  const code = ErrorCode[reason as keyof typeof ErrorCode] as ErrorCode | undefined;
  return typeof code === "number" && code !== ErrorCode.UNSPECIFIED ? code : undefined;
}

function isRetryableCode(code: ErrorCode): boolean {
  return code in ERROR_TABLE && ERROR_TABLE[code as KnownErrorCode].retryable;
}

/** The nearest row of the table for a status that came without details. */
function codeOfStatus(status: Code): KnownErrorCode {
  switch (status) {
    case Code.Canceled:
      return ErrorCode.CANCELLED;
    case Code.InvalidArgument:
      return ErrorCode.INVALID_ARGUMENT;
    case Code.DeadlineExceeded:
      return ErrorCode.DEADLINE_EXCEEDED;
    case Code.NotFound:
      return ErrorCode.NOT_FOUND;
    case Code.AlreadyExists:
      return ErrorCode.REQUEST_CONFLICT;
    case Code.PermissionDenied:
      return ErrorCode.PERMISSION_DENIED;
    case Code.ResourceExhausted:
      return ErrorCode.OVERLOADED;
    case Code.Unimplemented:
      return ErrorCode.NOT_BUILT;
    case Code.Unauthenticated:
      return ErrorCode.UNAUTHENTICATED;
    case Code.Aborted:
    case Code.Unavailable:
      return ErrorCode.UNAVAILABLE;
    case Code.Unknown:
    case Code.FailedPrecondition:
    case Code.OutOfRange:
    case Code.Internal:
    case Code.DataLoss:
      return ErrorCode.INTERNAL;
  }
}

/**
 * Whether a status without details says that the connection was lost rather than that the service refused. Turnwire adds
 * details to every status it makes, so these come from sockets, proxies, or the Connect library, which reports a stream
 * that was cut inside a message or before its end as INVALID_ARGUMENT "protocol error: ...".
 */
function isLoss(error: ConnectError): boolean {
  switch (error.code) {
    case Code.Canceled:
    case Code.Unknown:
    case Code.DeadlineExceeded:
    case Code.ResourceExhausted:
    case Code.Aborted:
    case Code.Internal:
    case Code.Unavailable:
    case Code.DataLoss:
      return true;
    case Code.InvalidArgument:
      return error.rawMessage.startsWith("protocol error");
    default:
      return false;
  }
}

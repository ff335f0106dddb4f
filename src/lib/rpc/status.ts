/**
 * The one converter between TurnError and what an RPC says: code, public message and typed details
 * (google.rpc.ErrorInfo, google.rpc.RetryInfo, turnwire.chat.v1.ErrorDetail and the error's own). Every transport of the
 * server and every client of ours goes through here. Browser-safe.
 *
 * S1: nothing of a thrown value that is not a TurnError reaches a status: neither message nor cause.
 * S2: a status always fits in headers: the message and each fact are cut, typed details beyond the room are left out.
 */
import type { DescMessage, Message } from "@bufbuild/protobuf";
import { create, createRegistry, fromBinary, toBinary } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import type { ErrorInfo, RetryInfo } from "../../../gen/google/rpc/error_details_pb.js";
import {
  ErrorInfoSchema,
  RetryInfoSchema,
  file_google_rpc_error_details,
} from "../../../gen/google/rpc/error_details_pb.js";
import type { ErrorDetail } from "../../../gen/turnwire/chat/v1/errors_pb.js";
import { ErrorDetailSchema, file_turnwire_chat_v1_errors } from "../../../gen/turnwire/chat/v1/errors_pb.js";
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import type { ErrorDetailMessage, KnownErrorCode } from "../errors.js";
import { ERROR_TABLE, TurnError, errorCodeName } from "../errors.js";

/** ErrorInfo.domain of every status of ours. */
export const ERROR_DOMAIN = "turnwire";

const MAX_MESSAGE_CHARS = 1024;
const MAX_FACT_CHARS = 256;
const MAX_FACTS = 16;
const MAX_TYPED_BYTES = 4096;

/** One detail of a status, encoded as it travels: the type's full name and the message's bytes. */
export interface EncodedDetail {
  readonly type: string;
  readonly value: Uint8Array;
}

/** A status as every transport can say it. */
export interface RpcStatus {
  readonly code: Code;
  readonly message: string;
  readonly details: readonly EncodedDetail[];
}

/** The status of whatever was thrown (S1). */
export function toRpcStatus(thrown: unknown): RpcStatus {
  const error = TurnError.from(thrown);
  return {
    code: error.status,
    message: cut(error.message, MAX_MESSAGE_CHARS),
    details: encodeDetails(error),
  };
}

/** The same status as connect's error. */
export function toConnectError(thrown: unknown): ConnectError {
  const status = toRpcStatus(thrown);
  const error = new ConnectError(status.message, status.code);
  error.details = status.details.map((detail) => {
    const desc = DETAIL_TYPES.getMessage(detail.type); // with its type, connect adds a readable form for curl
    return desc ? { desc, value: fromBinary(desc, detail.value) as never } : detail;
  });
  return error;
}

/** What a client makes of a status it received. Messages of strangers are kept as the cause only (S1). */
export function fromRpcStatus(status: RpcStatus, cause?: unknown): TurnError {
  const known = decodeDetails(status.details);
  const info = known.find((detail) => detail.$typeName === ErrorInfoSchema.typeName) as ErrorInfo | undefined;
  const ours = info?.domain === ERROR_DOMAIN;
  const code = (ours && codeOfName(info.reason)) || CODE_OF_STATUS[status.code] || ErrorCode.INTERNAL;
  const typed = known.filter((detail) => !ENVELOPE_TYPES.has(detail.$typeName));
  return new TurnError(code, {
    message: ours ? cut(status.message, MAX_MESSAGE_CHARS) : undefined,
    retryAfterMs: retryAfterOf(known),
    details: ours ? { ...info.metadata } : undefined,
    typed: typed.map((detail) => ({
      desc: DETAIL_TYPES.getMessage(detail.$typeName)!,
      value: detail as unknown as Record<string, unknown>,
    })),
    cause: cause ?? new Error(status.message),
  });
}

/** What a client makes of an error that connect threw; a TurnError stays itself, an abort's reason too. */
export function fromConnectError(thrown: unknown): TurnError {
  if (thrown instanceof TurnError) return thrown;
  const error = ConnectError.from(thrown);
  if (error.cause instanceof TurnError) return error.cause;
  const details = error.details.flatMap((detail) =>
    "desc" in detail
      ? [{ type: detail.desc.typeName, value: toBinary(detail.desc, create(detail.desc, detail.value)) }]
      : [{ type: detail.type, value: detail.value }],
  );
  return fromRpcStatus({ code: error.code, message: error.rawMessage, details }, thrown);
}

/** The first typed detail of an error that has this schema, decoded. */
export function findDetail<M extends Message>(
  error: TurnError,
  desc: DescMessage & { readonly typeName: M["$typeName"] },
): M | undefined {
  const found = error.typed.find((detail) => detail.desc.typeName === desc.typeName);
  return found && (create(found.desc, found.value) as M);
}

const DETAIL_TYPES = createRegistry(file_google_rpc_error_details, file_turnwire_chat_v1_errors);
const ENVELOPE_TYPES = new Set<string>([
  ErrorInfoSchema.typeName,
  RetryInfoSchema.typeName,
  ErrorDetailSchema.typeName,
]);

/** What a status without our ErrorInfo means to us. */
const CODE_OF_STATUS: Readonly<Record<Code, KnownErrorCode>> = {
  [Code.Canceled]: ErrorCode.CANCELLED,
  [Code.Unknown]: ErrorCode.INTERNAL,
  [Code.InvalidArgument]: ErrorCode.INVALID_ARGUMENT,
  [Code.DeadlineExceeded]: ErrorCode.DEADLINE_EXCEEDED,
  [Code.NotFound]: ErrorCode.NOT_FOUND,
  [Code.AlreadyExists]: ErrorCode.REQUEST_CONFLICT,
  [Code.PermissionDenied]: ErrorCode.PERMISSION_DENIED,
  [Code.ResourceExhausted]: ErrorCode.OVERLOADED,
  [Code.FailedPrecondition]: ErrorCode.INVALID_ARGUMENT,
  [Code.Aborted]: ErrorCode.UNAVAILABLE,
  [Code.OutOfRange]: ErrorCode.INVALID_ARGUMENT,
  [Code.Unimplemented]: ErrorCode.NOT_BUILT,
  [Code.Internal]: ErrorCode.INTERNAL,
  [Code.Unavailable]: ErrorCode.UNAVAILABLE,
  [Code.DataLoss]: ErrorCode.INTERNAL,
  [Code.Unauthenticated]: ErrorCode.UNAUTHENTICATED,
};

function encodeDetails(error: TurnError): EncodedDetail[] {
  const facts = Object.entries(error.details).slice(0, MAX_FACTS);
  const info = create(ErrorInfoSchema, {
    reason: errorCodeName(error.code),
    domain: ERROR_DOMAIN,
    metadata: Object.fromEntries(
      facts.map(([key, value]) => [cut(key, MAX_FACT_CHARS), cut(value, MAX_FACT_CHARS)]),
    ),
  });
  const own = create(ErrorDetailSchema, {
    code: error.code,
    retryable: error.retryable,
    retryAfterMs: error.retryAfterMs,
  });
  const encoded: EncodedDetail[] = [
    { type: ErrorInfoSchema.typeName, value: toBinary(ErrorInfoSchema, info) },
    { type: ErrorDetailSchema.typeName, value: toBinary(ErrorDetailSchema, own) },
  ];
  if (error.retryAfterMs > 0) {
    const seconds = Math.floor(error.retryAfterMs / 1000);
    const nanos = Math.round((error.retryAfterMs - seconds * 1000) * 1e6);
    const retry = create(RetryInfoSchema, { retryDelay: { seconds: BigInt(seconds), nanos } });
    encoded.push({ type: RetryInfoSchema.typeName, value: toBinary(RetryInfoSchema, retry) });
  }
  return [...encoded, ...encodeTyped(error.typed)];
}

function encodeTyped(typed: readonly ErrorDetailMessage[]): EncodedDetail[] {
  let room = MAX_TYPED_BYTES;
  return typed
    .map(({ desc, value }) => ({ type: desc.typeName, value: toBinary(desc, create(desc, value as never)) }))
    .filter((detail) => (room -= detail.value.length) >= 0);
}

function decodeDetails(details: readonly EncodedDetail[]): Message[] {
  return details.flatMap((detail) => {
    const desc = DETAIL_TYPES.getMessage(detail.type);
    if (!desc) return [];
    try {
      return [fromBinary(desc, detail.value)];
    } catch {
      return []; // a detail that cannot be read is as good as none: the status itself still stands
    }
  });
}

function retryAfterOf(details: readonly Message[]): number | undefined {
  const own = details.find((detail) => detail.$typeName === ErrorDetailSchema.typeName) as
    ErrorDetail | undefined;
  if (own?.retryAfterMs) return own.retryAfterMs;
  const retry = details.find((detail) => detail.$typeName === RetryInfoSchema.typeName) as
    RetryInfo | undefined;
  return retry?.retryDelay && Number(retry.retryDelay.seconds) * 1000 + retry.retryDelay.nanos / 1e6;
}

function codeOfName(name: string): KnownErrorCode | undefined {
  const code = (ErrorCode as unknown as Record<string, unknown>)[name];
  return typeof code === "number" && code in ERROR_TABLE ? (code as KnownErrorCode) : undefined;
}

/** At most `max` UTF-16 units, well formed (a lone surrogate cannot be sent in a header). */
function cut(text: string, max: number): string {
  const short = text.length > max ? `${text.slice(0, max - 1)}…` : text;
  return short.replace(/[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/g, "\uFFFD");
}

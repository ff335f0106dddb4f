/**
 * A provider's failure as a TurnError: by HTTP status, by the error object in its body, or by the error object it sends
 * inside a stream (which carries codes and types but often no status). Tables, no special cases per provider.
 */
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { ERROR_TABLE, TurnError, type KnownErrorCode } from "../../lib/errors.js";
import { objectOf, parseJson } from "../json.js";
import { publicText } from "./mask-secrets.js";

/** The members of an error object that providers use, whatever they mean by them. */
export interface UpstreamErrorFacts {
  readonly message: string;
  readonly code: string;
  readonly type: string;
  /** HTTP status, of the response or claimed inside the stream; 0 = unknown. */
  readonly status: number;
}

const CONTEXT_WORDS =
  /context[ _-]?(length|window|size)|maximum context|too many (input )?tokens|prompt is too long|input is too long|exceeds? the (maximum|available) (number of tokens|context)/i;

/** First match wins: code or type as text, tested against a pattern. */
const BY_NAME: readonly (readonly [RegExp, KnownErrorCode])[] = [
  [/context_length|string_above_max_length|context_window/i, ErrorCode.CONTEXT_TOO_LONG],
  [/insufficient_quota|billing|payment/i, ErrorCode.UPSTREAM_REJECTED],
  [/rate_?limit|too_?many_?requests|throttl/i, ErrorCode.RATE_LIMIT],
  [/model_?not_?found|unknown_?model/i, ErrorCode.MODEL_NOT_FOUND],
  [/auth|invalid_api_key|permission|forbidden/i, ErrorCode.UPSTREAM_AUTH],
  [/tool_use_failed|json_validate_failed/i, ErrorCode.UPSTREAM_MALFORMED],
  [/content_?(policy|filter)|moderation|safety/i, ErrorCode.MODEL_REFUSAL],
  [
    /overloaded|unavailable|server_?error|internal|timeout|capacity|insufficient_system_resource/i,
    ErrorCode.UPSTREAM_UNAVAILABLE,
  ],
  [/invalid_?request|bad_?request|invalid_?argument|unsupported/i, ErrorCode.UPSTREAM_REJECTED],
];

/** The code of a failure: what it calls itself, else its status. Failures without either may pass: retryable. */
export function classifyUpstreamError(facts: UpstreamErrorFacts): KnownErrorCode {
  const { status } = facts;
  if (
    status === 413 ||
    ((status === 400 || status === 422 || status === 0) && CONTEXT_WORDS.test(facts.message))
  ) {
    return ErrorCode.CONTEXT_TOO_LONG;
  }
  const named = BY_NAME.find(([pattern]) => pattern.test(facts.code) || pattern.test(facts.type))?.[1];
  if (status === 401 || status === 403)
    return named === ErrorCode.MODEL_REFUSAL ? named : ErrorCode.UPSTREAM_AUTH;
  if (status === 429) return named === ErrorCode.UPSTREAM_REJECTED ? named : ErrorCode.RATE_LIMIT;
  if (status >= 500) return ErrorCode.UPSTREAM_UNAVAILABLE;
  if (status === 408 || status === 425) return ErrorCode.UPSTREAM_UNAVAILABLE;
  if (named !== undefined) return named;
  if (status === 404)
    return /model/i.test(facts.message) ? ErrorCode.MODEL_NOT_FOUND : ErrorCode.UPSTREAM_REJECTED;
  return status >= 300 ? ErrorCode.UPSTREAM_REJECTED : ErrorCode.UPSTREAM_UNAVAILABLE;
}

/**
 * What an error object or string says. Takes the whole `error` member, in any of its shapes: of a list the first counts, an
 * error inside an error (down to `levels`) says what the outer one does not.
 */
export function readErrorFacts(error: unknown, status = 0, levels = 3): UpstreamErrorFacts {
  if (typeof error === "string") return { message: error, code: "", type: "", status };
  const members = objectOf(Array.isArray(error) ? error[0] : error);
  const inside = [members["error"], members["message"], members["detail"]].find(isObject);
  const inner = inside !== undefined && levels > 0 ? readErrorFacts(inside, 0, levels - 1) : undefined;
  const claimed = ["status_code", "statusCode", "status", "code", "http_code", "error_code"]
    .map((name) => members[name])
    .map((value) => (typeof value === "string" ? Number.parseInt(value, 10) : value))
    .find((value): value is number => typeof value === "number" && value >= 300 && value <= 599);
  return {
    message: firstText(...MESSAGE_NAMES.map((name) => members[name]), inner?.message),
    code: firstText(members["code"], members["error_code"], inner?.code),
    type: firstText(members["type"], members["error_type"], inner?.type),
    status: status !== 0 ? status : (claimed ?? inner?.status ?? 0),
  };
}

const MESSAGE_NAMES = ["message", "Message", "detail", "msg", "error_msg", "error_message", "error", "text"];

function isObject(value: unknown): boolean {
  return typeof value === "object" && value !== null;
}

function firstText(...values: readonly unknown[]): string {
  for (const value of values) {
    if (typeof value === "string" && value !== "") return value;
    if (typeof value === "number") return String(value);
  }
  return "";
}

/** The error for these facts: the table's words, then what the provider said, masked. */
export function upstreamError(
  facts: UpstreamErrorFacts,
  options: {
    readonly secrets?: readonly string[];
    readonly retryAfterMs?: number;
    readonly code?: KnownErrorCode;
  } = {},
): TurnError {
  const code = options.code ?? classifyUpstreamError(facts);
  const said = publicText(facts.message, options.secrets);
  const base = ERROR_TABLE[code].message;
  const details: Record<string, string> = {};
  if (facts.status !== 0) details["upstream_status"] = String(facts.status);
  if (facts.code !== "") details["upstream_code"] = publicText(facts.code, options.secrets);
  if (facts.type !== "") details["upstream_type"] = publicText(facts.type, options.secrets);
  return new TurnError(code, {
    message: said === "" ? base : `${base}: ${said}`,
    retryAfterMs: options.retryAfterMs,
    details,
  });
}

/** The error for a response whose status says failure. HTML and other prose is not shown. */
export function errorFromResponse(
  response: { readonly status: number; readonly retryAfterMs: number; readonly body: string },
  secrets: readonly string[],
): TurnError {
  const facts = readErrorFacts(errorMember(response.body), response.status);
  return upstreamError(facts, { secrets, retryAfterMs: response.retryAfterMs });
}

function errorMember(body: string): unknown {
  const json = parseJson(body);
  const first = Array.isArray(json) ? (json[0] as unknown) : json;
  return objectOf(first)["error"] ?? first;
}

/** Milliseconds that `retry-after-ms` or `retry-after` (seconds or a date) asks for; 0 = nothing said. At most a day. */
export function retryAfterMs(
  headers: Readonly<Record<string, string | string[] | undefined>>,
  now: Date,
): number {
  const milliseconds = Number(headers["retry-after-ms"]);
  if (milliseconds > 0) return clampDelay(milliseconds);
  const value = headers["retry-after"];
  if (typeof value !== "string" || value.trim() === "") return 0;
  const seconds = Number(value);
  if (Number.isFinite(seconds)) return clampDelay(seconds * 1000);
  const date = Date.parse(value);
  return Number.isNaN(date) ? 0 : clampDelay(date - now.getTime());
}

function clampDelay(ms: number): number {
  return Math.min(Math.max(Math.round(ms), 0), 86_400_000);
}

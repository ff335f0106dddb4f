/**
 * What follows on an attempt that failed before it had said anything that counts. Pure. One table: which failure may pass,
 * whose fault it is, and whether another key or another model could do better.
 */
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import type { KnownErrorCode, TurnError } from "../../lib/errors.js";
import type { LlmLimits } from "../config.js";

export interface FailureRule {
  /** The same model may answer the same request later. */
  readonly again: boolean;
  /** Another model may answer it. */
  readonly elsewhere: boolean;
  /** Another key may do. */
  readonly otherKey: boolean;
  /** It counts against the provider: enough of these, and it is left alone. */
  readonly faultOfProvider: boolean;
}

const rule = (words: string): FailureRule => ({
  again: words.includes("again"),
  elsewhere: words.includes("elsewhere"),
  otherKey: words.includes("key"),
  faultOfProvider: words.includes("provider"),
});

const RULES: Readonly<Partial<Record<KnownErrorCode, FailureRule>>> = {
  [ErrorCode.RATE_LIMIT]: rule("again key elsewhere"),
  [ErrorCode.UPSTREAM_AUTH]: rule("key elsewhere"),
  [ErrorCode.UPSTREAM_UNAVAILABLE]: rule("again elsewhere provider"),
  [ErrorCode.UPSTREAM_STALLED]: rule("again elsewhere provider"),
  [ErrorCode.UPSTREAM_TRUNCATED]: rule("again elsewhere provider"),
  [ErrorCode.UPSTREAM_MALFORMED]: rule("again elsewhere provider"),
  [ErrorCode.EMPTY_RESPONSE]: rule("again elsewhere"),
  [ErrorCode.UPSTREAM_REJECTED]: rule("elsewhere"),
  [ErrorCode.MODEL_NOT_FOUND]: rule("elsewhere"),
  [ErrorCode.CONTEXT_TOO_LONG]: rule("elsewhere"),
  [ErrorCode.OVERLOADED]: rule("elsewhere"),
  [ErrorCode.INVALID_ARGUMENT]: rule("elsewhere"),
  [ErrorCode.NOT_BUILT]: rule("elsewhere"),
};
const FINAL = rule("");
/** A key whose account is empty fails as a request does, but another key would not. */
const NO_MONEY = /quota|billing|payment|credit/i;

/** The row of this failure. */
export function failureRule(error: TurnError): FailureRule {
  const found = RULES[error.code] ?? FINAL;
  if (error.code !== ErrorCode.UPSTREAM_REJECTED) return found;
  const { upstream_code: code = "", upstream_type: type = "" } = error.details;
  return NO_MONEY.test(code) || NO_MONEY.test(type) ? { ...found, otherKey: true } : found;
}

export type RetryLimits = Pick<
  LlmLimits,
  "maxRetries" | "retryDelayMs" | "maxRetryDelayMs" | "maxRetryAfterMs"
>;

/** What is known when an attempt has failed. */
export interface FailedAttempt {
  readonly error: TurnError;
  /** Attempts with this model that were made again already; changes of keys do not count. */
  readonly retries: number;
  /** A key that was not tried yet is free to use. */
  readonly hasOtherKey: boolean;
  readonly hasOtherModel: boolean;
  /** Milliseconds left of the whole call. */
  readonly leftMs: number;
}

export type NextStep =
  | { readonly kind: "other_key" }
  | { readonly kind: "again"; readonly afterMs: number }
  | { readonly kind: "other_model" }
  | { readonly kind: "give_up" };

/** The next step. `random` is in [0, 1): it spreads the waits. */
export function nextStep(failed: FailedAttempt, limits: RetryLimits, random: number): NextStep {
  const { error } = failed;
  const { again, elsewhere, otherKey } = failureRule(error);
  if (otherKey && failed.hasOtherKey) return { kind: "other_key" };
  const otherModel = elsewhere && failed.hasOtherModel;
  const afterMs = waitMs(error, failed.retries, limits, random);
  // Who said "later", or nothing for a long time, is not waited for while somebody else can answer.
  const leaveNow = error.code === ErrorCode.RATE_LIMIT || error.code === ErrorCode.UPSTREAM_STALLED;
  const notAsked = error.details["not_asked"];
  const mayRepeat =
    again &&
    notAsked !== "breaker" &&
    failed.retries < limits.maxRetries &&
    error.retryAfterMs <= limits.maxRetryAfterMs &&
    afterMs < failed.leftMs;
  if (mayRepeat && !(otherModel && (leaveNow || notAsked !== undefined))) return { kind: "again", afterMs };
  return { kind: otherModel ? "other_model" : "give_up" };
}

/** As long as the provider asks for; else twice as long each time, half of it by chance. */
function waitMs(error: TurnError, retries: number, limits: RetryLimits, random: number): number {
  const backoffMs = Math.min(limits.retryDelayMs * 2 ** retries, limits.maxRetryDelayMs);
  const jitteredMs = backoffMs * (0.5 + random / 2);
  const askedMs = error.retryAfterMs > 0 ? error.retryAfterMs + random * Math.min(backoffMs, 250) : 0;
  return Math.round(Math.max(jitteredMs, askedMs));
}

const REST_AFTER_REFUSAL_MS = 60_000;
const REST_AFTER_LIMIT_MS = 5_000;
const LONGEST_REST_MS = 300_000;

/** How long a key is left alone after this failure; 0 = not at all. The only key of a provider never rests. */
export function keyRestMs(error: TurnError, keyCount: number): number {
  if (keyCount < 2 || !failureRule(error).otherKey) return 0;
  if (error.retryAfterMs > 0) return Math.min(error.retryAfterMs, LONGEST_REST_MS);
  return error.code === ErrorCode.RATE_LIMIT ? REST_AFTER_LIMIT_MS : REST_AFTER_REFUSAL_MS;
}

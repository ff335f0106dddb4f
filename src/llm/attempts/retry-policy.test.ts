import { describe, expect, test } from "vitest";
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError, type KnownErrorCode, type TurnErrorOptions } from "../../lib/errors.js";
import { DEFAULT_LLM_LIMITS } from "../config.js";
import { failureRule, keyRestMs, nextStep, type FailedAttempt } from "./retry-policy.js";

const error = (code: KnownErrorCode, options?: TurnErrorOptions): TurnError => new TurnError(code, options);

function step(failure: TurnError, known: Partial<FailedAttempt> = {}, random = 0) {
  const failed = {
    error: failure,
    retries: 0,
    hasOtherKey: false,
    hasOtherModel: false,
    leftMs: 1e6,
    ...known,
  };
  return nextStep(failed, DEFAULT_LLM_LIMITS, random);
}

describe("retry policy", () => {
  test.each([
    ["a server that is away", error(ErrorCode.UPSTREAM_UNAVAILABLE), {}, { kind: "again", afterMs: 250 }],
    [
      "the same, once more",
      error(ErrorCode.UPSTREAM_UNAVAILABLE),
      { retries: 1 },
      { kind: "again", afterMs: 500 },
    ],
    ["the same, enough", error(ErrorCode.UPSTREAM_UNAVAILABLE), { retries: 2 }, { kind: "give_up" }],
    [
      "the same, enough, another model",
      error(ErrorCode.UPSTREAM_UNAVAILABLE),
      { retries: 2, hasOtherModel: true },
      { kind: "other_model" },
    ],
    ["no time left", error(ErrorCode.UPSTREAM_UNAVAILABLE), { leftMs: 200 }, { kind: "give_up" }],
    ["a limit, another key", error(ErrorCode.RATE_LIMIT), { hasOtherKey: true }, { kind: "other_key" }],
    ["a limit, another model", error(ErrorCode.RATE_LIMIT), { hasOtherModel: true }, { kind: "other_model" }],
    [
      "a limit that says how long",
      error(ErrorCode.RATE_LIMIT, { retryAfterMs: 7_000 }),
      {},
      { kind: "again", afterMs: 7_000 },
    ],
    [
      "a limit that asks for too much",
      error(ErrorCode.RATE_LIMIT, { retryAfterMs: 31_000 }),
      {},
      { kind: "give_up" },
    ],
    [
      "silence, another model",
      error(ErrorCode.UPSTREAM_STALLED),
      { hasOtherModel: true },
      { kind: "other_model" },
    ],
    [
      "a refused key, another one",
      error(ErrorCode.UPSTREAM_AUTH),
      { hasOtherKey: true },
      { kind: "other_key" },
    ],
    ["a refused key", error(ErrorCode.UPSTREAM_AUTH), {}, { kind: "give_up" }],
    [
      "an empty account, another key",
      error(ErrorCode.UPSTREAM_REJECTED, { details: { upstream_code: "insufficient_quota" } }),
      { hasOtherKey: true },
      { kind: "other_key" },
    ],
    [
      "a refused request, another key",
      error(ErrorCode.UPSTREAM_REJECTED),
      { hasOtherKey: true },
      { kind: "give_up" },
    ],
    [
      "a long context, another model",
      error(ErrorCode.CONTEXT_TOO_LONG),
      { hasOtherModel: true },
      { kind: "other_model" },
    ],
    ["a refusal to answer", error(ErrorCode.MODEL_REFUSAL), { hasOtherModel: true }, { kind: "give_up" }],
    ["a fault of our own", error(ErrorCode.INTERNAL), { hasOtherModel: true }, { kind: "give_up" }],
    [
      "an open breaker",
      error(ErrorCode.UPSTREAM_UNAVAILABLE, { retryAfterMs: 100, details: { not_asked: "breaker" } }),
      {},
      { kind: "give_up" },
    ],
    [
      "an open breaker, another model",
      error(ErrorCode.UPSTREAM_UNAVAILABLE, { details: { not_asked: "breaker" } }),
      { hasOtherModel: true },
      { kind: "other_model" },
    ],
    ["a full queue", error(ErrorCode.OVERLOADED), {}, { kind: "give_up" }],
  ] as const)("%s", (_, failure, known, want) => {
    expect(step(failure, known)).toEqual(want);
  });

  test("waits are spread, and never shorter than what the provider asks for", () => {
    expect(step(error(ErrorCode.UPSTREAM_UNAVAILABLE), {}, 0.999)).toEqual({ kind: "again", afterMs: 500 });
    const asked = error(ErrorCode.UPSTREAM_UNAVAILABLE, { retryAfterMs: 2_000 });
    expect(step(asked, {}, 0.5)).toEqual({ kind: "again", afterMs: 2_125 });
    const limits = { ...DEFAULT_LLM_LIMITS, maxRetries: 99 };
    const failed = { error: error(ErrorCode.UPSTREAM_UNAVAILABLE), retries: 40, hasOtherKey: false };
    expect(nextStep({ ...failed, hasOtherModel: false, leftMs: 1e6 }, limits, 0.999)).toEqual({
      kind: "again",
      afterMs: 7_996,
    });
  });

  test("keys rest as long as they are asked to, within bounds; the only key never does", () => {
    expect(keyRestMs(error(ErrorCode.RATE_LIMIT, { retryAfterMs: 9_000 }), 2)).toBe(9_000);
    expect(keyRestMs(error(ErrorCode.RATE_LIMIT, { retryAfterMs: 9e6 }), 2)).toBe(300_000);
    expect(keyRestMs(error(ErrorCode.UPSTREAM_AUTH), 2)).toBe(60_000);
    expect(keyRestMs(error(ErrorCode.UPSTREAM_UNAVAILABLE), 2)).toBe(0);
    expect(keyRestMs(error(ErrorCode.RATE_LIMIT, { retryAfterMs: 9_000 }), 1)).toBe(0);
  });

  test("only what the provider is to blame for counts against it", () => {
    const blamed = [
      ErrorCode.UPSTREAM_UNAVAILABLE,
      ErrorCode.UPSTREAM_STALLED,
      ErrorCode.UPSTREAM_TRUNCATED,
      ErrorCode.UPSTREAM_MALFORMED,
    ] as const;
    for (const code of blamed) expect(failureRule(error(code)).faultOfProvider).toBe(true);
    for (const code of [ErrorCode.RATE_LIMIT, ErrorCode.UPSTREAM_AUTH, ErrorCode.CONTEXT_TOO_LONG] as const)
      expect(failureRule(error(code)).faultOfProvider).toBe(false);
  });
});

import { describe, expect, test } from "vitest";
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { publicText } from "./mask-secrets.js";
import { errorFromResponse, readErrorFacts, retryAfterMs, upstreamError } from "./upstream-error.js";

/** Of letters alone: nothing but its value tells that it is one. */
const LONG_KEY = "Team.Quiet/harbour+walnut=dusk";

describe("what a provider says, made public", () => {
  test.each([
    ["Incorrect API key provided: sk-abc***************xyz9.", "Incorrect API key provided: [key]"],
    ["Authorization: Bearer abc.def failed", "[key]"],
    ["invalid x-api-key: 12345", "[key]"],
    ["see https://example.test/path?token=1 for help", "see [address] for help"],
    ["dial tcp 10.1.2.3:443: refused", "dial tcp [address]: refused"],
    ["no route to backend.internal.test:8000", "no route to [address]"],
    ["token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc expired", "[key] expired"],
    ["mail to ops@example.test", "mail to [address]"],
    ["opaque 0123456789abcdef0123456789abcdef", "opaque [key]"],
  ])("%s", (said, shown) => {
    expect(publicText(said)).toContain(shown);
  });

  test("the exact values in use are masked wherever they stand", () => {
    expect(publicText("your key hunter22 and team blue-team", ["hunter22", "blue-team"])).toBe(
      "your key [key] and team [key]",
    );
  });

  test.each([
    ["split by spaces", [...LONG_KEY].join(" ")],
    ["split by line ends", LONG_KEY.replace("q", "q\r\n\t")],
    ["split by control characters", [...LONG_KEY].join("\u0000\u001b")],
    ["split by characters of no width", [...LONG_KEY].join("\u200b\u00ad\u2060\ufeff\u202e\ufe0f")],
    ["split by many of them", [...LONG_KEY].join("\u200b".repeat(500))],
    ["in capitals", LONG_KEY.toUpperCase()],
    ["without its end", LONG_KEY.slice(0, -3)],
    ["without its beginning", LONG_KEY.slice(1)],
    ["its last two thirds", LONG_KEY.slice(10)],
  ])("a key %s is masked", (_, said) => {
    expect(publicText(`your key: (${said}), sorry`, [LONG_KEY])).toBe("your key: ([key]), sorry");
  });

  test("a very long key is masked, one that begins at the end of another as well", () => {
    const key = LONG_KEY.repeat(100);
    expect(publicText(`x ${key} y`, [key])).toBe("x [key] y");
    expect(
      publicText(`${LONG_KEY.slice(0, 9)}+${LONG_KEY.slice(0, 5)} ${LONG_KEY.slice(5, 12)}`, [LONG_KEY]),
    ).toBe("[key][key]");
  });

  test("plain words stay, lines are joined, length is bounded, quotations are cut", () => {
    expect(publicText("The model `x-1` does not exist\n  or you lack access")).toBe(
      "The model `x-1` does not exist or you lack access",
    );
    expect(publicText("a ".repeat(500)).length).toBeLessThanOrEqual(200);
    expect(publicText(`Invalid prompt: "${"my private diary ".repeat(20)}"`)).toBe('Invalid prompt: "..."');
    expect(publicText("\u{1f30d}".repeat(300))).not.toMatch(/\p{Surrogate}/u);
  });
});

describe("a provider's failure", () => {
  test.each([
    [401, "{}", ErrorCode.UPSTREAM_AUTH],
    [403, "{}", ErrorCode.UPSTREAM_AUTH],
    [404, `{"error":{"message":"model 'x' not found"}}`, ErrorCode.MODEL_NOT_FOUND],
    [404, "<html>nginx</html>", ErrorCode.UPSTREAM_REJECTED],
    [408, "", ErrorCode.UPSTREAM_UNAVAILABLE],
    [413, "", ErrorCode.CONTEXT_TOO_LONG],
    [429, "", ErrorCode.RATE_LIMIT],
    [429, `{"error":{"message":"m","code":"insufficient_quota"}}`, ErrorCode.UPSTREAM_REJECTED],
    [400, `{"error":{"message":"m","code":"context_length_exceeded"}}`, ErrorCode.CONTEXT_TOO_LONG],
    [
      400,
      `{"object":"error","message":"This model's maximum context length is 4096 tokens.","code":400}`,
      ErrorCode.CONTEXT_TOO_LONG,
    ],
    [
      400,
      `{"error":{"message":"the request exceeds the available context size"}}`,
      ErrorCode.CONTEXT_TOO_LONG,
    ],
    [400, `{"error":{"message":"temperature must be at most 2"}}`, ErrorCode.UPSTREAM_REJECTED],
    [400, `{"error":{"message":"m","code":"content_policy_violation"}}`, ErrorCode.MODEL_REFUSAL],
    [422, `{"detail":[{"msg":"bad"}]}`, ErrorCode.UPSTREAM_REJECTED],
    [500, `[{"error":{"message":"m","status":"INTERNAL"}}]`, ErrorCode.UPSTREAM_UNAVAILABLE],
    [529, `{"error":{"type":"overloaded_error","message":"Overloaded"}}`, ErrorCode.UPSTREAM_UNAVAILABLE],
    [302, "", ErrorCode.UPSTREAM_REJECTED],
  ])("status %i with %s", (status, body, code) => {
    expect(errorFromResponse({ status, body, retryAfterMs: 0 }, [])).toMatchObject({ code });
  });

  test.each([
    [{ code: 429, message: "m" }, ErrorCode.RATE_LIMIT],
    [{ status_code: 503 }, ErrorCode.UPSTREAM_UNAVAILABLE],
    [{ code: "429" }, ErrorCode.RATE_LIMIT],
    [{ type: "rate_limit_error" }, ErrorCode.RATE_LIMIT],
    [{ type: "authentication_error" }, ErrorCode.UPSTREAM_AUTH],
    [{ type: "invalid_request_error" }, ErrorCode.UPSTREAM_REJECTED],
    [{ type: "server_error" }, ErrorCode.UPSTREAM_UNAVAILABLE],
    ["prompt is too long", ErrorCode.CONTEXT_TOO_LONG],
    ["boom", ErrorCode.UPSTREAM_UNAVAILABLE],
    [{}, ErrorCode.UPSTREAM_UNAVAILABLE],
    [7, ErrorCode.UPSTREAM_UNAVAILABLE],
  ])("inside a stream: %o", (error, code) => {
    expect(upstreamError(readErrorFacts(error))).toMatchObject({ code });
  });

  test.each([
    [{ "retry-after": "2" }, 2000],
    [{ "retry-after": "1.5" }, 1500],
    [{ "retry-after-ms": "250", "retry-after": "9" }, 250],
    [{ "retry-after": "Thu, 01 Jan 1970 00:00:30 GMT" }, 20_000],
    [{ "retry-after": "-5" }, 0],
    [{ "retry-after": "soon" }, 0],
    [{ "retry-after": "1e12" }, 86_400_000],
    [{}, 0],
  ])("wait by %o", (headers, ms) => {
    expect(retryAfterMs(headers, new Date(10_000))).toBe(ms);
  });
});

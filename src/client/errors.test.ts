import { Code, ConnectError } from "@connectrpc/connect";
import { describe, expect, it } from "vitest";
import { BadRequestSchema, ErrorInfoSchema, RetryInfoSchema } from "../../gen/google/rpc/error_details_pb.js";
import { ErrorDetailSchema, SessionBusySchema } from "../../gen/turnwire/chat/v1/errors_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { clientError, toClientError } from "./errors.js";

describe("client errors", () => {
  it("takes code, retryability and typed messages from the details, not from the status", () => {
    const error = toClientError(
      new ConnectError("busy", Code.FailedPrecondition, undefined, [
        { desc: ErrorInfoSchema, value: { reason: "SESSION_BUSY", metadata: { session: "s" } } },
        {
          desc: ErrorDetailSchema,
          value: { code: ErrorCode.SESSION_BUSY, retryable: true, retryAfterMs: 40 },
        },
        { desc: SessionBusySchema, value: { turnId: "turn-9" } },
      ]),
    );
    expect(error).toMatchObject({
      code: ErrorCode.SESSION_BUSY,
      codeName: "SESSION_BUSY",
      retryable: true,
      typed: true,
    });
    expect(error).toMatchObject({ message: "busy", status: Code.FailedPrecondition, retryAfterMs: 40 });
    expect(error.details.sessionBusy?.turnId).toBe("turn-9");
    expect(error.details.facts).toEqual({ session: "s" });
  });

  it("knows the code by its name alone, and the wait from RetryInfo", () => {
    const error = toClientError(
      new ConnectError("later", Code.ResourceExhausted, undefined, [
        { desc: ErrorInfoSchema, value: { reason: "OVERLOADED" } },
        { desc: RetryInfoSchema, value: { retryDelay: { seconds: 1n, nanos: 500_000_000 } } },
      ]),
    );
    expect(error).toMatchObject({
      code: ErrorCode.OVERLOADED,
      retryable: true,
      typed: true,
      retryAfterMs: 1_500,
    });
  });

  it("names the fields that were refused", () => {
    const violation = { field: "text", description: "must not be empty" };
    const error = toClientError(
      new ConnectError("no", Code.InvalidArgument, undefined, [
        { desc: ErrorInfoSchema, value: { reason: "INVALID_ARGUMENT" } },
        { desc: BadRequestSchema, value: { fieldViolations: [violation] } },
      ]),
    );
    expect(error.retryable).toBe(false);
    expect(error.details.violations).toEqual([violation]);
  });

  it.each([
    [new ConnectError("socket hang up", Code.Aborted), true],
    [new ConnectError("connect ECONNREFUSED", Code.Unavailable), true],
    [new ConnectError("http/2 stream closed with error code CANCEL (0x8)", Code.Canceled), true],
    [new ConnectError("protocol error: missing EndStreamResponse", Code.InvalidArgument), true],
    [new ConnectError("protocol error: promised 12 bytes, received 3", Code.InvalidArgument), true],
    [new TypeError("fetch failed"), true],
    [new ConnectError("text is too long", Code.InvalidArgument), false],
    [new ConnectError("HTTP 404", Code.Unimplemented), false],
    [new ConnectError("HTTP 401", Code.Unauthenticated), false],
  ])("without details %s is retryable: %s", (thrown, retryable) => {
    expect(toClientError(thrown)).toMatchObject({ retryable, typed: false });
  });

  it("leaves its own errors as they are", () => {
    const error = clientError(ErrorCode.CANCELLED);
    expect(toClientError(error)).toBe(error);
  });
});

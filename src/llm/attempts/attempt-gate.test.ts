import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import {
  CompletionInputSchema,
  ProviderStateSchema,
  Role,
  type CompletionDelta,
} from "../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ErrorCode, FinishReason, UsageSchema } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../../lib/errors.js";
import {
  attemptBoundaryDelta,
  attemptStartedDelta,
  contentDelta,
  errorDelta,
  finishDelta,
  modelSelectedDelta,
  providerStateDelta,
  reasoningDelta,
  toolCallDelta,
  usageDelta,
  warningDelta,
} from "../deltas.js";
import { AttemptGate } from "./attempt-gate.js";

const input = create(CompletionInputSchema, {
  modelId: "m",
  messages: [{ role: Role.USER, parts: [{ part: { case: "text", value: "x".repeat(400) } }] }],
});
const price = {
  currency: "USD",
  input: 1_000_000,
  output: 4_000_000,
  cacheRead: 500_000,
  cacheWrite: 2_000_000,
};
const gate = (hiddenAs = ""): AttemptGate => new AttemptGate({ attempt: 2, input, price, hiddenAs });
const cases = (deltas: readonly CompletionDelta[]) => deltas.map(({ delta }) => delta.case);
const usage = (inputTokens: number, outputTokens: number) =>
  usageDelta(create(UsageSchema, { inputTokens, outputTokens }), 2);
const stop = finishDelta({ reason: FinishReason.STOP });
const warning = warningDelta(ErrorCode.UPSTREAM_MALFORMED, "skipped");
const cut = errorDelta(new TurnError(ErrorCode.UPSTREAM_TRUNCATED));

describe("attempt gate", () => {
  test("G1 what shows nothing is held, and comes out before the first thing that shows", () => {
    const one = gate();
    expect(one.take([warning, contentDelta(0, "")])).toEqual([]);
    expect(cases(one.take([contentDelta(0, "a")]))).toEqual(["warning", "content"]);
    expect(cases(one.take([warning]))).toEqual(["warning"]);
  });

  test("G1 a failure before that leaves its usage and nothing else", () => {
    const one = gate();
    one.take([warning, usage(10, 0), cut]);
    expect(one.committed).toBe(false);
    expect(cases(one.finish(false))).toEqual(["usage"]);
  });

  test.each([
    ["big ones", providerStateDelta(create(ProviderStateSchema, { data: new Uint8Array(1024 * 1024) }))],
    ["small ones", warning],
    ["names", modelSelectedDelta("m".repeat(100_000))],
  ])("G1 what is held has an end - %s", (_, delta) => {
    const one = gate();
    const flood = (): void => {
      for (let at = 0; at < 200_000; at++) one.take([delta]);
    };
    expect(flood).toThrow(expect.objectContaining({ code: ErrorCode.SIZE_LIMIT }));
  });

  test("G2 reasoning is shown and does not commit; content and calls do", () => {
    const one = gate();
    expect(cases(one.take([reasoningDelta(0, "hm")]))).toEqual(["reasoning"]);
    expect(one.committed).toBe(false);
    one.take([toolCallDelta({ blockIndex: 1, callId: "c", name: "t" })]);
    expect(one.committed).toBe(true);
  });

  test("G3 the end is kept; what follows on it is nothing, but for usage", () => {
    const one = gate();
    expect(cases(one.take([contentDelta(0, "a"), stop, contentDelta(0, "b"), usage(1, 1)]))).toEqual([
      "content",
    ]);
    expect(one.end).toMatchObject({ kind: "finished" });
    expect(cases(one.finish(true))).toEqual(["usage"]);
  });

  test.each([
    ["nothing, then a stop", [stop], ErrorCode.EMPTY_RESPONSE],
    [
      "nothing, then the provider's own error",
      [finishDelta({ reason: FinishReason.ERROR })],
      ErrorCode.UPSTREAM_MALFORMED,
    ],
    ["nothing at all", [], ErrorCode.UPSTREAM_TRUNCATED],
    ["an error", [cut], ErrorCode.UPSTREAM_TRUNCATED],
  ])("%s - failed", (_, deltas, code) => {
    const one = gate();
    one.take(deltas);
    expect(one.end).toMatchObject({ kind: "failed", error: { code } });
  });

  test.each([FinishReason.LENGTH, FinishReason.CONTENT_FILTER, FinishReason.REFUSAL])(
    "nothing, then finish reason %i - an end",
    (reason) => {
      const one = gate();
      one.take([finishDelta({ reason })]);
      expect(one.end.kind).toBe("finished");
    },
  );

  test("an error code that this version does not know - internal", () => {
    const one = gate();
    const unknown = errorDelta(new TurnError(ErrorCode.UPSTREAM_REJECTED));
    if (unknown.delta.case === "error") unknown.delta.value.code = 9_999 as ErrorCode;
    one.take([unknown]);
    expect(one.end).toMatchObject({ kind: "failed", error: { code: ErrorCode.INTERNAL } });
  });

  test("G4 usage is priced, once more only when it changed", () => {
    const one = gate();
    const [told] = one.take([contentDelta(0, "a"), usage(1_000, 10)]).slice(1);
    expect(told?.delta).toMatchObject({
      case: "usage",
      value: { attempt: 2, usage: { costMicros: "1040", currency: "USD", estimated: false } },
    });
    one.take([stop]);
    expect(one.finish(true)).toEqual([]);
  });

  test("G4 no usage - estimated and marked", () => {
    const one = gate();
    one.take([contentDelta(0, "y".repeat(40)), stop]);
    expect(one.usage).toMatchObject({
      inputTokens: 104,
      outputTokens: 10,
      estimated: true,
      costMicros: "144",
    });
  });

  test("G4 a cut answer - the told input stays, the output is estimated", () => {
    const one = gate();
    one.take([contentDelta(0, "y".repeat(400)), usage(50, 1), cut]);
    const last = one.finish(true)[0]?.delta;
    expect(last).toMatchObject({
      case: "usage",
      value: { usage: { inputTokens: 50, outputTokens: 100, estimated: true, costMicros: "450" } },
    });
  });

  test("an answer that never began costs nothing", () => {
    const one = gate();
    one.take([cut]);
    expect(one.usage).toBeUndefined();
  });

  test("a peer that asks again by itself - its attempts go on from ours", () => {
    const one = gate();
    const out = one.take([
      attemptStartedDelta(1, "inner", "x"),
      reasoningDelta(0, "hm"),
      attemptBoundaryDelta(1, new TurnError(ErrorCode.UPSTREAM_STALLED), "p/other"),
      attemptStartedDelta(2, "inner", "y"),
      contentDelta(0, "a"),
      stop,
    ]);
    expect(cases(out)).toEqual(["reasoning", "usage", "attemptBoundary", "attemptStarted", "content"]);
    expect(out[2]?.delta).toMatchObject({ value: { failedAttempt: 2, nextModelId: "p/other" } });
    expect(out[3]?.delta).toMatchObject({ value: { attempt: 3, upstreamModel: "y" } });
    expect(one.attempt).toBe(3);
    expect(one.usage?.outputTokens).toBe(1); // of the last attempt alone
  });

  test("behind an arena nobody is named", () => {
    const one = gate("arena");
    const out = one.take([
      modelSelectedDelta("secret-model"),
      reasoningDelta(0, "hm"),
      attemptBoundaryDelta(
        1,
        new TurnError(ErrorCode.UPSTREAM_REJECTED, { message: "secret-model says no" }),
        "secret-2",
      ),
      attemptStartedDelta(2, "secret-provider", "secret-2"),
      contentDelta(0, "a"),
    ]);
    expect(JSON.stringify(out)).not.toContain("secret");
    expect(one.selected).toBe("secret-model");
  });
});

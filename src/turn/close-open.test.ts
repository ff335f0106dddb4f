import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { AnswerKind } from "../../gen/turnwire/packet/v1/answer_pb.js";
import {
  ErrorCode,
  FinishReason,
  StopReason,
  TurnErrorSchema,
  TurnOutcome,
  UsageSchema,
} from "../../gen/turnwire/packet/v1/common_pb.js";
import { SectionStatus, ToolChoiceKind } from "../../gen/turnwire/packet/v1/control_pb.js";
import type { Packet, Placement } from "../../gen/turnwire/packet/v1/packet_pb.js";
import { ToolCallResultSchema, ToolCallStatus } from "../../gen/turnwire/packet/v1/tools_pb.js";
import type { CloseHow } from "./close-open.js";
import { closeOpen, overallStop } from "./close-open.js";
import { emptyTurnState, fold } from "./fold.js";
import { answerDelta, argumentDelta, packet, reasoningDelta } from "./packets.js";
import { lanePlacementOf, placementOf, turnPlacement } from "./placement.js";
import { brief, numbered, violations } from "./test-support.js";

const at = (turn: number, tab = 0, sub?: number): Placement => placementOf(turn, tab, sub, 0, undefined);
const lane = lanePlacementOf(0);
const begin = [
  packet(
    "turnStarted",
    {
      turnId: "t",
      lanes: [
        { modelIndex: 0, modelId: "a" },
        { modelIndex: 1, modelId: "b" },
      ],
    },
    turnPlacement(),
  ),
  packet("laneStarted", {}, lane),
  packet("cycleStarted", { cycle: 1, attempt: 1, toolChoice: ToolChoiceKind.AUTO }, lane),
];
const callStart = (id: string, place: Placement): Packet =>
  packet("toolCallStart", { callId: id, toolName: "search" }, place);
const callReady = (id: string, place: Placement): Packet =>
  packet("toolCallReady", { callId: id, argumentsJson: "{}", argumentsValid: true }, place);
const stopped: CloseHow = { kind: "stopped", stopReason: StopReason.USER_CANCELLED };
const interrupted: CloseHow = { kind: "interrupted", stopReason: StopReason.OWNER_LOST };

/** The closing packets of what follows `begin`, one line each; checked to make a legal turn. */
function close(open: readonly Packet[], how: CloseHow): { lines: string[]; packets: Packet[] } {
  const shown = numbered([...begin, ...open]);
  const packets = numbered(closeOpen(fold(shown), how), shown.length + 1);
  const closed = [...shown, ...packets];
  const end = numbered([overallStop(fold(closed), how)], closed.length + 1);
  expect(violations([...closed, ...end])).toEqual([]);
  return { lines: packets.map(brief), packets };
}

const ends = ["0.0 cycleEnd", "0.0 laneEnd", "0.0 laneEnd"];

describe("closeOpen", () => {
  test.each<[string, Packet[], string[]]>([
    ["waiting for the first token", [], ends],
    [
      "in reasoning",
      [packet("reasoningStart", {}, at(0)), reasoningDelta("r", at(0))],
      ["0.0 reasoningDone", ...ends],
    ],
    [
      "in the answer",
      [packet("agentResponseStart", {}, at(0)), answerDelta("a", at(0))],
      ["0.0 agentResponseDone answer", ...ends],
    ],
    [
      "in a call's arguments",
      [callStart("c", at(0)), argumentDelta("c", "{", {}, at(0))],
      ["0.0 toolCallResult CANCELLED", "0.0 sectionEnd", ...ends],
    ],
    [
      "in text beside a call",
      [callStart("c", at(0)), packet("agentResponseStart", {}, at(1)), answerDelta("a", at(1))],
      ["0.0 toolCallResult CANCELLED", "0.0 sectionEnd", "1.0 agentResponseDone narration", ...ends],
    ],
    [
      "in a tool",
      [callStart("c", at(0)), callReady("c", at(0)), packet("openUrlStart", {}, at(0))],
      ["0.0 toolCallResult CANCELLED", "0.0 sectionEnd", ...ends],
    ],
    [
      "between result and end",
      [
        callStart("c", at(0)),
        callReady("c", at(0)),
        packet("toolCallResult", { callId: "c", status: ToolCallStatus.TIMEOUT }, at(0)),
      ],
      ["0.0 sectionEnd", ...ends],
    ],
    [
      "after a reset",
      [packet("agentResponseStart", {}, at(0)), packet("cycleReset", { cycle: 1 }, lane, true)],
      ["0.0 laneEnd", "0.0 laneEnd"],
    ],
    [
      "in an agent",
      [
        callStart("c", at(0)),
        callReady("c", at(0)),
        packet("codingAgentStart", {}, at(0)),
        callStart("in", at(0, 0, 0)),
        callReady("in", at(0, 0, 0)),
      ],
      [
        "0.0>0.0 toolCallResult CANCELLED",
        "0.0>0.0 sectionEnd",
        "0.0 toolCallResult CANCELLED",
        "0.0 sectionEnd",
        ...ends,
      ],
    ],
    ["in a plan", [packet("deepResearchPlanStart", {}, at(0))], ["0.0 sectionEnd", ...ends]],
    [
      "waiting for a person",
      [
        callStart("c", at(0)),
        callReady("c", at(0)),
        packet("clientCallRequest", { clientCallId: "q", toolCallId: "c" }, turnPlacement()),
        packet("waitStarted", { waitId: "w" }, lane),
      ],
      ["0.0 toolCallResult CANCELLED", "0.0 sectionEnd", "0.0 clientCallResolved", "0.0 waitEnded", ...ends],
    ],
  ])("stopped %s", (_, open, lines) => {
    expect(close(open, stopped).lines).toEqual(lines);
  });

  test("a lane's end says why and what it cost", () => {
    const usage = packet("usageInfo", { cycle: 1, usage: { outputTokens: 7 } }, lane);
    const { packets } = close([usage], stopped);
    expect(packets.map((each) => each.payload.value)).toMatchObject([
      { cycle: 1, finishReason: FinishReason.CANCELLED, usage: { outputTokens: 7 } },
      {
        outcome: TurnOutcome.STOPPED,
        finishReason: FinishReason.CANCELLED,
        modelId: "a",
        usage: { outputTokens: 7 },
      },
      { outcome: TurnOutcome.STOPPED, modelId: "b" },
    ]);
    const known = close([usage], {
      ...stopped,
      usageByLane: new Map([[0, create(UsageSchema, { outputTokens: 99 })]]),
    });
    expect(known.packets.at(-2)!.payload.value).toMatchObject({ usage: { outputTokens: 99 } });
  });

  test("interrupted: results that are stored are shown, calls in doubt are said to be, others did not run", () => {
    const settled = create(ToolCallResultSchema, {
      callId: "a",
      status: ToolCallStatus.OK,
      modelText: "stored",
    });
    const open = ["a", "b", "c"].flatMap((id, tab) => [callStart(id, at(0, tab)), callReady(id, at(0, tab))]);
    const { lines, packets } = close(open, {
      ...interrupted,
      settledResults: new Map([["a", settled]]),
      inDoubtCallIds: new Set(["a", "b"]),
    });
    expect(lines.slice(0, 6)).toEqual([
      "0.0 toolCallResult OK",
      "0.0 sectionEnd",
      "0.1 toolCallResult UNKNOWN_OUTCOME",
      "0.1 sectionEnd",
      "0.2 toolCallResult ERROR",
      "0.2 sectionEnd",
    ]);
    expect(packets[0]!.payload.value).toMatchObject({ modelText: "stored" });
    expect(
      packets
        .filter((each) => each.payload.case === "sectionEnd")
        .map((each) => (each.payload.value as { status: SectionStatus }).status),
    ).toEqual([SectionStatus.OK, SectionStatus.UNKNOWN_OUTCOME, SectionStatus.ERROR]);
  });

  test("a call that has run and whose readiness is not in the log is made ready first", () => {
    const settled = create(ToolCallResultSchema, { callId: "c", status: ToolCallStatus.OK });
    const open = [callStart("c", at(0)), argumentDelta("c", '{"q":', {}, at(0))];
    const how: CloseHow = { ...interrupted, settledResults: new Map([["c", settled]]) };
    expect(close(open, { ...how, argumentsJson: new Map([["c", '{"q":1}']]) }).lines[0]).toBe(
      '0.0 toolCallReady {"q":1}',
    );
    expect(close(open, how).lines[0]).toBe('0.0 toolCallReady {"q": invalid');
  });

  test("an error is told once, and by the lanes it ends", () => {
    const error = create(TurnErrorSchema, { code: ErrorCode.RATE_LIMIT, message: "slow down" });
    const { packets } = close([], { kind: "error", error });
    expect(packets.map(brief)).toEqual(["0.0 cycleEnd", "0.0 error", "0.0 laneEnd", "0.0 laneEnd"]);
    expect(packets[2]!.payload.value).toMatchObject({
      outcome: TurnOutcome.ERROR,
      error: { code: ErrorCode.RATE_LIMIT },
    });
  });

  test("one lane alone", () => {
    const open = numbered([...begin, packet("reasoningStart", {}, at(0))]);
    const packets = closeOpen(fold(open), { ...stopped, modelIndex: 0 });
    expect(packets.map(brief)).toEqual(["0.0 reasoningDone", "0.0 cycleEnd", "0.0 laneEnd"]);
    expect(packets.every((each) => each.placement?.modelIndex === 0)).toBe(true);
    const error = create(TurnErrorSchema, { code: ErrorCode.INTERNAL });
    const failing = closeOpen(fold(open), { kind: "error", error, modelIndex: 1 });
    expect(failing.map((each) => [each.payload.case, each.placement?.modelIndex])).toEqual([
      ["error", 1],
      ["laneEnd", 1],
    ]);
  });

  test("a turn that was never announced has nothing to close", () => {
    expect(closeOpen(emptyTurnState(), stopped)).toEqual([]);
  });

  test("a partial answer stays and says that it is one", () => {
    const shown = numbered([...begin, packet("agentResponseStart", {}, at(0)), answerDelta("part", at(0))]);
    const closed = fold(numbered(closeOpen(fold(shown), stopped), shown.length + 1), fold(shown));
    expect(closed.lanes[0]).toMatchObject({
      text: "part",
      blocks: [
        {
          block: {
            value: { kind: AnswerKind.ANSWER, truncated: true, finishReason: FinishReason.CANCELLED },
          },
        },
      ],
    });
  });
});

describe("overallStop", () => {
  const ended = (...outcomes: TurnOutcome[]) =>
    fold(
      numbered([
        packet(
          "turnStarted",
          { turnId: "t", lanes: outcomes.map((_, modelIndex) => ({ modelIndex })) },
          turnPlacement(),
        ),
        ...outcomes.map((outcome, i) =>
          packet(
            "laneEnd",
            {
              outcome,
              usage: { outputTokens: i + 1 },
              ...(outcome === TurnOutcome.ERROR && { error: { code: ErrorCode.RATE_LIMIT } }),
            },
            lanePlacementOf(i),
          ),
        ),
      ]),
    );
  const { COMPLETED, STOPPED, ERROR, INTERRUPTED } = TurnOutcome;

  test.each([
    ["completed", [COMPLETED], undefined, COMPLETED],
    ["one of two completed", [ERROR, COMPLETED], undefined, COMPLETED],
    ["one completed before the stop", [COMPLETED, STOPPED], stopped, COMPLETED],
    ["stopped", [STOPPED, ERROR], stopped, STOPPED],
    ["lanes stopped one by one", [STOPPED, ERROR], undefined, STOPPED],
    ["all failed", [ERROR, ERROR], undefined, ERROR],
    ["interrupted", [ERROR, INTERRUPTED], interrupted, INTERRUPTED],
  ])("%s", (_, outcomes, how, outcome) => {
    const stop = overallStop(ended(...outcomes), how);
    expect(stop.payload.value).toMatchObject({
      outcome,
      stopReason: how?.stopReason ?? StopReason.UNSPECIFIED,
      usage: { outputTokens: outcomes.length === 2 ? 3 : 1 },
    });
  });

  test("a failed turn says the lane's error, or the turn's", () => {
    expect(overallStop(ended(ERROR)).payload.value).toMatchObject({ error: { code: ErrorCode.RATE_LIMIT } });
    const error = create(TurnErrorSchema, { code: ErrorCode.LOG_TRUNCATED });
    expect(overallStop(ended(ERROR), { kind: "error", error }).payload.value).toMatchObject({
      error: { code: ErrorCode.LOG_TRUNCATED },
    });
    expect(overallStop(ended(COMPLETED)).payload.value).not.toHaveProperty("error");
  });
});

/**
 * One whole turn as packets, for docs/contract.md: a question, reasoning, a narration, one call of the tool `clock`, the
 * answer. A test holds it against the order rules, so the page cannot show a turn that never happens.
 */
import type { MessageInitShape } from "@bufbuild/protobuf";
import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { AnswerKind } from "../gen/turnwire/packet/v1/answer_pb.js";
import { FinishReason, TurnOutcome } from "../gen/turnwire/packet/v1/common_pb.js";
import { SectionStatus, ToolChoiceKind } from "../gen/turnwire/packet/v1/control_pb.js";
import type { Packet } from "../gen/turnwire/packet/v1/packet_pb.js";
import { PacketSchema } from "../gen/turnwire/packet/v1/packet_pb.js";
import { CustomToolResponseType, ToolCallStatus } from "../gen/turnwire/packet/v1/tools_pb.js";

type PacketInit = MessageInitShape<typeof PacketSchema>;
type Payload = NonNullable<PacketInit["payload"]>;

const MODEL = "example-large";
const CALL = "0193a1b2-0000-7000-8000-0000000000c1";
const stepUsage = { inputTokens: 212, outputTokens: 41, reasoningTokens: 12, attempts: 1 };
const answerUsage = { inputTokens: 291, outputTokens: 18, attempts: 1 };
const sum = { inputTokens: 503, outputTokens: 59, reasoningTokens: 12, attempts: 2 };

/** Milliseconds since the start, the block's [turn_index, tab_index] in lane 0 ("lane" = no block, "turn" = no lane), payload. */
const steps: readonly (readonly [number, readonly [number, number] | "lane" | "turn", Payload])[] = [
  [
    0,
    "turn",
    {
      case: "turnStarted",
      value: {
        turnId: "0193a1b2-0000-7000-8000-00000000007a",
        sessionId: "0193a1b2-0000-7000-8000-000000000005",
        sessionCreated: true,
        userMessageId: "0193a1b2-0000-7000-8000-0000000000a1",
        requestId: "example-1",
        startedAt: timestampFromDate(new Date("2026-03-02T09:30:00Z")),
        lanes: [
          {
            modelIndex: 0,
            modelId: MODEL,
            assistantMessageId: "0193a1b2-0000-7000-8000-0000000000a2",
            displayName: "Example Large",
          },
        ],
        input: { text: "What time is it in Tokyo?" },
      },
    },
  ],
  [1, "lane", { case: "laneStarted", value: { modelId: MODEL } }],
  [
    1,
    "lane",
    {
      case: "cycleStarted",
      value: { cycle: 1, modelId: MODEL, attempt: 1, toolChoice: ToolChoiceKind.AUTO },
    },
  ],
  [310, [0, 0], { case: "reasoningStart", value: {} }],
  [310, [0, 0], { case: "reasoningDelta", value: { reasoning: "The clock tool knows the time " } }],
  [342, [0, 0], { case: "reasoningDelta", value: { reasoning: "in a zone." } }],
  [358, [0, 0], { case: "reasoningDone", value: { durationMs: 48 } }],
  [358, [1, 0], { case: "agentResponseStart", value: { preAnswerMs: 1 } }],
  [358, [1, 0], { case: "agentResponseDelta", value: { content: "Let me look at the clock." } }],
  [390, [1, 0], { case: "agentResponseDone", value: { kind: AnswerKind.NARRATION } }],
  [
    390,
    [2, 0],
    {
      case: "toolCallStart",
      value: {
        callId: CALL,
        toolId: "clock",
        toolName: "clock",
        displayName: "Clock",
        providerCallId: "call_7Yd",
      },
    },
  ],
  [390, [2, 0], { case: "toolCallArgumentDelta", value: { callId: CALL, raw: '{"zone":"Asia/' } }],
  [402, [2, 0], { case: "toolCallArgumentDelta", value: { callId: CALL, raw: 'Tokyo"}' } }],
  [
    409,
    [2, 0],
    {
      case: "toolCallReady",
      value: { callId: CALL, argumentsJson: '{"zone":"Asia/Tokyo"}', argumentsValid: true },
    },
  ],
  [414, [2, 0], { case: "customToolStart", value: { toolName: "clock" } }],
  [
    415,
    [2, 0],
    {
      case: "customToolDelta",
      value: {
        toolName: "clock",
        responseType: CustomToolResponseType.TEXT,
        data: "2026-03-02 18:30, Monday",
      },
    },
  ],
  [
    417,
    [2, 0],
    {
      case: "toolCallResult",
      value: { callId: CALL, status: ToolCallStatus.OK, modelText: "2026-03-02 18:30, Monday" },
    },
  ],
  [417, [2, 0], { case: "sectionEnd", value: { status: SectionStatus.OK, durationMs: 8 } }],
  [
    417,
    "lane",
    { case: "cycleEnd", value: { cycle: 1, finishReason: FinishReason.TOOL_CALLS, usage: stepUsage } },
  ],
  [
    418,
    "lane",
    {
      case: "cycleStarted",
      value: { cycle: 2, modelId: MODEL, attempt: 1, toolChoice: ToolChoiceKind.AUTO },
    },
  ],
  [702, [3, 0], { case: "agentResponseStart", value: { preAnswerMs: 418 } }],
  [702, [3, 0], { case: "agentResponseDelta", value: { content: "It is half past six in the evening" } }],
  [731, [3, 0], { case: "agentResponseDelta", value: { content: " in Tokyo, on Monday." } }],
  [
    744,
    [3, 0],
    { case: "agentResponseDone", value: { kind: AnswerKind.ANSWER, finishReason: FinishReason.STOP } },
  ],
  [
    744,
    "lane",
    { case: "cycleEnd", value: { cycle: 2, finishReason: FinishReason.STOP, usage: answerUsage } },
  ],
  [
    744,
    "lane",
    {
      case: "laneEnd",
      value: { outcome: TurnOutcome.COMPLETED, finishReason: FinishReason.STOP, usage: sum, modelId: MODEL },
    },
  ],
  [752, "turn", { case: "overallStop", value: { outcome: TurnOutcome.COMPLETED, usage: sum } }],
];

/** The packets of the example, seq 1 on. */
export function exampleTurn(): Packet[] {
  return steps.map(([tMs, where, payload], index) =>
    create(PacketSchema, { seq: index + 1, tMs, placement: placementOf(where), payload }),
  );
}

function placementOf(
  where: readonly [number, number] | "lane" | "turn",
): NonNullable<PacketInit["placement"]> {
  if (where === "turn") return {};
  if (where === "lane") return { modelIndex: 0 };
  return { modelIndex: 0, turnIndex: where[0], tabIndex: where[1] };
}

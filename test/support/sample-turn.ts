/** Packets of a whole turn, made by hand: reasoning, a tool call, an answer. For tests of what reads turns. */
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { ErrorCode, FinishReason, StopReason, TurnOutcome } from "../../gen/turnwire/packet/v1/common_pb.js";
import { AnswerKind } from "../../gen/turnwire/packet/v1/answer_pb.js";
import { SectionStatus } from "../../gen/turnwire/packet/v1/control_pb.js";
import { PacketSchema, type Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import { ToolCallStatus } from "../../gen/turnwire/packet/v1/tools_pb.js";

type Payload = NonNullable<MessageInitShape<typeof PacketSchema>["payload"]>;
interface Place {
  readonly turnIndex?: number;
  readonly modelIndex?: number;
}

/** Numbers payloads into packets: seq 1, 2, 3 ... */
export function numberPackets(payloads: readonly (readonly [Payload, Place?])[], firstSeq = 1): Packet[] {
  return payloads.map(([payload, place], index) =>
    create(PacketSchema, {
      seq: firstSeq + index,
      tMs: 10 * (firstSeq + index),
      placement: { turnIndex: 0, ...place },
      payload,
    }),
  );
}

export interface SampleTurnOptions {
  readonly turnId?: string;
  readonly sessionId?: string;
  readonly requestId?: string;
  /** Pieces of the answer; the default makes a turn of 30 packets. */
  readonly answer?: readonly string[];
  readonly outcome?: TurnOutcome;
}

const WORDS = ["The ", "time ", "in ", "Berlin ", "is ", "12:30 ", "and ", "all ", "is ", "well. "];

/** A completed turn of one lane; 20 packets and one per piece of the answer. */
export function sampleTurn(options: SampleTurnOptions = {}): Packet[] {
  const { turnId = "turn-1", sessionId = "session-1", requestId = "", answer = WORDS } = options;
  const outcome = options.outcome ?? TurnOutcome.COMPLETED;
  const error =
    outcome === TurnOutcome.ERROR
      ? { code: ErrorCode.UPSTREAM_UNAVAILABLE, message: "the model is away" }
      : undefined;
  const lane = { modelIndex: 0 };
  const at = (turnIndex: number): Place => ({ turnIndex, modelIndex: 0 });
  return numberPackets([
    [
      {
        case: "turnStarted",
        value: {
          turnId,
          sessionId,
          requestId,
          userMessageId: "user-1",
          input: { text: "what time is it?" },
          lanes: [{ modelIndex: 0, modelId: "demo", assistantMessageId: "assistant-1", displayName: "Demo" }],
        },
      },
    ],
    [{ case: "laneStarted", value: { modelId: "demo" } }, lane],
    [{ case: "cycleStarted", value: { cycle: 0, modelId: "demo", attempt: 1 } }, lane],
    [{ case: "reasoningStart", value: {} }, at(0)],
    [{ case: "reasoningDelta", value: { reasoning: "They want " } }, at(0)],
    [{ case: "reasoningDelta", value: { reasoning: "the time." } }, at(0)],
    [{ case: "reasoningDone", value: { durationMs: 20 } }, at(0)],
    [{ case: "toolCallStart", value: { callId: "call-1", toolId: "clock", toolName: "clock" } }, at(1)],
    [{ case: "toolCallArgumentDelta", value: { callId: "call-1", raw: '{"zone":' } }, at(1)],
    [{ case: "toolCallArgumentDelta", value: { callId: "call-1", raw: '"Europe/Berlin"}' } }, at(1)],
    [
      {
        case: "toolCallReady",
        value: { callId: "call-1", argumentsJson: '{"zone":"Europe/Berlin"}', argumentsValid: true },
      },
      at(1),
    ],
    [{ case: "cycleEnd", value: { cycle: 0, finishReason: FinishReason.TOOL_CALLS } }, lane],
    [
      { case: "toolCallResult", value: { callId: "call-1", status: ToolCallStatus.OK, modelText: "12:30" } },
      at(1),
    ],
    [{ case: "sectionEnd", value: { status: SectionStatus.OK, durationMs: 30 } }, at(1)],
    [{ case: "cycleStarted", value: { cycle: 1, modelId: "demo", attempt: 1 } }, lane],
    [{ case: "agentResponseStart", value: {} }, at(2)],
    ...answer.map(
      (content) => [{ case: "agentResponseDelta", value: { content } }, at(2)] as [Payload, Place],
    ),
    [
      { case: "agentResponseDone", value: { kind: AnswerKind.ANSWER, finishReason: FinishReason.STOP } },
      at(2),
    ],
    [{ case: "cycleEnd", value: { cycle: 1, finishReason: FinishReason.STOP } }, lane],
    [{ case: "laneEnd", value: { outcome, finishReason: FinishReason.STOP, modelId: "demo", error } }, lane],
    [{ case: "overallStop", value: { outcome, error } }],
  ]);
}

/** How a turn ends that was stopped after `head`: the two packets that then follow. */
export function stoppedEnd(head: number, reason = StopReason.USER_CANCELLED): Packet[] {
  return numberPackets(
    [
      [
        { case: "laneEnd", value: { outcome: TurnOutcome.STOPPED, finishReason: FinishReason.CANCELLED } },
        { modelIndex: 0 },
      ],
      [{ case: "overallStop", value: { outcome: TurnOutcome.STOPPED, stopReason: reason } }],
    ],
    head + 1,
  );
}

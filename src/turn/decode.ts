/**
 * Decodes one model stream into packets: deltas in, blocks out.
 *
 * Invariants (tests cite the numbers):
 * D1 reasoning is closed before an answer or a call begins. D2 a call is announced at its final place, as soon as its
 * name is known. D3 an answer block is provisional until it is known whether calls follow; then all that was begun is
 * settled. D4 what the packets come to does not depend on how the stream was cut. D5 no packet holds more than 64 KiB of
 * text, an empty text, NUL or half a surrogate pair. D6 after `finishStep` nothing of the step is open but calls that
 * are ready to be run. D7 nothing throws on what a model may send.
 */
import { create } from "@bufbuild/protobuf";
import type {
  CompletionDelta,
  ContentPart,
  ModelMessage,
} from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import {
  ContentPartSchema,
  ModelMessageSchema,
  Role,
  ToolCallPartSchema,
} from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { AnswerKind } from "../../gen/turnwire/packet/v1/answer_pb.js";
import type { Usage } from "../../gen/turnwire/packet/v1/common_pb.js";
import { ErrorCode, FinishReason } from "../../gen/turnwire/packet/v1/common_pb.js";
import type { Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import { ToolCallStatus } from "../../gen/turnwire/packet/v1/tools_pb.js";
import { TurnError } from "../lib/errors.js";
import type { EndedCall } from "./decode-calls.js";
import { abandonCalls, addCallDelta, endCalls } from "./decode-calls.js";
import {
  addCitation,
  addMedia,
  addServerToolCall,
  addUsage,
  crossAttemptBoundary,
  shownUsage,
  stepUsage,
} from "./decode-beside.js";
import {
  addAnswer,
  addReasoning,
  freshAttempt,
  kindBesideCalls,
  leaveCurrent,
  settleAnswers,
} from "./decode-state.js";
import type { StepState } from "./decode-state.js";
import { errorMessage, packet } from "./packets.js";
import { lanePlacementOf } from "./placement.js";
import type { DecodedCall, StepEnd, StepOptions, StepOutcome } from "./step.js";

export type { StepState } from "./decode-state.js";
export type { DecodedCall, StepEnd, StepOptions, StepOutcome, StepTool } from "./step.js";

const MAX_WARNINGS = 16;

/** Starts decoding one model stream. */
export function startStep(options: StepOptions): StepState {
  return {
    options,
    attempt: options.attempt ?? 1,
    modelId: options.modelId ?? "",
    secret: false,
    usageByAttempt: new Map(),
    warnings: [],
    ...freshAttempt(),
  };
}

/** The packets that one delta comes to (seq 0, t_ms 0: the writer numbers them). `tMs` is used for durations only. */
export function nextDelta(state: StepState, { delta }: CompletionDelta, tMs = 0): Packet[] {
  const out: Packet[] = [];
  if (state.error && delta.case !== "usage") return out; // the stream is over
  switch (delta.case) {
    case "content":
      addAnswer(state, out, delta.value.text, false, tMs);
      break;
    case "reasoning":
      addReasoning(state, out, delta.value, tMs);
      break;
    case "toolCall":
      addCallDelta(state, out, delta.value, tMs);
      break;
    case "refusal":
      addAnswer(state, out, delta.value, true, tMs);
      break;
    case "providerState":
      state.parts.push({ kind: "provider_state", state: delta.value });
      break;
    case "usage":
      addUsage(state, out, delta.value);
      break;
    case "finish":
      state.finished = true;
      if (delta.value.reason !== FinishReason.UNSPECIFIED) state.finishReason = delta.value.reason;
      state.reasoningOpen = delta.value.reasoningOpen;
      break;
    case "error":
      state.error = delta.value;
      break;
    case "attemptStarted":
      state.attempt = Math.max(state.attempt, delta.value.attempt);
      state.secret = delta.value.provider === "" && delta.value.upstreamModel === "";
      break;
    case "attemptBoundary":
      crossAttemptBoundary(state, out, delta.value);
      break;
    case "modelSelected":
      state.modelId = delta.value.modelId;
      break;
    case "parametersDropped":
      if (delta.value.names.length === 0) break;
      out.push(
        packet(
          "contextInfo",
          { droppedParameters: delta.value.names.slice(0, 64) },
          lanePlacementOf(state.options.modelIndex),
        ),
      );
      break;
    case "citation":
      addCitation(state, out, delta.value);
      break;
    case "serverToolCall":
      addServerToolCall(state, out, delta.value);
      break;
    case "media":
      addMedia(state, delta.value);
      break;
    case "warning":
      if (state.warnings.length < MAX_WARNINGS) state.warnings.push(delta.value);
      break;
    case undefined:
      break; // a delta of a newer peer: nothing this build can show
    default:
      delta satisfies never;
  }
  return out;
}

/** True when the stream said how it finished (a finish or an error). A stream that just ends was cut off on its way. */
export function hasFinished(state: StepState): boolean {
  return state.finished || state.error !== undefined;
}

/** Closes what is open and says what the step came to. Call it exactly once. */
export function finishStep(
  state: StepState,
  end: StepEnd,
  tMs = 0,
): { packets: Packet[]; outcome: StepOutcome } {
  const packets: Packet[] = [];
  leaveCurrent(state, packets, tMs);
  const ending: StepEnd = end.kind === "done" && state.error ? { kind: "failed", error: state.error } : end;
  switch (ending.kind) {
    case "done":
      return { packets, outcome: finishDone(state, packets, tMs) };
    case "stopped":
      settleAnswers(state, packets, kindAtEnd(state), FinishReason.CANCELLED, true);
      abandonCalls(state, packets, ToolCallStatus.CANCELLED, "The call was cancelled before it ran.");
      return { packets, outcome: outcomeOf(state, "stopped", FinishReason.CANCELLED, []) };
    case "failed":
      settleAnswers(state, packets, kindAtEnd(state), FinishReason.ERROR, true);
      abandonCalls(
        state,
        packets,
        ToolCallStatus.ERROR,
        "The model's answer ended before the call was complete.",
      );
      return {
        packets,
        outcome: { ...outcomeOf(state, "failed", FinishReason.ERROR, []), error: ending.error },
      };
  }
}

function finishDone(state: StepState, packets: Packet[], tMs: number): StepOutcome {
  if (state.refused && state.finishReason !== FinishReason.CONTENT_FILTER)
    state.finishReason = FinishReason.REFUSAL;
  const reason = state.finishReason;
  const ended = endCalls(state, packets, tMs);
  settleAnswers(state, packets, kindAtEnd(state), reason, reason === FinishReason.LENGTH);
  const isEmpty =
    state.parts.every((part) => part.kind === "provider_state") && !state.visible && state.media.length === 0;
  if (isEmpty) {
    const refused = reason === FinishReason.REFUSAL || reason === FinishReason.CONTENT_FILTER;
    const error = new TurnError(refused ? ErrorCode.MODEL_REFUSAL : ErrorCode.EMPTY_RESPONSE);
    return { ...outcomeOf(state, "failed", reason, []), error: errorMessage(error, state.modelId) };
  }
  const wantsTools = ended.some((call) => call.ready);
  return outcomeOf(state, wantsTools ? "wants_tools" : "answered", reason, ended);
}

function kindAtEnd(state: StepState): AnswerKind {
  return state.group ? kindBesideCalls(state) : AnswerKind.ANSWER;
}

function outcomeOf(
  state: StepState,
  kind: StepOutcome["kind"],
  finishReason: FinishReason,
  ended: readonly EndedCall[],
): StepOutcome {
  let text = "";
  let reasoning = "";
  for (const part of state.parts) {
    if (part.kind === "text" || part.kind === "refusal") text += part.text;
    else if (part.kind === "reasoning") reasoning += part.text;
  }
  return {
    kind,
    text,
    reasoning,
    calls: ended.flatMap(({ ready }) => (ready ? [ready] : [])),
    finishReason,
    usage: stepUsage(state),
    shownUsage: shownUsage(state),
    assistantMessage: assistantMessage(state, ended),
    modelId: state.modelId,
    reasoningOpen: state.reasoningOpen,
    media: state.media,
    warnings: state.warnings,
  };
}

/** The message as the model wrote it: its parts in order, with the calls that can be answered. */
function assistantMessage(state: StepState, ended: readonly EndedCall[]): ModelMessage {
  const readyOf = new Map(ended.map(({ call, ready }) => [call.callId, ready]));
  const parts: ContentPart[] = [];
  const push = (part: ContentPart["part"]): void => {
    const content = create(ContentPartSchema);
    content.part = part;
    parts.push(content);
  };
  for (const part of state.parts) {
    switch (part.kind) {
      case "text":
      case "refusal":
      case "reasoning":
        push({ case: part.kind, value: part.text });
        break;
      case "provider_state":
        push({ case: "providerState", value: part.state });
        break;
      case "call": {
        const ready = readyOf.get(part.call.callId);
        if (ready) push({ case: "toolCall", value: toolCallPart(ready) });
        break;
      }
    }
  }
  return create(ModelMessageSchema, { role: Role.ASSISTANT, parts });
}

/** A call in a message to a model: arguments that are no object would make providers refuse the whole request. */
function toolCallPart(call: DecodedCall) {
  return create(ToolCallPartSchema, {
    callId: call.modelCallId,
    name: call.toolName,
    argumentsJson: call.argumentsValid ? call.argumentsJson : "{}",
  });
}

/** The usage a step has come to so far: for CycleEnd when the step itself never gets to its end. */
export function usageOf(state: StepState): Usage {
  return stepUsage(state);
}

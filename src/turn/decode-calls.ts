/** The calls of a step: announced, streamed, and closed as ready, cut off or cancelled. */
import type { ToolCallDelta } from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { FinishReason } from "../../gen/turnwire/packet/v1/common_pb.js";
import { SectionStatus } from "../../gen/turnwire/packet/v1/control_pb.js";
import type { Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import { ToolCallStatus } from "../../gen/turnwire/packet/v1/tools_pb.js";
import type { NormalArguments } from "./argument-stream.js";
import { argumentStream, normalizeArguments, readArguments } from "./argument-stream.js";
import type { CallInProgress, StepState } from "./decode-state.js";
import { kindBesideCalls, leaveCurrent, settleAnswers, withoutNul } from "./decode-state.js";
import {
  argumentDelta,
  byteLength,
  cutText,
  isHighSurrogate,
  MAX_TEXT_BYTES,
  packet,
  replaceLoneSurrogates,
  splitText,
} from "./packets.js";
import { mergeCalls } from "./merge-calls.js";
import { groupPlacement, nextCall, nextCallGroup } from "./placement.js";
import type { DecodedCall } from "./step.js";

/** A packet carries a fragment twice (raw, and what it appends), so a piece is half of what one packet may carry. */
const MAX_FRAGMENT_BYTES = MAX_TEXT_BYTES / 2;
/** Longer ids and names are no provider's: cut, so that a packet stays small. */
const MAX_NAME_CHARS = 256;

/** Takes in a fragment of a call. The call is announced as soon as its name is known. */
export function addCallDelta(state: StepState, out: Packet[], delta: ToolCallDelta, tMs: number): void {
  const isEmpty =
    delta.callId === "" && delta.name === "" && delta.argumentsFragment === "" && !delta.complete;
  const call = findCall(state, delta) ?? (isEmpty ? undefined : beginCall(state, delta.blockIndex));
  if (!call) return;
  call.providerCallId ||= cleanName(delta.callId);
  if (!call.placement && delta.name) call.name = cleanName(delta.name);

  const fragment = cleanFragment(call, delta.argumentsFragment);
  call.argumentsText += fragment;
  call.complete ||= delta.complete;
  call.invalid ||= delta.argumentsInvalid;
  if (call.placement) streamArguments(call, out, fragment);
  else if (call.name) announce(state, out, call, tMs);
}

/** The open call of the block; a new provider id on a used block is a new call. */
function findCall(state: StepState, delta: ToolCallDelta): CallInProgress | undefined {
  const call = state.calls.findLast((candidate) => candidate.blockIndex === delta.blockIndex);
  if (!call || delta.callId === "" || call.providerCallId === "") return call;
  return call.providerCallId === cleanName(delta.callId) ? call : undefined;
}

function beginCall(state: StepState, blockIndex: number): CallInProgress {
  const call: CallInProgress = {
    callId: state.options.newCallId(),
    blockIndex,
    providerCallId: "",
    name: "",
    toolId: "",
    clientSide: false,
    argumentsText: "",
    held: "",
    complete: false,
    invalid: false,
    stream: undefined,
    placement: undefined,
  };
  state.calls.push(call);
  state.parts.push({ kind: "call", call });
  return call;
}

/** NUL and surrogates without a partner do not belong into arguments; a pair that was cut is joined. */
function cleanFragment(call: CallInProgress, fragment: string): string {
  let ready = call.held + withoutNul(fragment);
  call.held = "";
  if (isHighSurrogate(ready.charCodeAt(ready.length - 1))) {
    call.held = ready.slice(-1);
    ready = ready.slice(0, -1);
  }
  return replaceLoneSurrogates(ready, "");
}

function cleanName(name: string): string {
  return replaceLoneSurrogates(withoutNul(name).slice(0, MAX_NAME_CHARS));
}

/** Announces a call at its final place: text that came before it is settled first. */
function announce(state: StepState, out: Packet[], call: CallInProgress, tMs: number): void {
  const { placement: lane, toolByName, parentCallId } = state.options;
  leaveCurrent(state, out, tMs);
  settleAnswers(state, out, kindBesideCalls(state), FinishReason.UNSPECIFIED, false);
  state.group ??= nextCallGroup(lane);
  call.placement = nextCall(lane, state.group);
  state.visible = true;
  if (state.group.tabs > 1 && !lane.parent) {
    out.push(
      packet(
        "topLevelBranching",
        { numParallelBranches: state.group.tabs },
        groupPlacement(lane, state.group),
      ),
    );
  }
  const tool = toolByName(call.name);
  call.toolId = tool?.toolId ?? "";
  call.clientSide = tool?.clientSide ?? false;
  if (tool?.streamsArguments) call.stream = argumentStream();
  out.push(
    packet(
      "toolCallStart",
      {
        callId: call.callId,
        toolId: call.toolId,
        toolName: call.name,
        displayName: tool?.displayName ?? call.name,
        parentCallId: parentCallId ?? "",
        clientSide: call.clientSide,
        providerCallId: call.providerCallId,
      },
      call.placement,
    ),
  );
  streamArguments(call, out, call.argumentsText);
}

function streamArguments(call: CallInProgress, out: Packet[], fragment: string): void {
  for (const piece of splitText(fragment, MAX_FRAGMENT_BYTES)) {
    const appended = call.stream ? readArguments(call.stream, piece) : {};
    out.push(argumentDelta(call.callId, piece, appended, call.placement!));
  }
}

/** A call as the step's end left it: to be run, or cut off. */
export type EndedCall = { readonly call: CallInProgress; readonly ready: DecodedCall | undefined };

/** Closes the calls of a stream that ended by itself. Calls that never got a name are announced without one. */
export function endCalls(state: StepState, out: Packet[], tMs: number): EndedCall[] {
  for (const call of state.calls) if (!call.placement) announce(state, out, call, tMs);
  const isUnique = (id: string): boolean =>
    state.calls.filter((call) => call.providerCallId === id).length === 1;
  const ended = state.calls.map((call): EndedCall & { readonly packets: readonly Packet[] } => {
    const normal = normalizeArguments(call.argumentsText);
    if (isCutOff(state, call, normal)) {
      const text = "The call was cut off before its arguments were complete.";
      return { call, ready: undefined, packets: cutOffPackets(call, ToolCallStatus.ERROR, text) };
    }
    const { providerCallId } = call;
    const ready: DecodedCall = {
      callId: call.callId,
      providerCallId,
      modelCallId: providerCallId && isUnique(providerCallId) ? providerCallId : call.callId,
      toolId: call.toolId,
      toolName: call.name,
      clientSide: call.clientSide,
      placement: call.placement!,
      argumentsJson: normal.json,
      argumentsValid: normal.valid && !call.invalid,
    };
    return { call, ready, packets: [] };
  });
  const isReady = ({ ready }: EndedCall): DecodedCall[] => (ready ? [ready] : []);
  const merged = new Map(
    mergeCalls(ended.flatMap(isReady), state.options.toolByName).map((ready) => [ready.callId, ready]),
  );
  return ended.map(({ call, packets }) => {
    const ready = merged.get(call.callId);
    out.push(...(ready ? [readyPacket(ready)] : packets));
    return { call, ready };
  });
}

/** Closes the announced calls of a stream that was stopped or failed. */
export function abandonCalls(state: StepState, out: Packet[], status: ToolCallStatus, text: string): void {
  for (const call of state.calls) if (call.placement) out.push(...cutOffPackets(call, status, text));
}

/** After these the arguments of the last call may be a piece; after the others the provider means what it sent. */
const CUTTING_REASONS: ReadonlySet<FinishReason> = new Set([
  FinishReason.LENGTH,
  FinishReason.CONTENT_FILTER,
  FinishReason.ERROR,
  FinishReason.CANCELLED,
]);

function isCutOff(state: StepState, call: CallInProgress, normal: NormalArguments): boolean {
  if (call.complete || !CUTTING_REASONS.has(state.finishReason)) return false;
  return !normal.valid || call.argumentsText.trim() === "";
}

function cutOffPackets(call: CallInProgress, status: ToolCallStatus, text: string): Packet[] {
  return [
    packet("toolCallResult", { callId: call.callId, status, modelText: text }, call.placement),
    packet("sectionEnd", { status: sectionStatusOf(status), message: text }, call.placement),
  ];
}

/** The packet that says a call's arguments are whole. What is cut in it stands whole in its argument deltas. */
export function readyPacket(
  call: Pick<DecodedCall, "callId" | "argumentsJson" | "argumentsValid" | "placement" | "mergedIntoCallId">,
): Packet {
  const truncated = byteLength(call.argumentsJson) > MAX_TEXT_BYTES;
  return packet(
    "toolCallReady",
    {
      callId: call.callId,
      argumentsJson: truncated ? cutText(call.argumentsJson, MAX_TEXT_BYTES) : call.argumentsJson,
      argumentsValid: call.argumentsValid,
      mergedIntoCallId: call.mergedIntoCallId ?? "",
      truncated,
    },
    call.placement,
  );
}

/** The end of a call's section that goes with its result. */
export function sectionStatusOf(status: ToolCallStatus): SectionStatus {
  switch (status) {
    case ToolCallStatus.OK:
      return SectionStatus.OK;
    case ToolCallStatus.TIMEOUT:
      return SectionStatus.TIMEOUT;
    case ToolCallStatus.CANCELLED:
      return SectionStatus.CANCELLED;
    case ToolCallStatus.UNKNOWN_OUTCOME:
      return SectionStatus.UNKNOWN_OUTCOME;
    case ToolCallStatus.DENIED:
      return SectionStatus.DENIED;
    case ToolCallStatus.ERROR:
    case ToolCallStatus.UNSPECIFIED:
      return SectionStatus.ERROR;
  }
}

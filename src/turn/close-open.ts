/**
 * Ends what a turn's log leaves open: on a stop, a deadline, an error, and after a crash. It looks at the fold of what the
 * log really holds, so what was never written is never closed, and what was is closed once.
 */
import type { Block, LaneState, ToolBlock, TurnState } from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import { BlockStatus } from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import { AnswerKind } from "../../gen/turnwire/packet/v1/answer_pb.js";
import { ClientCallResolution } from "../../gen/turnwire/packet/v1/client_calls_pb.js";
import type { TurnError, Usage } from "../../gen/turnwire/packet/v1/common_pb.js";
import { FinishReason, StopReason, TurnOutcome } from "../../gen/turnwire/packet/v1/common_pb.js";
import { SectionStatus } from "../../gen/turnwire/packet/v1/control_pb.js";
import type { Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import type { ToolCallResult } from "../../gen/turnwire/packet/v1/tools_pb.js";
import { ToolCallStatus } from "../../gen/turnwire/packet/v1/tools_pb.js";
import { normalizeArguments } from "./argument-stream.js";
import { readyPacket, sectionStatusOf } from "./decode-calls.js";
import { packet, sumUsage, zeroUsage } from "./packets.js";
import { lanePlacementOf, samePlacement, turnPlacement } from "./placement.js";

/** Why a turn, or one of its lanes, ends before it is through. */
export interface CloseHow {
  readonly kind: "stopped" | "error" | "interrupted";
  readonly stopReason?: StopReason;
  /** Goes into LaneEnd and OverallStop, and with kind "error" into an error packet of its own. */
  readonly error?: TurnError;
  /** Results that are stored and not shown yet, by call id. */
  readonly settledResults?: ReadonlyMap<string, ToolCallResult>;
  /** Calls that were dispatched and whose outcome nobody knows. */
  readonly inDoubtCallIds?: ReadonlySet<string>;
  /** Whole arguments of calls whose ToolCallReady may be missing in the log (from the cycle's checkpoint). */
  readonly argumentsJson?: ReadonlyMap<string, string>;
  /** Close this lane only. Default: all. */
  readonly modelIndex?: number;
  /** Usage of lanes where the caller knows more than the log. Default: what the fold counted. */
  readonly usageByLane?: ReadonlyMap<number, Usage>;
}

/**
 * The packets (seq 0) that close everything open, in legal order, up to and with the LaneEnd of each lane that has none.
 * Empty when the turn has not been announced (no TurnStarted) or nothing is open.
 */
export function closeOpen(state: TurnState, how: CloseHow): Packet[] {
  const out: Packet[] = [];
  if (!state.started || state.stop) return out;
  const wholeTurn = how.modelIndex === undefined;
  const lanes = state.lanes.filter((lane) => !lane.end && (wholeTurn || lane.modelIndex === how.modelIndex));
  for (const lane of lanes) closeBlocks(lane, how, out);
  closeWaits(state, lanes, wholeTurn, out);
  for (const lane of lanes) closeCycle(lane, how, out);
  if (how.kind === "error" && how.error && (wholeTurn || lanes.length > 0)) {
    out.push(packet("error", how.error, wholeTurn ? turnPlacement() : lanePlacementOf(how.modelIndex!)));
  }
  for (const lane of lanes) out.push(laneEnd(lane, how));
  return out;
}

/**
 * The terminal packet of a turn whose lanes have all ended: completed if one lane is. `how` as given to `closeOpen`; none
 * when the turn ran through.
 */
export function overallStop(state: TurnState, how?: Pick<CloseHow, "kind" | "stopReason" | "error">): Packet {
  const outcome = turnOutcome(state, how);
  const failed =
    outcome === TurnOutcome.COMPLETED || outcome === TurnOutcome.STOPPED ? undefined : how?.error;
  const laneError = state.lanes.find((lane) => lane.end?.error)?.end?.error;
  return packet(
    "overallStop",
    {
      outcome,
      stopReason: how?.stopReason ?? StopReason.UNSPECIFIED,
      usage: sumUsage(state.lanes.map((lane) => lane.end?.usage ?? lane.usage)),
      error: failed ?? (outcome === TurnOutcome.ERROR ? laneError : undefined),
    },
    turnPlacement(),
  );
}

function turnOutcome(state: TurnState, how: Pick<CloseHow, "kind"> | undefined): TurnOutcome {
  const outcomes = new Set(state.lanes.map((lane) => lane.end?.outcome));
  if (outcomes.has(TurnOutcome.COMPLETED)) return TurnOutcome.COMPLETED;
  if (how) return outcomeOf(how.kind);
  for (const outcome of [TurnOutcome.STOPPED, TurnOutcome.INTERRUPTED])
    if (outcomes.has(outcome)) return outcome;
  return TurnOutcome.ERROR;
}

function outcomeOf(kind: CloseHow["kind"]): TurnOutcome {
  switch (kind) {
    case "stopped":
      return TurnOutcome.STOPPED;
    case "error":
      return TurnOutcome.ERROR;
    case "interrupted":
      return TurnOutcome.INTERRUPTED;
  }
}

function finishReasonOf(kind: CloseHow["kind"]): FinishReason {
  return kind === "stopped" ? FinishReason.CANCELLED : FinishReason.ERROR;
}

/** Inner blocks before the call they are shown in. */
function closeBlocks(lane: LaneState, how: CloseHow, out: Packet[]): void {
  const open = lane.blocks.filter((block) => block.status === BlockStatus.OPEN);
  const isInner = (block: Block): boolean => block.placement?.subTurnIndex !== undefined;
  for (const block of open.filter(isInner)) closeBlock(lane, block, how, out);
  for (const block of open.filter((candidate) => !isInner(candidate))) closeBlock(lane, block, how, out);
}

function closeBlock(lane: LaneState, block: Block, how: CloseHow, out: Packet[]): void {
  const content = block.block;
  switch (content.case) {
    case "reasoning":
      out.push(packet("reasoningDone", { redacted: content.value.redacted }, block.placement));
      return;
    case "answer":
      out.push(
        packet(
          "agentResponseDone",
          { kind: kindOf(lane, block), truncated: true, finishReason: finishReasonOf(how.kind) },
          block.placement,
        ),
      );
      return;
    case "tool":
      closeCall(block, content.value, how, out);
      return;
    case "agent":
    case "report":
    case "researchPlan":
      // The end of a call ends what is at its place.
      if (!hasOpenCallAt(lane, block)) {
        out.push(packet("sectionEnd", { status: sectionStatusAt(how.kind) }, block.placement));
      }
      return;
    case undefined:
      return;
  }
}

/** Text beside calls of its step is narration, unless the step could call nothing. */
function kindOf(lane: LaneState, block: Block): AnswerKind {
  const scope = block.placement;
  const hasCalls = lane.blocks.some(
    (other) =>
      other.block.case === "tool" &&
      other.cycle === block.cycle &&
      other.status !== BlockStatus.DISCARDED &&
      other.placement?.subTurnIndex === undefined &&
      scope?.subTurnIndex === undefined,
  );
  return hasCalls ? AnswerKind.NARRATION : AnswerKind.ANSWER;
}

function hasOpenCallAt(lane: LaneState, block: Block): boolean {
  return lane.blocks.some(
    (other) =>
      other.block.case === "tool" &&
      other.status === BlockStatus.OPEN &&
      samePlacement(other.placement, block.placement),
  );
}

function closeCall(block: Block, tool: ToolBlock, how: CloseHow, out: Packet[]): void {
  const callId = tool.call?.callId ?? "";
  let result = tool.result;
  if (!result) {
    result = how.settledResults?.get(callId) ?? unsettledResult(callId, how);
    if (!tool.ready && needsReady(result.status)) {
      const normal = normalizeArguments(how.argumentsJson?.get(callId) ?? tool.argumentsJson);
      out.push(
        readyPacket({
          callId,
          argumentsJson: normal.json,
          argumentsValid: normal.valid,
          placement: block.placement!,
        }),
      );
    }
    out.push(packet("toolCallResult", result, block.placement));
  }
  out.push(packet("sectionEnd", { status: sectionStatusOf(result.status) }, block.placement));
}

/** A call that has run, or may have, was complete. */
function needsReady(status: ToolCallStatus): boolean {
  return status !== ToolCallStatus.CANCELLED && status !== ToolCallStatus.ERROR;
}

function unsettledResult(callId: string, how: CloseHow): ToolCallResult {
  const [status, modelText] = how.inDoubtCallIds?.has(callId)
    ? [ToolCallStatus.UNKNOWN_OUTCOME, "The call was started; whether it took effect is not known."]
    : how.kind === "stopped"
      ? [ToolCallStatus.CANCELLED, "The call was cancelled."]
      : [ToolCallStatus.ERROR, "The turn ended before the call was done."];
  return packet("toolCallResult", { callId, status, modelText }, undefined).payload.value as ToolCallResult;
}

function sectionStatusAt(kind: CloseHow["kind"]): SectionStatus {
  return kind === "stopped" ? SectionStatus.CANCELLED : SectionStatus.ERROR;
}

function closeWaits(state: TurnState, lanes: readonly LaneState[], wholeTurn: boolean, out: Packet[]): void {
  const indices = new Set(lanes.map((lane) => lane.modelIndex));
  const callIds = new Set(
    lanes.flatMap((lane) =>
      lane.blocks.flatMap(({ block }) => (block.case === "tool" ? [block.value.call?.callId] : [])),
    ),
  );
  for (const { request } of state.pendingCalls) {
    if (!request || (!wholeTurn && !callIds.has(request.toolCallId))) continue;
    const resolution = ClientCallResolution.CANCELLED;
    out.push(
      packet("clientCallResolved", { clientCallId: request.clientCallId, resolution }, turnPlacement()),
    );
  }
  for (const { started, modelIndex } of state.waits) {
    if (!started) continue;
    const isMine = modelIndex === undefined ? wholeTurn : indices.has(modelIndex);
    const placement = modelIndex === undefined ? turnPlacement() : lanePlacementOf(modelIndex);
    if (isMine) out.push(packet("waitEnded", { waitId: started.waitId }, placement));
  }
}

function closeCycle(lane: LaneState, how: CloseHow, out: Packet[]): void {
  const cycle = lane.cycles.at(-1);
  if (!cycle || cycle.ended || cycle.reset) return;
  out.push(
    packet(
      "cycleEnd",
      { cycle: cycle.cycle, finishReason: finishReasonOf(how.kind), usage: cycle.usage },
      lanePlacementOf(lane.modelIndex),
    ),
  );
}

function laneEnd(lane: LaneState, how: CloseHow): Packet {
  return packet(
    "laneEnd",
    {
      outcome: outcomeOf(how.kind),
      finishReason: finishReasonOf(how.kind),
      usage: how.usageByLane?.get(lane.modelIndex) ?? lane.usage ?? zeroUsage(),
      modelId: lane.modelId,
      error: how.kind === "stopped" ? undefined : how.error,
    },
    lanePlacementOf(lane.modelIndex),
  );
}

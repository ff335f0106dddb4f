/**
 * The fold: packets -> TurnState. The only function that turns packets into content; client view, stored message,
 * gathered reply, snapshot and recovery all use it.
 *
 * Invariants (tests cite the numbers):
 * F1 folding a prefix and then the rest equals folding all. F2 heartbeats (seq 0) and packets at or before the cursor
 * change nothing. F3 a payload this build does not know moves the cursor, is counted, and changes nothing else;
 * must_understand on it is remembered. F4 the state does not depend on how texts and arguments were cut into deltas.
 * F5 a packet is never changed, also when the state keeps a part of it.
 */
import { clone, create } from "@bufbuild/protobuf";
import type { LaneState, TurnState } from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import {
  AgentBlockSchema,
  BlockStatus,
  CycleStateSchema,
  PendingCallSchema,
  SteeredMessageSchema,
  ToolBlockSchema,
  TurnStateSchema,
  WaitSchema,
} from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import { AnswerKind } from "../../gen/turnwire/packet/v1/answer_pb.js";
import type {
  CycleEnd,
  CycleStarted,
  LaneEnd,
  TurnStarted,
} from "../../gen/turnwire/packet/v1/control_pb.js";
import type { Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import type {
  EmbedInfo,
  ExtensionPacket,
  FileInfo,
  SourceInfo,
  StatusUpdate,
  UsageInfo,
} from "../../gen/turnwire/packet/v1/side_pb.js";
import type { ToolCallReady, ToolCallResult } from "../../gen/turnwire/packet/v1/tools_pb.js";
import { addDetail } from "./fold-detail.js";
import {
  addCitation,
  appendAnswer,
  appendText,
  countUsage,
  endSection,
  findBlock,
  findCall,
  laneOf,
  openBlock,
  openText,
  recomputeText,
  replaceAnswer,
  resetCycle,
} from "./fold-lane.js";

/** Status lines kept per lane and for the turn: the newest. */
const MAX_STATUSES = 100;

/** The state before the first packet. */
export function emptyTurnState(): TurnState {
  return create(TurnStateSchema);
}

/** Folds packets, from a state (which is not changed) or from nothing. */
export function fold(packets: Iterable<Packet>, from?: TurnState): TurnState {
  const state = from ? clone(TurnStateSchema, from) : emptyTurnState();
  for (const packet of packets) applyPacket(state, packet);
  return state;
}

/**
 * Applies one packet to a state that the caller owns. Constant time per delta in a stream. Does not check the order of
 * packets (grammar.ts does); what makes no sense without a packet that never came is ignored, but text is never lost.
 */
export function applyPacket(state: TurnState, packet: Packet): void {
  if (packet.seq <= state.seq) return;
  state.seq = packet.seq;
  const { payload } = packet;
  switch (payload.case) {
    // ---- the hot deltas
    case "agentResponseDelta":
      return appendAnswer(lane(state, packet), packet, payload.value.content);
    case "reasoningDelta":
      return appendText(lane(state, packet), packet, "reasoning", payload.value.reasoning);
    case "toolCallArgumentDelta":
      return appendArguments(lane(state, packet), packet, payload.value.callId, payload.value.raw);
    case "intermediateReportDelta":
      return appendText(lane(state, packet), packet, "report", payload.value.content);
    case "deepResearchPlanDelta":
      return appendText(lane(state, packet), packet, "researchPlan", payload.value.content);
    case "codingAgentThinkingDelta":
      return updateAgent(lane(state, packet), packet, (agent) => (agent.thinking += payload.value.content));
    case "citationInfo":
      return addCitation(lane(state, packet), payload.value);

    // ---- turn and lanes
    case "turnStarted":
      return startTurn(state, payload.value);
    case "laneStarted": {
      const started = lane(state, packet);
      started.started = true;
      if (payload.value.modelId) started.modelId = payload.value.modelId;
      return;
    }
    case "cycleStarted":
      return startCycle(lane(state, packet), packet, payload.value);
    case "cycleReset":
      return resetCycle(lane(state, packet), payload.value);
    case "cycleEnd":
      return endCycle(lane(state, packet), packet, payload.value);
    case "laneEnd":
      return endLane(lane(state, packet), payload.value);
    case "overallStop":
      state.stop = payload.value;
      return;
    case "error":
      (ofLane(packet) ? lane(state, packet) : state).errors.push(payload.value);
      return;
    case "userMessageAdded":
      state.steeredMessages.push(create(SteeredMessageSchema, { added: payload.value, seq: packet.seq }));
      return;
    case "waitStarted":
      state.waits.push(
        create(WaitSchema, { started: payload.value, modelIndex: packet.placement?.modelIndex }),
      );
      return;
    case "waitEnded":
      state.waits = state.waits.filter((wait) => wait.started?.waitId !== payload.value.waitId);
      return;
    case "topLevelBranching":
    case "chatHeartbeat":
      return;

    // ---- reasoning and answer
    case "reasoningStart":
      openText(lane(state, packet), packet, "reasoning");
      return;
    case "reasoningDone": {
      const { block, text } = openText(lane(state, packet), packet, "reasoning");
      text.durationMs = payload.value.durationMs;
      text.redacted = payload.value.redacted;
      block.status = BlockStatus.DONE;
      block.lastSeq = packet.seq;
      return;
    }
    case "agentResponseStart": {
      const { text } = openText(lane(state, packet), packet, "answer");
      text.documents = [...payload.value.finalDocuments];
      text.preAnswerMs = payload.value.preAnswerMs;
      return;
    }
    case "agentResponseDone": {
      const answering = lane(state, packet);
      const { block, text } = openText(answering, packet, "answer");
      text.kind = payload.value.kind;
      text.truncated = payload.value.truncated;
      text.finishReason = payload.value.finishReason;
      block.status = BlockStatus.DONE;
      block.lastSeq = packet.seq;
      if (text.kind === AnswerKind.NARRATION) recomputeText(answering);
      return;
    }
    case "agentResponseReplaced":
      return replaceAnswer(lane(state, packet), packet, payload.value.content, payload.value.truncated);

    // ---- calls
    case "toolCallStart": {
      const calling = lane(state, packet);
      if (findCall(calling, payload.value.callId)) return;
      const tool = create(ToolBlockSchema);
      tool.call = payload.value;
      openBlock(calling, packet, { case: "tool", value: tool });
      return;
    }
    case "toolCallReady":
      return setReady(lane(state, packet), packet, payload.value);
    case "toolCallResult":
      return setResult(lane(state, packet), packet, payload.value);
    case "sectionEnd":
      return endSection(lane(state, packet), packet, payload.value);
    case "toolCallDebug":
    case "imageGenerationHeartbeat":
      return;

    // ---- tool families
    case "pythonToolStart":
    case "pythonToolDelta":
    case "bashToolStart":
    case "bashToolDelta":
    case "customToolStart":
    case "customToolArgs":
    case "customToolDelta":
    case "searchToolStart":
    case "searchToolFilterDelta":
    case "searchToolQueriesDelta":
    case "searchToolDocumentsDelta":
    case "openUrlStart":
    case "openUrlUrls":
    case "openUrlDocuments":
    case "imageGenerationStart":
    case "imageGenerationFinal":
    case "fileReaderStart":
    case "fileReaderResult":
    case "memoryToolStart":
    case "memoryToolDelta":
    case "memoryToolNoAccess":
      return addDetail(lane(state, packet), packet);

    // ---- agents
    case "deepResearchPlanStart":
      openText(lane(state, packet), packet, "researchPlan");
      return;
    case "intermediateReportStart":
      openText(lane(state, packet), packet, "report");
      return;
    case "intermediateReportCitedDocs": {
      const { block, text } = openText(lane(state, packet), packet, "report");
      text.documents = [...payload.value.citedDocs];
      block.lastSeq = packet.seq;
      return;
    }
    case "researchAgentStart":
      return updateAgent(lane(state, packet), packet, (agent) => (agent.task = payload.value.researchTask));
    case "codingAgentStart":
      return updateAgent(lane(state, packet), packet, (agent) => {
        agent.task = payload.value.query;
        agent.repo = payload.value.repo;
      });
    case "codingAgentFinal":
      return updateAgent(lane(state, packet), packet, (agent) => (agent.answer = payload.value.answer));

    // ---- client calls
    case "clientCallRequest":
      state.pendingCalls.push(create(PendingCallSchema, { request: payload.value }));
      return;
    case "clientCallClaimed": {
      const pending = state.pendingCalls.find(
        (call) => call.request?.clientCallId === payload.value.clientCallId,
      );
      if (!pending) return;
      pending.claimed = true;
      pending.leaseExpiresAt = payload.value.leaseExpiresAt;
      return;
    }
    case "clientCallResolved":
      state.pendingCalls = state.pendingCalls.filter(
        (call) => call.request?.clientCallId !== payload.value.clientCallId,
      );
      return;

    // ---- beside the answer
    case "statusUpdate":
      return addStatus((ofLane(packet) ? lane(state, packet) : state).statuses, payload.value);
    case "usageInfo":
      return ofLane(packet) ? noteUsage(lane(state, packet), payload.value) : undefined;
    case "sourceInfo":
      return addSources(lane(state, packet), payload.value);
    case "fileInfo":
      return addFile(lane(state, packet), payload.value);
    case "embedInfo":
      return addEmbed(lane(state, packet), payload.value);
    case "sessionTitle":
      state.title = payload.value.title;
      return;
    case "sessionTags":
      state.tags = [...payload.value.tags];
      return;
    case "followUps":
      state.followUps = [...payload.value.followUps];
      return;
    case "contextInfo":
      lane(state, packet).context.push(payload.value);
      return;
    case "extension":
      return addExtension(state, payload.value);

    case undefined:
      return skipUnknown(state, packet);
    default:
      payload satisfies never;
      return skipUnknown(state, packet);
  }
}

/** True when the packet belongs to a lane, not to the whole turn. */
function ofLane(packet: Packet): boolean {
  return packet.placement?.modelIndex !== undefined;
}

function lane(state: TurnState, packet: Packet): LaneState {
  return laneOf(state, packet.placement?.modelIndex ?? 0);
}

function skipUnknown(state: TurnState, packet: Packet): void {
  state.unknownPackets++;
  if (packet.mustUnderstand) state.mustUnderstandMissed = true;
}

function startTurn(state: TurnState, started: TurnStarted): void {
  state.started = started;
  state.turnId = started.turnId;
  for (const info of started.lanes) {
    const announced = laneOf(state, info.modelIndex);
    announced.modelId = info.modelId;
    announced.assistantMessageId = info.assistantMessageId;
    announced.displayName = info.displayName;
  }
}

function startCycle(lane: LaneState, packet: Packet, started: CycleStarted): void {
  lane.currentCycle = started.cycle;
  lane.cycles.push(
    create(CycleStateSchema, {
      cycle: started.cycle,
      attempt: started.attempt,
      modelId: started.modelId,
      firstSeq: packet.seq,
    }),
  );
}

function endCycle(lane: LaneState, packet: Packet, end: CycleEnd): void {
  let cycle = lane.cycles.findLast((candidate) => candidate.cycle === end.cycle);
  if (!cycle) {
    cycle = create(CycleStateSchema, { cycle: end.cycle, firstSeq: packet.seq });
    lane.cycles.push(cycle);
  }
  cycle.ended = true;
  cycle.finishReason = end.finishReason;
  if (end.usage) cycle.usage = end.usage;
  countUsage(lane);
}

function noteUsage(lane: LaneState, info: UsageInfo): void {
  const cycle = lane.cycles.findLast((candidate) => candidate.cycle === info.cycle);
  if (!cycle || cycle.ended || !info.usage) return;
  cycle.usage = info.usage;
  countUsage(lane);
}

function endLane(lane: LaneState, end: LaneEnd): void {
  lane.end = end;
  if (end.modelId) lane.modelId = end.modelId;
  if (end.usage) lane.usage = end.usage;
}

function appendArguments(lane: LaneState, packet: Packet, callId: string, raw: string): void {
  const call = findCall(lane, callId);
  if (!call) return;
  call.tool.argumentsJson += raw;
  call.block.lastSeq = packet.seq;
}

function setReady(lane: LaneState, packet: Packet, ready: ToolCallReady): void {
  const call = findCall(lane, ready.callId);
  if (!call) return;
  call.tool.ready = ready;
  // What was cut in the packet is whole in the deltas.
  if (!ready.truncated || call.tool.argumentsJson === "") call.tool.argumentsJson = ready.argumentsJson;
  call.block.lastSeq = packet.seq;
}

function setResult(lane: LaneState, packet: Packet, result: ToolCallResult): void {
  const call = findCall(lane, result.callId);
  if (!call || call.tool.result) return; // exactly one: the first holds
  call.tool.result = result;
  call.block.lastSeq = packet.seq;
}

function updateAgent(
  lane: LaneState,
  packet: Packet,
  update: (agent: { task: string; repo: string; thinking: string; answer: string }) => void,
): void {
  const index = findBlock(lane, packet.placement, "agent");
  const block =
    lane.blocks[index] ?? openBlock(lane, packet, { case: "agent", value: create(AgentBlockSchema) });
  if (block.block.case !== "agent") return;
  update(block.block.value);
  block.lastSeq = packet.seq;
}

function addStatus(statuses: StatusUpdate[], status: StatusUpdate): void {
  const same =
    status.statusId === "" ? -1 : statuses.findIndex((known) => known.statusId === status.statusId);
  if (same >= 0) {
    statuses[same] = status;
    return;
  }
  statuses.push(status);
  if (statuses.length > MAX_STATUSES) statuses.shift();
}

function addSources(lane: LaneState, info: SourceInfo): void {
  lane.sources.push(info);
}

function addFile(lane: LaneState, info: FileInfo): void {
  const file = info.file;
  if (!file || lane.files.some((known) => known.fileId === file.fileId)) return;
  lane.files.push(file);
}

function addEmbed(lane: LaneState, embed: EmbedInfo): void {
  const same = lane.embeds.findIndex((known) => known.embedId === embed.embedId);
  if (embed.replace && same >= 0) lane.embeds[same] = embed;
  else lane.embeds.push(embed);
}

function addExtension(state: TurnState, extension: ExtensionPacket): void {
  if (!extension.transient) state.extensions.push(extension);
}

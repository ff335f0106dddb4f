/**
 * Where packets belong. A lane counts the blocks it really opens: each reasoning, narration and answer block takes the
 * next index, the calls of a step share the one after it. An index is never used twice, also not after a reset.
 *
 * Owns: the next index of a lane. Does not own: what is open (decode, fold).
 */
import type { TurnState } from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import type { Packet, Placement } from "../../gen/turnwire/packet/v1/packet_pb.js";

/** The counter of one lane, or of an agent nested in one call of a lane. Owned by whoever runs the lane. */
export interface LanePlacement {
  readonly modelIndex: number;
  /** Set for an agent's own blocks: the call they are shown in. They count sub_turn_index instead of turn_index. */
  readonly parent: Placement | undefined;
  /** The index that the next block takes. */
  next: number;
}

/** The calls of one step: one index, tabs by first appearance. */
export interface CallGroup {
  readonly index: number;
  /** How many calls have a tab. */
  tabs: number;
}

/** A lane's counter, at its beginning. */
export function lanePlacement(modelIndex: number): LanePlacement {
  return { modelIndex, parent: undefined, next: 0 };
}

/** The counter of an agent that runs inside `call`. An agent's agent is shown inside the outer one's call. */
export function agentPlacement(call: Placement): LanePlacement {
  return { modelIndex: call.modelIndex ?? 0, parent: call, next: 0 };
}

/** The counter of a lane that goes on from what its log holds: one more than the highest index in use. */
export function resumeLanePlacement(state: TurnState, modelIndex: number): LanePlacement {
  const blocks = state.lanes.find((lane) => lane.modelIndex === modelIndex)?.blocks ?? [];
  let next = 0;
  for (const block of blocks) next = Math.max(next, (block.placement?.turnIndex ?? 0) + 1);
  return { modelIndex, parent: undefined, next };
}

/** The placement of a new reasoning, narration, answer, plan or report block. */
export function nextBlock(lane: LanePlacement): Placement {
  return at(lane, lane.next++, 0);
}

/** Opens the group of a step's calls: takes the next index. */
export function nextCallGroup(lane: LanePlacement): CallGroup {
  return { index: lane.next++, tabs: 0 };
}

/** The placement of the group's next call. */
export function nextCall(lane: LanePlacement, group: CallGroup): Placement {
  return at(lane, group.index, group.tabs++);
}

/** The placement of what belongs to the group as a whole (TopLevelBranching). */
export function groupPlacement(lane: LanePlacement, group: CallGroup): Placement {
  return at(lane, group.index, 0);
}

/** The placement of packets that belong to a lane and to none of its blocks (cycles, lane end, usage, status). */
export function lanePlacementOf(modelIndex: number): Placement {
  return placementOf(0, 0, undefined, modelIndex, undefined);
}

/** The placement of packets that belong to the turn (start, stop, title, waits). */
export function turnPlacement(): Placement {
  return placementOf(0, 0, undefined, undefined, undefined);
}

/**
 * A tool's packet at its place in the turn. Tools place packets relative to their call: no placement or none of its sub
 * indices = at the call; sub_turn_index and sub_tab_index stay, unless the call is nested itself: then its own hold.
 * The tool's turn, tab, model, seq and time are not believed.
 */
export function placeToolPacket(inner: Packet, call: Placement): Packet {
  const own = inner.placement;
  const placement =
    call.subTurnIndex !== undefined || own?.subTurnIndex === undefined
      ? call
      : placementOf(call.turnIndex, call.tabIndex, own.subTurnIndex, call.modelIndex, own.subTabIndex);
  return { ...inner, seq: 0, tMs: 0, placement };
}

/**
 * Whether a tool peer may send this payload: the tool families, agents, text of an agent's own, and what stands beside
 * the answer. Starts, results and ends of calls, cycles, lanes and turns are the orchestrator's alone.
 */
export function isToolPayload(inner: Packet): boolean {
  return inner.payload.case !== undefined && TOOL_PAYLOADS.has(inner.payload.case);
}

const TOOL_PAYLOADS: ReadonlySet<string> = new Set<NonNullable<Packet["payload"]["case"]>>([
  "pythonToolStart",
  "pythonToolDelta",
  "bashToolStart",
  "bashToolDelta",
  "customToolStart",
  "customToolArgs",
  "customToolDelta",
  "searchToolStart",
  "searchToolFilterDelta",
  "searchToolQueriesDelta",
  "searchToolDocumentsDelta",
  "openUrlStart",
  "openUrlUrls",
  "openUrlDocuments",
  "imageGenerationStart",
  "imageGenerationHeartbeat",
  "imageGenerationFinal",
  "fileReaderStart",
  "fileReaderResult",
  "memoryToolStart",
  "memoryToolDelta",
  "memoryToolNoAccess",
  "codingAgentStart",
  "codingAgentThinkingDelta",
  "codingAgentFinal",
  "researchAgentStart",
  "intermediateReportStart",
  "intermediateReportDelta",
  "intermediateReportCitedDocs",
  "statusUpdate",
  "sourceInfo",
  "fileInfo",
  "embedInfo",
  "extension",
]);

/** True when both name the same place; absent and 0 differ. */
export function samePlacement(a: Placement | undefined, b: Placement | undefined): boolean {
  if (a === b) return true;
  if (!a || !b) return false;
  return (
    a.turnIndex === b.turnIndex &&
    a.tabIndex === b.tabIndex &&
    a.subTurnIndex === b.subTurnIndex &&
    a.modelIndex === b.modelIndex &&
    a.subTabIndex === b.subTabIndex
  );
}

function at(lane: LanePlacement, index: number, tab: number): Placement {
  const parent = lane.parent;
  if (!parent) return placementOf(index, tab, undefined, lane.modelIndex, undefined);
  return placementOf(parent.turnIndex, parent.tabIndex, index, lane.modelIndex, tab === 0 ? undefined : tab);
}

/** A placement by its five numbers. */
export function placementOf(
  turnIndex: number,
  tabIndex: number,
  subTurnIndex: number | undefined,
  modelIndex: number | undefined,
  subTabIndex: number | undefined,
): Placement {
  return {
    $typeName: "turnwire.packet.v1.Placement",
    turnIndex,
    tabIndex,
    subTurnIndex,
    modelIndex,
    subTabIndex,
  };
}

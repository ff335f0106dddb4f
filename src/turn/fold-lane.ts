/** What the fold does to one lane: finding and opening blocks, the lane's text, its citations. */
import { create } from "@bufbuild/protobuf";
import type {
  Block,
  LaneState,
  TextBlock,
  ToolBlock,
  TurnState,
} from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import {
  BlockSchema,
  BlockStatus,
  CitationSchema,
  LaneStateSchema,
  TextBlockSchema,
} from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import type { CitationInfo } from "../../gen/turnwire/packet/v1/answer_pb.js";
import { AnswerKind } from "../../gen/turnwire/packet/v1/answer_pb.js";
import type { Document } from "../../gen/turnwire/packet/v1/common_pb.js";
import { DocumentSchema } from "../../gen/turnwire/packet/v1/common_pb.js";
import type { CycleReset, SectionEnd } from "../../gen/turnwire/packet/v1/control_pb.js";
import type { Packet, Placement } from "../../gen/turnwire/packet/v1/packet_pb.js";
import { sumUsage } from "./packets.js";
import { samePlacement } from "./placement.js";

/** The block cases that hold text. */
export type TextCase = "reasoning" | "answer" | "researchPlan" | "report";

/** The lane of a model; made when it is not there yet. */
export function laneOf(state: TurnState, modelIndex: number): LaneState {
  for (const lane of state.lanes) if (lane.modelIndex === modelIndex) return lane;
  const lane = create(LaneStateSchema, { modelIndex });
  state.lanes.push(lane);
  state.lanes.sort((a, b) => a.modelIndex - b.modelIndex);
  return lane;
}

/**
 * Whether a block stands before a place, and with it every older one: blocks are opened in the order of their turn index
 * (placement.ts), so whoever looks for a place from the end may stop here. Keeps the fold linear, however many blocks.
 */
export function isBefore(block: Block, placement: Placement | undefined): boolean {
  return (block.placement?.turnIndex ?? 0) < (placement?.turnIndex ?? 0);
}

/** Index of the newest block of a kind at a place; -1 = none. */
export function findBlock(
  lane: LaneState,
  placement: Placement | undefined,
  kind: Block["block"]["case"],
): number {
  for (let i = lane.blocks.length - 1; i >= 0; i--) {
    const block = lane.blocks[i]!;
    if (isBefore(block, placement)) break;
    if (block.block.case === kind && samePlacement(block.placement, placement)) return i;
  }
  return -1;
}

/** The newest call with this id. */
export function findCall(lane: LaneState, callId: string): { block: Block; tool: ToolBlock } | undefined {
  for (let i = lane.blocks.length - 1; i >= 0; i--) {
    const block = lane.blocks[i]!;
    if (block.block.case === "tool" && block.block.value.call?.callId === callId) {
      return { block, tool: block.block.value };
    }
  }
  return undefined;
}

/** Opens a block at the packet's place. */
export function openBlock(lane: LaneState, packet: Packet, content: Block["block"]): Block {
  const block = create(BlockSchema, {
    placement: packet.placement,
    firstSeq: packet.seq,
    lastSeq: packet.seq,
    status: BlockStatus.OPEN,
    cycle: lane.currentCycle,
  });
  block.block = content;
  lane.blocks.push(block);
  return block;
}

/** Opens a text block, or finds the one that is there. */
export function openText(lane: LaneState, packet: Packet, kind: TextCase): { block: Block; text: TextBlock } {
  const index = findBlock(lane, packet.placement, kind);
  if (index >= 0) {
    const block = lane.blocks[index]!;
    return { block, text: block.block.value as TextBlock };
  }
  const text = create(TextBlockSchema);
  return { block: openBlock(lane, packet, { case: kind, value: text }), text };
}

/** Appends to the answer block at the packet's place and to the lane's text. Text is never lost: a missing block is opened. */
export function appendAnswer(lane: LaneState, packet: Packet, content: string): void {
  let countedLater = false;
  for (let i = lane.blocks.length - 1; i >= 0; i--) {
    const block = lane.blocks[i]!;
    if (isBefore(block, packet.placement)) break;
    if (block.block.case !== "answer") continue;
    if (samePlacement(block.placement, packet.placement)) {
      block.block.value.text += content;
      block.lastSeq = packet.seq;
      if (!isCounted(block)) return;
      if (countedLater) recomputeText(lane);
      else lane.text += content;
      return;
    }
    countedLater ||= isCounted(block);
  }
  const { block, text } = openText(lane, packet, "answer");
  text.text = content;
  if (isCounted(block)) lane.text += content;
}

/** Appends to another text block. */
export function appendText(lane: LaneState, packet: Packet, kind: TextCase, content: string): void {
  const { block, text } = openText(lane, packet, kind);
  text.text += content;
  block.lastSeq = packet.seq;
}

/** Whether a block's text is part of the lane's answer: top-level answer blocks that are not narration (yet). */
function isCounted(block: Block): boolean {
  return (
    block.block.case === "answer" &&
    block.status !== BlockStatus.DISCARDED &&
    block.block.value.kind !== AnswerKind.NARRATION &&
    block.placement?.subTurnIndex === undefined
  );
}

/** Makes the lane's text anew from its blocks. */
export function recomputeText(lane: LaneState): void {
  let text = "";
  for (const block of lane.blocks) if (isCounted(block)) text += (block.block.value as TextBlock).text;
  lane.text = text;
}

/** The whole answer becomes `content`: its last block holds it, its other blocks are discarded. */
export function replaceAnswer(lane: LaneState, packet: Packet, content: string, truncated: boolean): void {
  const counted = lane.blocks.filter(isCounted);
  const last = counted.pop() ?? openText(lane, packet, "answer").block;
  for (const block of counted) block.status = BlockStatus.DISCARDED;
  const text = last.block.value as TextBlock;
  text.text = content;
  text.kind = AnswerKind.ANSWER;
  text.truncated = truncated;
  last.status = BlockStatus.DONE;
  last.lastSeq = packet.seq;
  recomputeText(lane);
  pruneCitations(lane);
}

/** Discards what the cycle has shown from a seq on, but the calls that are kept and what is nested in them. */
export function resetCycle(lane: LaneState, reset: CycleReset): void {
  const kept = lane.blocks.filter(
    (block) =>
      block.block.case === "tool" && reset.keptCallIds.includes(block.block.value.call?.callId ?? ""),
  );
  const isKept = (block: Block): boolean =>
    kept.some(
      (call) =>
        call === block ||
        (block.placement?.subTurnIndex !== undefined &&
          call.placement?.turnIndex === block.placement.turnIndex &&
          call.placement.tabIndex === block.placement.tabIndex),
    );
  for (const block of lane.blocks) {
    if (block.cycle === reset.cycle && block.firstSeq >= reset.discardFromSeq && !isKept(block)) {
      block.status = BlockStatus.DISCARDED;
    }
  }
  const cycle = lane.cycles.findLast((candidate) => candidate.cycle === reset.cycle);
  if (cycle) cycle.reset = true;
  recomputeText(lane);
  pruneCitations(lane);
}

/**
 * The end of a section. A call whose result is there ends with everything at its place (an agent, its report); before
 * that the innermost open section ends.
 */
export function endSection(lane: LaneState, packet: Packet, end: SectionEnd): void {
  const open: Block[] = [];
  for (let i = lane.blocks.length - 1; i >= 0; i--) {
    const block = lane.blocks[i]!;
    if (isBefore(block, packet.placement)) break;
    const isOpen = block.status === BlockStatus.OPEN && isSection(block);
    if (isOpen && samePlacement(block.placement, packet.placement)) open.unshift(block);
  }
  const call = open.find((block) => block.block.case === "tool" && block.block.value.result);
  const ending = call ? open : open.slice(-1);
  for (const block of ending) {
    block.status = BlockStatus.DONE;
    block.lastSeq = packet.seq;
    if (block.block.case === "tool" || block.block.case === "agent") block.block.value.end = end;
  }
}

function isSection(block: Block): boolean {
  const kind = block.block.case;
  return kind === "tool" || kind === "agent" || kind === "report" || kind === "researchPlan";
}

/** Records a citation once per number, with its document where the lane has it. */
export function addCitation(lane: LaneState, info: CitationInfo): void {
  if (lane.citations.some((citation) => citation.number === info.citationNumber)) return;
  lane.citations.push(
    create(CitationSchema, {
      number: info.citationNumber,
      document: findDocument(lane, info) ?? create(DocumentSchema, { documentId: info.documentId }),
      startChar: info.startChar,
      endChar: info.endChar,
    }),
  );
}

/** The document a citation names: the one that has its number, else any with its id. */
function findDocument(lane: LaneState, info: CitationInfo): Document | undefined {
  let byId: Document | undefined;
  for (const document of documentsOf(lane)) {
    if (document.documentId !== info.documentId) continue;
    if (document.citationNumber === info.citationNumber) return document;
    byId ??= document;
  }
  return byId;
}

/** Every document a lane has shown. */
export function* documentsOf(lane: LaneState): Generator<Document, void, undefined> {
  for (const { block } of lane.blocks) {
    if (block.case === "tool") {
      yield* block.value.result?.documents ?? [];
      for (const detail of block.value.detail) {
        if (detail.payload.case === "searchToolDocumentsDelta") yield* detail.payload.value.documents;
        else if (detail.payload.case === "openUrlDocuments") yield* detail.payload.value.documents;
      }
    } else if (block.case === "answer" || block.case === "report") {
      yield* block.value.documents;
    }
  }
  for (const source of lane.sources) yield* source.documents;
}

/** Drops the citations whose marker is gone with a text that was discarded. */
function pruneCitations(lane: LaneState): void {
  lane.citations = lane.citations.filter(({ number }) =>
    lane.blocks.some(
      ({ block, status }) =>
        block.case === "answer" &&
        status !== BlockStatus.DISCARDED &&
        block.value.text.includes(`[${number}]`),
    ),
  );
}

/** The lane's usage as far as its cycles told it. A cycle's figures are for all its attempts: the newest hold. */
export function countUsage(lane: LaneState): void {
  if (lane.end?.usage) return;
  const usageOf = new Map(lane.cycles.flatMap(({ cycle, usage }) => (usage ? [[cycle, usage]] : [])));
  lane.usage = sumUsage(usageOf.values());
}

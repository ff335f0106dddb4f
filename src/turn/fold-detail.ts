/**
 * What a call shows besides its arguments and result, kept with the call and bounded: output that arrives in pieces
 * becomes one packet, so that the state does not depend on how it was cut.
 */
import type { Block, LaneState, ToolBlock } from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import type { Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import { CustomToolResponseType } from "../../gen/turnwire/packet/v1/tools_pb.js";
import { isBefore } from "./fold-lane.js";
import { isHighSurrogate, isLowSurrogate } from "./packets.js";
import { samePlacement } from "./placement.js";

/** Packets kept per call; what comes after them is not kept. */
export const MAX_DETAIL_PACKETS = 64;
/** Characters kept of one merged output (standard output, standard error, a tool's text). */
export const MAX_DETAIL_CHARS = 128 * 1024;
/** Items kept of one merged list (documents, queries, urls). */
export const MAX_DETAIL_ITEMS = 256;

/** Keeps a tool's packet with its call: the call at its place, else the call it is nested in. */
export function addDetail(lane: LaneState, packet: Packet): void {
  const block = callAt(lane, packet);
  if (!block) return;
  block.lastSeq = packet.seq;
  const { detail } = block.block.value;
  const last = detail.at(-1);
  if (last && samePlacement(last.placement, packet.placement) && merge(last, packet)) return;
  if (detail.length < MAX_DETAIL_PACKETS) detail.push(ownCopy(packet));
}

type CallBlock = Block & { block: { case: "tool"; value: ToolBlock } };

function callAt(lane: LaneState, packet: Packet): CallBlock | undefined {
  const place = packet.placement;
  let outer: Block | undefined;
  for (let i = lane.blocks.length - 1; i >= 0; i--) {
    const block = lane.blocks[i]!;
    if (isBefore(block, place)) break;
    if (block.block.case !== "tool") continue;
    if (samePlacement(block.placement, place)) return block as CallBlock;
    const isOuter =
      block.placement?.subTurnIndex === undefined &&
      block.placement?.turnIndex === place?.turnIndex &&
      block.placement?.tabIndex === place?.tabIndex;
    if (isOuter) outer ??= block;
  }
  return outer as CallBlock | undefined;
}

/** A copy whose merged fields may be written: the caller keeps its packet as it was. */
function ownCopy(packet: Packet): Packet {
  const copy: Packet = {
    ...packet,
    payload: { ...packet.payload, value: { ...packet.payload.value } } as never,
  };
  const payload = copy.payload;
  switch (payload.case) {
    case "bashToolDelta":
    case "pythonToolDelta":
      payload.value.stdout = appendBounded("", payload.value.stdout);
      payload.value.stderr = appendBounded("", payload.value.stderr);
      break;
    case "customToolDelta":
      payload.value.data = appendBounded("", payload.value.data);
      break;
    default:
  }
  return copy;
}

/** Merges a packet into the one before it when both are pieces of one thing. */
function merge(into: Packet, packet: Packet): boolean {
  const [to, from] = [into.payload, packet.payload];
  if (to.case === "bashToolDelta" && from.case === "bashToolDelta") {
    to.value.stdout = appendBounded(to.value.stdout, from.value.stdout);
    to.value.stderr = appendBounded(to.value.stderr, from.value.stderr);
    to.value.exitCode = from.value.exitCode ?? to.value.exitCode;
    to.value.timedOut ||= from.value.timedOut;
    return true;
  }
  if (to.case === "pythonToolDelta" && from.case === "pythonToolDelta") {
    to.value.stdout = appendBounded(to.value.stdout, from.value.stdout);
    to.value.stderr = appendBounded(to.value.stderr, from.value.stderr);
    to.value.fileIds = union(to.value.fileIds, from.value.fileIds);
    return true;
  }
  if (to.case === "searchToolQueriesDelta" && from.case === "searchToolQueriesDelta") {
    to.value.queries = union(to.value.queries, from.value.queries);
    return true;
  }
  if (to.case === "openUrlUrls" && from.case === "openUrlUrls") {
    to.value.urls = union(to.value.urls, from.value.urls);
    return true;
  }
  if (
    (to.case === "searchToolDocumentsDelta" && from.case === "searchToolDocumentsDelta") ||
    (to.case === "openUrlDocuments" && from.case === "openUrlDocuments")
  ) {
    to.value.documents = [...to.value.documents, ...from.value.documents].slice(0, MAX_DETAIL_ITEMS);
    return true;
  }
  if (to.case === "customToolDelta" && from.case === "customToolDelta") {
    const isText = (delta: typeof to.value): boolean =>
      delta.responseType === CustomToolResponseType.TEXT && !delta.error && !delta.dataFileId;
    if (!isText(to.value) || !isText(from.value)) return false;
    to.value.data = appendBounded(to.value.data, from.value.data);
    to.value.fileIds = union(to.value.fileIds, from.value.fileIds);
    to.value.truncated ||= from.value.truncated;
    return true;
  }
  return false;
}

function union(a: readonly string[], b: readonly string[]): string[] {
  return [...new Set([...a, ...b])].slice(0, MAX_DETAIL_ITEMS);
}

/** The first MAX_DETAIL_CHARS of both joined, one more where a pair would be cut: the same however the text was cut. */
function appendBounded(text: string, more: string): string {
  const room = MAX_DETAIL_CHARS - text.length;
  if (room <= 0 || more === "") return text;
  if (more.length <= room) return text + more;
  const cutsPair = isHighSurrogate(more.charCodeAt(room - 1)) && isLowSurrogate(more.charCodeAt(room));
  return text + more.slice(0, cutsPair ? room + 1 : room);
}

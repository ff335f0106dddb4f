import { toJsonString } from "@bufbuild/protobuf";
import { PacketSchema, type Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";

/** A packet as proto3 JSON, in one line. */
export function packetJson(packet: Packet): string {
  return toJsonString(PacketSchema, packet);
}

/** A packet as a line for people: seq, time, place (lane.block.tab), kind, content; cut to `columns` if given. */
export function packetLine(packet: Packet, columns?: number): string {
  const kind = packet.payload.case ?? "unknown";
  const json = JSON.parse(packetJson(packet)) as Record<string, unknown>;
  const content = JSON.stringify(json[kind] ?? {});
  const line = [
    String(packet.seq).padStart(5),
    `+${packet.tMs}ms`.padStart(9),
    place(packet).padEnd(7),
    kind,
    content === "{}" ? "" : content,
  ]
    .join("  ")
    .trimEnd();
  return columns !== undefined && line.length > columns
    ? `${line.slice(0, Math.max(1, columns - 3))}...`
    : line;
}

function place({ placement }: Packet): string {
  if (!placement || placement.modelIndex === undefined) return "turn";
  const parts = [placement.modelIndex, placement.turnIndex, placement.tabIndex];
  if (placement.subTurnIndex !== undefined) parts.push(placement.subTurnIndex);
  return parts.join(".");
}

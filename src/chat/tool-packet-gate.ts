/**
 * What a tool peer may show in its call. Peers are written by anyone, and a packet out of order would break the turn of
 * every reader (I15): what opens a block may come once, what belongs to a block only while it is open, and never an empty
 * or overlong piece of text. One gate per call.
 */
import type { Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import { byteLength, MAX_TEXT_BYTES } from "../turn/packets.js";
import { isToolPayload } from "../turn/placement.js";

type ToolBlock = "agent" | "report";

export class ToolPacketGate {
  readonly #open = new Set<ToolBlock>();

  /** False: the packet must not be shown. */
  admits(packet: Packet): boolean {
    if (!isToolPayload(packet)) return false;
    const { payload, placement } = packet;
    // The blocks of a call stand at its own place; there is no end of a block inside it that a tool could send.
    const isAtCall = placement?.subTurnIndex === undefined;
    switch (payload.case) {
      case "researchAgentStart":
      case "codingAgentStart":
        return isAtCall && this.#opens("agent");
      case "intermediateReportStart":
        return isAtCall && this.#opens("report");
      case "codingAgentFinal":
        return isAtCall && this.#open.has("agent");
      case "codingAgentThinkingDelta":
        return isAtCall && this.#open.has("agent") && isPiece(payload.value.content);
      case "intermediateReportCitedDocs":
        return isAtCall && this.#open.has("report");
      case "intermediateReportDelta":
        return isAtCall && this.#open.has("report") && isPiece(payload.value.content);
      case "pythonToolDelta":
      case "bashToolDelta":
        return fits(payload.value.stdout) && fits(payload.value.stderr);
      default:
        return true;
    }
  }

  #opens(block: ToolBlock): boolean {
    if (this.#open.has(block)) return false;
    this.#open.add(block);
    return true;
  }
}

function isPiece(text: string): boolean {
  return text !== "" && fits(text);
}

function fits(text: string): boolean {
  return text.length * 3 <= MAX_TEXT_BYTES || byteLength(text) <= MAX_TEXT_BYTES;
}

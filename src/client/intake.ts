/** Reads response messages: which packets are new, whether any are missing, and the parts of a snapshot. Pure. */
import { fromBinary } from "@bufbuild/protobuf";
import type { SnapshotPart } from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import { TurnStateSchema, type TurnState } from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import type { Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import { clientError } from "./errors.js";
import type { Ending } from "./resume-policy.js";

/** What one message's packets come to, given the last seq that is held. */
export interface Sifted {
  /** The packets that follow the last seq without a gap, in order: each is shown exactly once. */
  readonly fresh: readonly Packet[];
  /** The terminal packet is among the fresh ones; nothing after it counts. */
  readonly terminal: boolean;
  /** Why the stream cannot be read on from here, if so. The fresh packets are good all the same. */
  readonly trouble?: Extract<Ending, { kind: "gap" | "misunderstood" }>;
}

/** Sorts packets out: repeated ones are dropped, a gap ends the reading, heartbeats only confirm the head. */
export function siftPackets(packets: readonly Packet[], lastSeq: number): Sifted {
  const fresh: Packet[] = [];
  let last = lastSeq;
  for (const packet of packets) {
    if (packet.seq === 0) {
      const head = packet.payload.case === "chatHeartbeat" ? packet.payload.value.headSeq : 0;
      if (head > last) return { fresh, terminal: false, trouble: gap(last, head) };
      continue;
    }
    if (packet.seq <= last) continue;
    if (packet.seq > last + 1) return { fresh, terminal: false, trouble: gap(last, packet.seq) };
    fresh.push(packet);
    last = packet.seq;
    if (packet.payload.case === "overallStop") return { fresh, terminal: true };
    if (packet.mustUnderstand && packet.payload.case === undefined) {
      return { fresh, terminal: false, trouble: { kind: "misunderstood", seq: packet.seq } };
    }
  }
  return { fresh, terminal: false };
}

function gap(last: number, gotSeq: number): Extract<Ending, { kind: "gap" }> {
  return { kind: "gap", expectedSeq: last + 1, gotSeq };
}

/** A turn is at most 32 MiB; its state cannot need more than twice that. */
const MAX_SNAPSHOT_BYTES = 64 * 1024 * 1024;

/** Joins the parts of one snapshot. One per attempt: parts of a broken stream are worth nothing to the next. */
export class SnapshotJoiner {
  readonly #parts: Uint8Array[] = [];
  #bytes = 0;

  /** Takes a part; the state once the last part is here. Throws when it is too large or cannot be decoded. */
  take(part: SnapshotPart): { readonly seq: number; readonly state: TurnState } | undefined {
    this.#parts.push(part.data);
    this.#bytes += part.data.byteLength;
    if (this.#bytes > MAX_SNAPSHOT_BYTES)
      throw clientError(ErrorCode.SIZE_LIMIT, "the snapshot is too large");
    if (!part.last) return undefined;
    const joined = new Uint8Array(this.#bytes);
    let offset = 0;
    for (const data of this.#parts.splice(0)) {
      joined.set(data, offset);
      offset += data.byteLength;
    }
    this.#bytes = 0;
    try {
      return { seq: part.seq, state: fromBinary(TurnStateSchema, joined) };
    } catch (cause) {
      throw clientError(ErrorCode.INTERNAL, "the snapshot cannot be decoded", cause);
    }
  }
}

import { TurnError } from "../lib/errors.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import type { LoggedEntry } from "./replay-log.js";

/** Tag of field 1, length-delimited: the only field of a PacketBatch. */
const PACKETS_TAG = 0x0a;

/**
 * The entry without its packets up to `afterSeq`. Only the framing of the batch is read, no packet is decoded; the result
 * shares the entry's bytes. An entry that lies wholly beyond `afterSeq` is returned as it is. Throws INTERNAL when the
 * bytes are not a PacketBatch.
 */
export function trimEntry(entry: LoggedEntry, afterSeq: number): LoggedEntry {
  const skip = Math.min(afterSeq, entry.lastSeq) - entry.firstSeq + 1;
  if (skip <= 0) return entry;
  let offset = 0;
  for (let packet = 0; packet < skip; packet += 1) offset = endOfPacket(entry.batch, offset);
  return { ...entry, firstSeq: entry.firstSeq + skip, batch: entry.batch.subarray(offset) };
}

/** How many packets a batch holds, by its framing. Throws INTERNAL when the bytes are not a PacketBatch. */
export function countPackets(batch: Uint8Array): number {
  let count = 0;
  for (let offset = 0; offset < batch.length; count += 1) offset = endOfPacket(batch, offset);
  return count;
}

function endOfPacket(batch: Uint8Array, start: number): number {
  if (batch[start] !== PACKETS_TAG) throw malformed("unexpected tag");
  let offset = start + 1;
  let length = 0;
  for (let shift = 0; ; shift += 7) {
    const byte = batch[offset++];
    if (byte === undefined || shift > 28) throw malformed("broken length");
    length += (byte & 0x7f) * 2 ** shift;
    if (byte < 0x80) break;
  }
  const end = offset + length;
  if (end > batch.length) throw malformed("cut short");
  return end;
}

function malformed(what: string): TurnError {
  return new TurnError(ErrorCode.INTERNAL, { cause: new Error(`a log entry is not a PacketBatch: ${what}`) });
}

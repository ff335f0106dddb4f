/**
 * PacketBatch framing on bytes. A batch is `repeated Packet packets = 1`: each packet is the tag 0x0a, its length and its
 * bytes, so batches are put together, cut and counted without decoding what is in them.
 */
import { toBinary } from "@bufbuild/protobuf";
import type { Packet, Placement } from "../../gen/turnwire/packet/v1/packet_pb.js";
import { PacketSchema } from "../../gen/turnwire/packet/v1/packet_pb.js";

/** Largest encoding of one packet, bytes. */
export const MAX_PACKET_BYTES = 128 * 1024;
/** Largest encoding of one batch, bytes. */
export const MAX_BATCH_BYTES = 256 * 1024;

const PACKETS_TAG = 0x0a;

/** The binary encoding of one packet. Text deltas take a short way that gives the same bytes as the generic encoder. */
export function encodePacket(packet: Packet): Uint8Array {
  const text = plainText(packet);
  if (text === undefined) return toBinary(PacketSchema, packet);
  const out = new Uint8Array(MAX_HEAD_BYTES + text.length * 3);
  const { start, end } = encodeTextDelta(packet, text, out, MAX_HEAD_BYTES);
  return out.subarray(start, end);
}

/** Encodes packets one after the other into one batch: the same bytes as `batchOf(packets.map(encodePacket))`. */
export class BatchEncoder {
  #out = new Uint8Array(1024);
  #length = 0;

  /** Bytes of the batch so far. */
  get byteLength(): number {
    return this.#length;
  }

  /** Adds a packet; returns the bytes it takes in the batch. */
  add(packet: Packet): number {
    const before = this.#length;
    const text = plainText(packet);
    if (text === undefined) this.#addEncoded(toBinary(PacketSchema, packet));
    else this.#addText(packet, text);
    return this.#length - before;
  }

  /** The batch, and begins the next one. */
  take(): Uint8Array {
    const batch = this.#out.slice(0, this.#length);
    this.#length = 0;
    return batch;
  }

  #addText(packet: Packet, text: string): void {
    const at = this.#length;
    const out = this.#reserve(MAX_HEAD_BYTES + text.length * 3);
    const { start, end } = encodeTextDelta(packet, text, out, at + MAX_HEAD_BYTES);
    out[at] = PACKETS_TAG;
    const bodyAt = writeVarint(out, at + 1, end - start);
    out.copyWithin(bodyAt, start, end);
    this.#length = bodyAt + end - start;
  }

  #addEncoded(bytes: Uint8Array): void {
    const out = this.#reserve(framedSize(bytes.length));
    out[this.#length] = PACKETS_TAG;
    const bodyAt = writeVarint(out, this.#length + 1, bytes.length);
    out.set(bytes, bodyAt);
    this.#length = bodyAt + bytes.length;
  }

  #reserve(bytes: number): Uint8Array {
    const needed = this.#length + bytes;
    if (needed <= this.#out.length) return this.#out;
    const grown = new Uint8Array(Math.max(needed, this.#out.length * 2));
    grown.set(this.#out.subarray(0, this.#length));
    this.#out = grown;
    return grown;
  }
}

/** One PacketBatch of packets that are encoded already. */
export function batchOf(encodedPackets: readonly Uint8Array[]): Uint8Array {
  let size = 0;
  for (const bytes of encodedPackets) size += framedSize(bytes.length);
  const batch = new Uint8Array(size);
  let at = 0;
  for (const bytes of encodedPackets) {
    batch[at++] = PACKETS_TAG;
    at = writeVarint(batch, at, bytes.length);
    batch.set(bytes, at);
    at += bytes.length;
  }
  return batch;
}

/** Bytes that a packet of `length` encoded bytes takes in a batch. */
export function framedSize(length: number): number {
  return 1 + varintSize(length) + length;
}

/**
 * The batch without its first `count` packets, as a view on the same bytes. Empty when it has no more than `count`.
 * Throws a RangeError when the bytes are not a batch.
 */
export function trimBatch(batch: Uint8Array, count: number): Uint8Array {
  let at = 0;
  for (let i = 0; i < count && at < batch.length; i++) at = frameEnd(batch, at);
  return batch.subarray(at);
}

/** How many packets a batch holds. Throws a RangeError when the bytes are not a batch. */
export function countPackets(batch: Uint8Array): number {
  let count = 0;
  for (let at = 0; at < batch.length; count++) at = frameEnd(batch, at);
  return count;
}

/** The encodings of a batch's packets, in order, as views on the batch. Throws a RangeError when the bytes are not a batch. */
export function* packetsOf(batch: Uint8Array): Generator<Uint8Array, void, undefined> {
  for (let at = 0; at < batch.length;) {
    const end = frameEnd(batch, at);
    const start = readVarint(batch, at + 1).end;
    yield batch.subarray(start, end);
    at = end;
  }
}

function frameEnd(batch: Uint8Array, at: number): number {
  if (batch[at] !== PACKETS_TAG) throw new RangeError(`not a packet batch: tag ${batch[at]} at byte ${at}`);
  const length = readVarint(batch, at + 1);
  const end = length.end + length.value;
  if (end > batch.length) throw new RangeError(`not a packet batch: ${end - batch.length} bytes are missing`);
  return end;
}

function readVarint(bytes: Uint8Array, at: number): { value: number; end: number } {
  let value = 0;
  for (let i = 0; i < 5; i++) {
    const byte = bytes[at + i];
    if (byte === undefined) break;
    value += (byte & 0x7f) * 2 ** (7 * i);
    if (byte < 0x80) return { value, end: at + i + 1 };
  }
  throw new RangeError(`not a packet batch: bad length at byte ${at}`);
}

function varintSize(value: number): number {
  if (value < 0x80) return 1;
  if (value < 0x4000) return 2;
  if (value < 0x20_0000) return 3;
  return value < 0x1000_0000 ? 4 : 5;
}

function writeVarint(bytes: Uint8Array, start: number, value: number): number {
  let at = start;
  let rest = value;
  while (rest > 0x7f) {
    bytes[at++] = (rest & 0x7f) | 0x80;
    rest >>>= 7;
  }
  bytes[at++] = rest;
  return at;
}

const encoder = new TextEncoder();

/** Tags of the two payloads that are one string in field 1. */
const ANSWER_DELTA_TAG = 0x2a;
const REASONING_DELTA_TAG = 0x32;
/** Room for the packet's frame and header fields, the payload's tag and lengths: 62 bytes at most. */
const MAX_HEAD_BYTES = 64;

/** The text of a delta that has nothing but a text; undefined = the generic encoder's. */
function plainText(packet: Packet): string | undefined {
  const { payload, placement } = packet;
  if (packet.$unknown || packet.mustUnderstand || placement?.$unknown) return undefined;
  if (payload.case !== "agentResponseDelta" && payload.case !== "reasoningDelta") return undefined;
  if (payload.value.$unknown) return undefined;
  const text = payload.case === "agentResponseDelta" ? payload.value.content : payload.value.reasoning;
  return text === "" ? undefined : text;
}

/**
 * Encodes a delta of nothing but `text`: the text at `textAt`, everything before it right in front of it. Needs
 * MAX_HEAD_BYTES before and three bytes per UTF-16 unit behind `textAt`. Returns where the packet begins and ends.
 */
function encodeTextDelta(
  packet: Packet,
  text: string,
  out: Uint8Array,
  textAt: number,
): { start: number; end: number } {
  const { placement } = packet;
  const written = encodeText(text, out, textAt);
  const innerSize = 1 + varintSize(written) + written;
  const placementSize = placement ? sizeOfPlacement(placement) : 0;
  let headSize = 1 + varintSize(innerSize) + 1 + varintSize(written);
  if (packet.seq) headSize += 1 + varintSize(packet.seq);
  if (placement) headSize += 2 + placementSize;
  if (packet.tMs) headSize += 1 + varintSize(packet.tMs);

  const start = textAt - headSize;
  let at = start;
  if (packet.seq) {
    out[at++] = 0x08;
    at = writeVarint(out, at, packet.seq);
  }
  if (placement) {
    out[at++] = 0x12;
    out[at++] = placementSize;
    at = writePlacement(out, at, placement);
  }
  if (packet.tMs) {
    out[at++] = 0x18;
    at = writeVarint(out, at, packet.tMs);
  }
  out[at++] = packet.payload.case === "reasoningDelta" ? REASONING_DELTA_TAG : ANSWER_DELTA_TAG;
  at = writeVarint(out, at, innerSize);
  out[at++] = 0x0a;
  writeVarint(out, at, written);
  return { start, end: textAt + written };
}

/** Writes short ASCII texts byte by byte (the call into the encoder costs more than they do), others by the encoder. */
function encodeText(text: string, out: Uint8Array, at: number): number {
  if (text.length <= 32) {
    let i = 0;
    for (; i < text.length; i++) {
      const unit = text.charCodeAt(i);
      if (unit > 0x7f) break;
      out[at + i] = unit;
    }
    if (i === text.length) return i;
  }
  return encoder.encodeInto(text, out.subarray(at)).written;
}

function sizeOfPlacement(placement: Placement): number {
  let size = 0;
  if (placement.turnIndex) size += 1 + varintSize(placement.turnIndex);
  if (placement.tabIndex) size += 1 + varintSize(placement.tabIndex);
  if (placement.subTurnIndex !== undefined) size += 1 + varintSize(placement.subTurnIndex);
  if (placement.modelIndex !== undefined) size += 1 + varintSize(placement.modelIndex);
  if (placement.subTabIndex !== undefined) size += 1 + varintSize(placement.subTabIndex);
  return size;
}

function writePlacement(out: Uint8Array, start: number, placement: Placement): number {
  let at = start;
  if (placement.turnIndex) {
    out[at++] = 0x08;
    at = writeVarint(out, at, placement.turnIndex);
  }
  if (placement.tabIndex) {
    out[at++] = 0x10;
    at = writeVarint(out, at, placement.tabIndex);
  }
  if (placement.subTurnIndex !== undefined) {
    out[at++] = 0x18;
    at = writeVarint(out, at, placement.subTurnIndex);
  }
  if (placement.modelIndex !== undefined) {
    out[at++] = 0x20;
    at = writeVarint(out, at, placement.modelIndex);
  }
  if (placement.subTabIndex !== undefined) {
    out[at++] = 0x28;
    at = writeVarint(out, at, placement.subTabIndex);
  }
  return at;
}

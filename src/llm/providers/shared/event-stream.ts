/**
 * The binary event stream of AWS: length-prefixed messages with checksums, headers and a payload.
 * Owns the unfinished message of one response. E1 the messages do not depend on how the bytes were cut. E2 memory is at most
 * one message. E3 a message whose checksum is wrong ends the stream: after it no boundary can be trusted.
 *
 * Layout: total length (4), headers length (4), checksum of both (4), headers, payload, checksum of all before it (4).
 */
import { crc32 } from "node:zlib";
import { ErrorCode } from "../../../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../../../lib/errors.js";
import type { EventParser, TakeEvent } from "./event-parser.js";

/** Begins the name of an event that reports a failure; its type follows. */
export const EXCEPTION_PREFIX = "exception/";

const PRELUDE_BYTES = 12;
const CHECKSUM_BYTES = 4;

export class EventStreamParser implements EventParser {
  readonly #maxMessageBytes: number;
  /** What came of the next message, in the pieces in which it came. */
  #pieces: Uint8Array[] = [];
  #held = 0;
  /** Bytes without which there is nothing to do. */
  #needed = PRELUDE_BYTES;
  #overflowed = false;
  /** The headers of the last message: those of most that follow are the same bytes. */
  #headerBytes: Buffer = Buffer.alloc(0);
  #headers: ReadonlyMap<string, string> = new Map();

  constructor(maxMessageBytes: number) {
    this.#maxMessageBytes = maxMessageBytes;
  }

  get overflowed(): boolean {
    return this.#overflowed;
  }

  push(bytes: Uint8Array, take: TakeEvent): void {
    if (this.#overflowed) return;
    this.#pieces.push(bytes);
    this.#held += bytes.length;
    if (this.#held < this.#needed) return;
    const buffer = this.#pieces.length === 1 ? asBuffer(bytes) : Buffer.concat(this.#pieces, this.#held);
    let start = 0;
    this.#needed = PRELUDE_BYTES;
    while (buffer.length - start >= PRELUDE_BYTES) {
      const total = this.#messageLength(buffer, start);
      if (this.#overflowed) break;
      if (buffer.length - start < total) {
        this.#needed = total;
        break;
      }
      this.#takeMessage(buffer, start, total, take);
      start += total;
    }
    // A copy, so that a few bytes do not keep a whole read alive.
    const rest = this.#overflowed ? Buffer.alloc(0) : Buffer.from(buffer.subarray(start));
    this.#pieces = rest.length === 0 ? [] : [rest];
    this.#held = rest.length;
  }

  /** Half a message says nothing. */
  end(): void {
    this.#pieces = [];
    this.#held = 0;
  }

  #messageLength(buffer: Buffer, start: number): number {
    const total = buffer.readUInt32BE(start);
    const headers = buffer.readUInt32BE(start + 4);
    if (crc32(buffer.subarray(start, start + 8)) !== buffer.readUInt32BE(start + 8)) throw damaged();
    if (total < PRELUDE_BYTES + headers + CHECKSUM_BYTES) throw damaged();
    if (total > this.#maxMessageBytes) this.#overflowed = true;
    return total;
  }

  #takeMessage(buffer: Buffer, start: number, total: number, take: TakeEvent): void {
    const end = start + total - CHECKSUM_BYTES;
    if (crc32(buffer.subarray(start, end)) !== buffer.readUInt32BE(end)) throw damaged();
    const headersStart = start + PRELUDE_BYTES;
    const headersEnd = headersStart + buffer.readUInt32BE(start + 4);
    const headers = this.#headersOf(buffer, headersStart, headersEnd);
    const payload = buffer.toString("utf8", headersEnd, end);
    switch (headers.get(":message-type")) {
      case "exception":
        take(
          EXCEPTION_PREFIX + (headers.get(":exception-type") ?? ""),
          payload === "" ? "{}" : payload,
          true,
        );
        return;
      case "error": {
        const message = headers.get(":error-message") ?? "";
        take(EXCEPTION_PREFIX + (headers.get(":error-code") ?? ""), JSON.stringify({ message }), true);
        return;
      }
      default:
        take(headers.get(":event-type") ?? "", payload, true);
    }
  }

  #headersOf(buffer: Buffer, start: number, end: number): ReadonlyMap<string, string> {
    const known = this.#headerBytes;
    const same = known.length === end - start && known.compare(buffer, start, end) === 0;
    if (same) return this.#headers;
    this.#headers = readHeaders(buffer, start, end);
    this.#headerBytes = Buffer.from(buffer.subarray(start, end));
    return this.#headers;
  }
}

/** Bytes that a header value takes, by its type; a string (7) and a byte list (6) carry their length. */
const VALUE_BYTES: readonly number[] = [0, 0, 1, 2, 4, 8, -1, -1, 8, 16];
const STRING_TYPE = 7;

/** The headers whose values are strings; all that matter are. */
function readHeaders(buffer: Buffer, start: number, end: number): Map<string, string> {
  const headers = new Map<string, string>();
  let at = start;
  while (at < end) {
    const nameEnd = at + 1 + (buffer[at] ?? 0);
    const type = buffer[nameEnd] ?? 0;
    let valueStart = nameEnd + 1;
    let length = VALUE_BYTES[type];
    if (length === -1) {
      if (valueStart + 2 > end) throw damaged();
      length = buffer.readUInt16BE(valueStart);
      valueStart += 2;
    }
    if (length === undefined || valueStart + length > end) throw damaged();
    if (type === STRING_TYPE) {
      const name = buffer.toString("latin1", at + 1, nameEnd);
      headers.set(name, buffer.toString("utf8", valueStart, valueStart + length));
    }
    at = valueStart + length;
  }
  return headers;
}

function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
}

function damaged(): TurnError {
  return new TurnError(ErrorCode.UPSTREAM_MALFORMED, {
    message: "the model provider's event stream is damaged",
  });
}

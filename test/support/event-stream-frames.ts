/** Writes messages of the AWS event stream, as a server of Bedrock sends them. */
import { crc32 } from "node:zlib";

const STRING_TYPE = 7;

/** One message with string headers. */
export function eventStreamFrame(headers: Readonly<Record<string, string>>, payload: string): Buffer {
  const head = Buffer.concat(Object.entries(headers).map(([name, value]) => header(name, value)));
  const body = Buffer.from(payload);
  const prelude = Buffer.alloc(8);
  prelude.writeUInt32BE(8 + 4 + head.length + body.length + 4, 0);
  prelude.writeUInt32BE(head.length, 4);
  const message = Buffer.concat([prelude, checksum(prelude), head, body]);
  return Buffer.concat([message, checksum(message)]);
}

/** An event of Converse. */
export function converseEvent(type: string, payload: object): Buffer {
  const headers = { ":event-type": type, ":content-type": "application/json", ":message-type": "event" };
  return eventStreamFrame(headers, JSON.stringify(payload));
}

/** An exception of Converse. */
export function converseException(type: string, message: string): Buffer {
  const headers = { ":exception-type": type, ":message-type": "exception" };
  return eventStreamFrame(headers, JSON.stringify({ message }));
}

function header(name: string, value: string): Buffer {
  const length = Buffer.alloc(2);
  length.writeUInt16BE(Buffer.byteLength(value));
  return Buffer.concat([
    Buffer.of(name.length),
    Buffer.from(name),
    Buffer.of(STRING_TYPE),
    length,
    Buffer.from(value),
  ]);
}

function checksum(bytes: Buffer): Buffer {
  const sum = Buffer.alloc(4);
  sum.writeUInt32BE(crc32(bytes));
  return sum;
}

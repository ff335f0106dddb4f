/** The binary event stream, and everything that can be wrong with one. */
import { crc32 } from "node:zlib";
import { describe, expect, test } from "vitest";
import {
  converseEvent,
  converseException,
  eventStreamFrame,
} from "../../../../test/support/event-stream-frames.js";
import { TurnError } from "../../../lib/errors.js";
import { EventStreamParser } from "./event-stream.js";

type Taken = [name: string, data: string];

function parse(
  pieces: readonly Uint8Array[],
  maxBytes = 1_000,
): { taken: Taken[]; parser: EventStreamParser } {
  const parser = new EventStreamParser(maxBytes);
  const taken: Taken[] = [];
  for (const piece of pieces) parser.push(piece, (name, data) => taken.push([name, data]));
  parser.end();
  return { taken, parser };
}

const stream = Buffer.concat([
  converseEvent("messageStart", { role: "assistant" }),
  converseEvent("contentBlockDelta", { delta: { text: "Grüße ✅" } }),
  converseException("throttlingException", "slow down"),
]);

describe("aws event stream", () => {
  test("events and exceptions, cut in two at every byte", () => {
    const whole = parse([stream]).taken;
    expect(whole).toEqual([
      ["messageStart", `{"role":"assistant"}`],
      ["contentBlockDelta", `{"delta":{"text":"Grüße ✅"}}`],
      ["exception/throttlingException", `{"message":"slow down"}`],
    ]);
    for (let at = 0; at <= stream.length; at++)
      expect(parse([stream.subarray(0, at), stream.subarray(at)]).taken, `cut at ${at}`).toEqual(whole);
    expect(parse(Array.from(stream, (byte) => Uint8Array.of(byte))).taken).toEqual(whole);
  });

  test("an error message - its code and text come from the headers", () => {
    const headers = { ":message-type": "error", ":error-code": "InternalError", ":error-message": "oh" };
    expect(parse([eventStreamFrame(headers, "")]).taken).toEqual([
      ["exception/InternalError", `{"message":"oh"}`],
    ]);
  });

  test("headers of other types are stepped over", () => {
    const frame = eventStreamFrame({ ":event-type": "x" }, "{}");
    const name = Buffer.from("n");
    const others = [
      [0],
      [1],
      [2, 7],
      [3, 0, 7],
      [4, 0, 0, 0, 7],
      [5, ...Array<number>(8).fill(7)],
      [6, 0, 2, 7, 7],
      [8, ...Array<number>(8).fill(7)],
      [9, ...Array<number>(16).fill(7)],
    ].map((value) => Buffer.concat([Buffer.of(1), name, Buffer.from(value)]));
    const bytes = Buffer.concat(others);
    expect(parse([withHeaders(bytes, frame)]).taken).toEqual([["x", "{}"]]);
  });

  test("half a message at the end says nothing", () => {
    expect(parse([stream.subarray(0, stream.length - 1)]).taken).toHaveLength(2);
  });

  test("a flipped bit anywhere ends the stream, after the messages before it", () => {
    const first = converseEvent("messageStart", { role: "assistant" });
    for (let at = 0; at < first.length; at++) {
      const damaged = Buffer.concat([first, first]);
      damaged[first.length + at]! ^= 0x10;
      const parser = new EventStreamParser(1_000);
      const taken: string[] = [];
      let failure: unknown;
      try {
        parser.push(damaged, (name) => taken.push(name));
      } catch (error) {
        failure = error;
      }
      expect(taken, `byte ${at}`).toEqual(["messageStart"]);
      expect(failure, `byte ${at}`).toBeInstanceOf(TurnError);
    }
  });

  test("a message above the limit is not collected", () => {
    const large = converseEvent("contentBlockDelta", { text: "x".repeat(2_000) });
    const { taken, parser } = parse([stream, large.subarray(0, 20)]);
    expect(taken).toHaveLength(3);
    expect(parser.overflowed).toBe(true);
  });
});

/** The frame with these header bytes before its own. */
function withHeaders(bytes: Buffer, frame: Buffer): Buffer {
  const own = frame.subarray(12, 12 + frame.readUInt32BE(4));
  const payload = frame.subarray(12 + own.length, -4);
  return rawFrame(Buffer.concat([bytes, own]), payload);
}

function rawFrame(headers: Buffer, payload: Buffer): Buffer {
  const empty = eventStreamFrame({}, "");
  const message = Buffer.concat([empty.subarray(0, 12), headers, payload, Buffer.alloc(4)]);
  message.writeUInt32BE(message.length, 0);
  message.writeUInt32BE(headers.length, 4);
  message.writeUInt32BE(crc32(message.subarray(0, 8)), 8);
  message.writeUInt32BE(crc32(message.subarray(0, -4)), message.length - 4);
  return message;
}

import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { PacketBatchSchema } from "../../gen/turnwire/log/v1/log_pb.js";
import type { Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import { PacketSchema } from "../../gen/turnwire/packet/v1/packet_pb.js";
import {
  BatchEncoder,
  batchOf,
  countPackets,
  encodePacket,
  framedSize,
  packetsOf,
  trimBatch,
} from "./batch.js";
import { answerDelta, packet, reasoningDelta } from "./packets.js";
import { placementOf } from "./placement.js";
import { anyTurn } from "./test-support.js";

const anyUint32 = fc.oneof(fc.nat(3), fc.constantFrom(127, 128, 16_383, 16_384, 0xffff_ffff), fc.nat());
const anyIndex = fc.option(anyUint32, { nil: undefined });
const anyDelta: fc.Arbitrary<Packet> = fc
  .record({
    seq: anyUint32,
    tMs: anyUint32,
    text: fc.oneof(
      fc.string({ unit: "grapheme" }),
      fc.string({ minLength: 30, maxLength: 40 }),
      fc.constant("é".repeat(3000)),
    ),
    placement: fc.option(
      fc.tuple(anyUint32, anyUint32, anyIndex, anyIndex, anyIndex).map((numbers) => placementOf(...numbers)),
      { nil: undefined },
    ),
    isReasoning: fc.boolean(),
    mustUnderstand: fc.boolean(),
  })
  .map(({ seq, tMs, text, placement, isReasoning, mustUnderstand }) => {
    const made = isReasoning ? reasoningDelta(text, placement!) : answerDelta(text, placement!);
    return { ...made, seq, tMs, placement, mustUnderstand };
  });

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex");

describe("BatchEncoder", () => {
  test("one batch after the other: the same bytes as packets encoded alone and put together", () => {
    const encoder = new BatchEncoder();
    const anyBatch = fc.array(
      fc.oneof(anyDelta, fc.constant(packet("laneStarted", { modelId: "m" }, undefined))),
      { maxLength: 20 },
    );
    fc.assert(
      fc.property(anyBatch, (packets) => {
        const sizes = packets.map((each) => encoder.add(each));
        expect(encoder.byteLength).toBe(sizes.reduce((sum, size) => sum + size, 0));
        expect(hex(encoder.take())).toBe(hex(batchOf(packets.map(encodePacket))));
        expect(encoder.byteLength).toBe(0);
      }),
    );
  });
});

describe("encodePacket", () => {
  test("the short way gives the generic encoder's bytes", () => {
    fc.assert(
      fc.property(anyDelta, (each) => {
        expect(hex(encodePacket(each))).toBe(hex(toBinary(PacketSchema, each)));
      }),
      { numRuns: 500 },
    );
  });

  test("unknown fields are kept", () => {
    const each = answerDelta("a", placementOf(1, 0, undefined, 0, undefined));
    each.placement!.$unknown = [{ no: 99, wireType: 0, data: new Uint8Array([5]) }];
    expect(hex(encodePacket(each))).toBe(hex(toBinary(PacketSchema, each)));
  });
});

describe("batches", () => {
  test("a batch is the encoding of PacketBatch; it is counted, cut and taken apart without decoding", () => {
    fc.assert(
      fc.property(anyTurn, fc.nat(), (packets, n) => {
        const encoded = packets.map(encodePacket);
        const batch = batchOf(encoded);
        const generic = toBinary(PacketBatchSchema, create(PacketBatchSchema, { packets }));
        expect(Buffer.from(batch).equals(Buffer.from(generic))).toBe(true);
        expect(countPackets(batch)).toBe(packets.length);
        expect(batch.length).toBe(encoded.reduce((sum, bytes) => sum + framedSize(bytes.length), 0));

        const drop = n % (packets.length + 2);
        const rest = trimBatch(batch, drop);
        expect(rest.buffer).toBe(batch.buffer);
        expect(fromBinary(PacketBatchSchema, rest).packets.map((each) => each.seq)).toEqual(
          packets.slice(drop).map((each) => each.seq),
        );
        expect([...packetsOf(batch)].map((bytes) => hex(bytes))).toEqual(encoded.map((bytes) => hex(bytes)));
      }),
      { numRuns: 100 },
    );
  });

  test("no packets make an empty batch", () => {
    expect(batchOf([]).length).toBe(0);
    expect(countPackets(batchOf([]))).toBe(0);
    expect(trimBatch(batchOf([]), 3).length).toBe(0);
  });

  test.each([
    ["another tag", [0x12, 0x00]],
    ["a length beyond the end", [0x0a, 0x05, 0x01]],
    ["no length", [0x0a]],
    ["a length that does not end", [0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]],
  ])("bytes that are no batch are refused: %s", (_, bytes) => {
    const batch = new Uint8Array(bytes);
    expect(() => countPackets(batch)).toThrow(RangeError);
    expect(() => trimBatch(batch, 1)).toThrow(RangeError);
    expect(() => [...packetsOf(batch)]).toThrow(RangeError);
  });

  test("packets without payload fields of the hot path go the generic way", () => {
    const each = packet("sessionTitle", { title: "Title" }, undefined);
    expect(hex(encodePacket(each))).toBe(hex(toBinary(PacketSchema, each)));
  });
});

import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { PacketBatchSchema } from "../../gen/turnwire/log/v1/log_pb.js";
import { PacketSchema } from "../../gen/turnwire/packet/v1/packet_pb.js";
import type { LoggedEntry, Position } from "./replay-log.js";
import { countPackets, trimEntry } from "./trim-entry.js";

function entryWith(firstSeq: number, sizes: readonly number[]): LoggedEntry {
  const packets = sizes.map((size, index) =>
    create(PacketSchema, {
      seq: firstSeq + index,
      payload: { case: "agentResponseDelta", value: { content: "x".repeat(size) } },
    }),
  );
  const batch = toBinary(PacketBatchSchema, create(PacketBatchSchema, { packets }));
  const lastSeq = firstSeq + sizes.length - 1;
  return { position: 9 as Position, epoch: 1, incarnation: "w", firstSeq, lastSeq, terminal: false, batch };
}

const seqsOf = (entry: LoggedEntry): number[] =>
  fromBinary(PacketBatchSchema, entry.batch).packets.map((packet) => packet.seq);

describe("trimEntry", () => {
  // Sizes around where the length of a packet takes one byte more.
  const entry = entryWith(11, [0, 1, 110, 120, 130, 16_360, 16_380, 16_400, 5]);

  test.each(Array.from({ length: 12 }, (_, index) => 9 + index))(
    "after %i leaves exactly what follows",
    (afterSeq) => {
      const trimmed = trimEntry(entry, afterSeq);
      const expected = seqsOf(entry).filter((seq) => seq > afterSeq);
      expect(seqsOf(trimmed)).toEqual(expected);
      expect(trimmed.firstSeq).toBe(expected[0] ?? 20);
      expect(trimmed.lastSeq).toBe(19);
      expect(countPackets(trimmed.batch)).toBe(expected.length);
    },
  );

  test("shares the bytes and leaves the entry alone", () => {
    const before = Buffer.from(entry.batch).toString("hex");
    const trimmed = trimEntry(entry, 12);
    expect(trimmed.batch.buffer).toBe(entry.batch.buffer);
    expect(Buffer.from(entry.batch).toString("hex")).toBe(before);
  });

  test("a claim has nothing to trim", () => {
    const claim = { ...entryWith(5, []), lastSeq: 4 };
    expect(trimEntry(claim, 4)).toBe(claim);
    expect(trimEntry(claim, 99)).toBe(claim);
  });

  test.each([
    ["another field", [0x12, 0x01, 0x00]],
    ["a length beyond the end", [0x0a, 0x05, 0x00]],
    ["no length", [0x0a]],
    ["a length that never ends", [0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]],
    ["fewer packets than it says", []],
  ])("refuses bytes that are no batch: %s", (_, bytes) => {
    const broken = { ...entryWith(1, [1, 1]), batch: Uint8Array.from(bytes) };
    expect(() => trimEntry(broken, 1)).toThrow(
      expect.objectContaining({ message: "something went wrong inside Turnwire" }),
    );
  });
});

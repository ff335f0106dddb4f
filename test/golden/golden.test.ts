/**
 * Golden turns: whole turns as they were written, with the state they fold to. Each is checked against the grammar and
 * replayed through fold, encoder and batches at every cursor. A change of these files is a change of the contract's
 * meaning; `UPDATE_GOLDEN=1` writes `state` and `text_by_seq` anew for a person to
 * read (format the files afterwards).
 */
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { JsonValue } from "@bufbuild/protobuf";
import { create, fromBinary, fromJson, toBinary, toJson } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { TurnStateSchema } from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import { PacketBatchSchema } from "../../gen/turnwire/log/v1/log_pb.js";
import { PacketSchema } from "../../gen/turnwire/packet/v1/packet_pb.js";
import { batchOf, countPackets, encodePacket, trimBatch } from "../../src/turn/batch.js";
import { emptyTurnState, fold } from "../../src/turn/fold.js";
import { GrammarChecker } from "../../src/turn/grammar.js";

interface Golden {
  readonly about: string;
  readonly packets: readonly JsonValue[];
  /** The first lane's text after each packet. */
  text_by_seq: readonly string[];
  state: JsonValue;
}

const files = readdirSync(import.meta.dirname).filter((name) => name.endsWith(".json"));

test("there are golden turns", () => {
  expect(files.length).toBeGreaterThanOrEqual(6);
});

describe.each(files)("%s", (name) => {
  const path = join(import.meta.dirname, name);
  const golden = JSON.parse(readFileSync(path, "utf8")) as Golden;
  const packets = golden.packets.map((json) => fromJson(PacketSchema, json));
  const encoded = packets.map(encodePacket);
  const textBySeq = packets.map((_, i) => fold(packets.slice(0, i + 1)).lanes[0]?.text ?? "");
  const final = fold(packets);

  if (process.env["UPDATE_GOLDEN"]) {
    golden.text_by_seq = textBySeq;
    golden.state = toJson(TurnStateSchema, final);
    writeFileSync(path, `${JSON.stringify(golden, undefined, 2)}\n`);
  }

  test("is legal", () => {
    const checker = new GrammarChecker();
    expect([...packets.flatMap((each) => checker.push(each)), ...checker.finish()]).toEqual([]);
  });

  test("folds to its state", () => {
    expect(toJson(TurnStateSchema, final)).toEqual(golden.state);
    expect(textBySeq).toEqual(golden.text_by_seq);
  });

  test("folds to the same state from every cursor, from the log's bytes", () => {
    const log = batchOf(encoded);
    expect(countPackets(log)).toBe(packets.length);
    const expected = toBinary(TurnStateSchema, final);
    for (let cursor = 0; cursor <= packets.length; cursor++) {
      const snapshot = toBinary(TurnStateSchema, fold(packets.slice(0, cursor), emptyTurnState()));
      const suffix = fromBinary(PacketBatchSchema, trimBatch(log, cursor)).packets;
      const state = fold(suffix, fromBinary(TurnStateSchema, snapshot));
      expect(Buffer.from(toBinary(TurnStateSchema, state)).equals(expected), `from seq ${cursor}`).toBe(true);
      expect(
        Buffer.from(toBinary(PacketBatchSchema, create(PacketBatchSchema, { packets: suffix }))).equals(
          trimBatch(log, cursor),
        ),
      ).toBe(true);
    }
  });
});

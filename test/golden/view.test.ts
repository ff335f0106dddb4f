/** Golden turns as a person sees them: the view of a turn that was followed equals the view of what is stored of it. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { JsonValue } from "@bufbuild/protobuf";
import { fromBinary, fromJson, toBinary } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { LaneStateSchema, TurnStateSchema } from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import { PacketSchema } from "../../gen/turnwire/packet/v1/packet_pb.js";
import { storedLaneView, TurnViewer, viewOfTurn } from "../../src/client/view.js";
import { applyPacket, emptyTurnState, fold } from "../../src/turn/fold.js";

const files = readdirSync(import.meta.dirname).filter((name) => name.endsWith(".json"));

describe.each(files)("%s", (name) => {
  const golden = JSON.parse(readFileSync(join(import.meta.dirname, name), "utf8")) as {
    packets: JsonValue[];
  };
  const packets = golden.packets.map((json) => fromJson(PacketSchema, json));

  test("shows the same live, stored, and from a snapshot at every cursor", () => {
    const state = emptyTurnState();
    const viewer = new TurnViewer(() => 0);
    for (const packet of packets) {
      applyPacket(state, packet);
      viewer.update(state, [packet]);
    }
    const live = viewer.view!;
    expect(live.progress).not.toBe("running");

    const stored = fromBinary(TurnStateSchema, toBinary(TurnStateSchema, state));
    expect(viewOfTurn(stored)).toEqual(live);
    const lanes = state.lanes.map((lane) => fromBinary(LaneStateSchema, toBinary(LaneStateSchema, lane)));
    expect(lanes.map(storedLaneView)).toEqual(live.lanes);

    for (let cursor = 0; cursor <= packets.length; cursor++) {
      const resumed = new TurnViewer(() => 0);
      const rest = packets.slice(cursor);
      const snapshot = fold(packets.slice(0, cursor));
      resumed.update(snapshot);
      for (const packet of rest) applyPacket(snapshot, packet);
      expect(resumed.update(snapshot, rest), `from seq ${cursor}`).toEqual(live);
    }
  });
});

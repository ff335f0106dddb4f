/** What must hold for any stream, any cut and any point at which a turn ends. */
import { fromBinary, toBinary } from "@bufbuild/protobuf";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { TurnStateSchema } from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import { StopReason } from "../../gen/turnwire/packet/v1/common_pb.js";
import type { Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import { PacketSchema } from "../../gen/turnwire/packet/v1/packet_pb.js";
import type { CloseHow } from "./close-open.js";
import { closeOpen, overallStop } from "./close-open.js";
import { finishStep, nextDelta, startStep } from "./decode.js";
import { applyPacket, emptyTurnState, fold } from "./fold.js";
import { hasLoneSurrogate } from "./packets.js";
import { lanePlacementOf } from "./placement.js";
import {
  anyRetriedStream,
  anyStream,
  anyTurn,
  brief,
  bytesOf,
  decodeStep,
  numbered,
  recut,
  shown,
  stepOptions,
  violations,
} from "./test-support.js";

const RUNS = { numRuns: 300 };

/** A reader that starts in the middle of a turn. */
const anyPoint = fc
  .tuple(anyTurn, fc.nat())
  .map(([packets, n]) => ({ packets, at: n % (packets.length + 1) }));

describe("fold", () => {
  test("F1 folding a prefix and then the rest equals folding all, also over the encoded snapshot", () => {
    fc.assert(
      fc.property(anyPoint, ({ packets, at }) => {
        const prefix = fold(packets.slice(0, at));
        const before = bytesOf(prefix);
        const all = bytesOf(fold(packets));
        expect(bytesOf(fold(packets.slice(at), prefix))).toBe(all);
        expect(bytesOf(prefix)).toBe(before);
        const snapshot = fromBinary(TurnStateSchema, toBinary(TurnStateSchema, prefix));
        expect(bytesOf(fold(packets, snapshot))).toBe(all); // F2: what it has is skipped
      }),
      RUNS,
    );
  });

  test("F3 unknown payloads move the cursor, are counted, and change nothing else", () => {
    fc.assert(
      fc.property(anyPoint, fc.boolean(), ({ packets, at }, mustUnderstand) => {
        const unknown = { ...packets[0]!, mustUnderstand, payload: { case: undefined } } as Packet;
        const mixed = [...packets.slice(0, at), unknown, ...packets.slice(at)].map((each, i) => ({
          ...each,
          seq: i + 1,
        }));
        const known = mixed.filter((each) => each !== mixed[at]);
        const state = fold(mixed);
        expect(state).toMatchObject({
          seq: mixed.length,
          unknownPackets: 1,
          mustUnderstandMissed: mustUnderstand,
        });
        const expected = fold(known);
        expected.seq = mixed.length;
        expected.unknownPackets = 1;
        expected.mustUnderstandMissed = mustUnderstand;
        expect(bytesOf(state)).toBe(bytesOf(expected));
      }),
      RUNS,
    );
  });

  test("F5 packets are never changed", () => {
    fc.assert(
      fc.property(anyTurn, (packets) => {
        const before = packets.map((each) => Buffer.from(toBinary(PacketSchema, each)).toString("hex"));
        fold(packets);
        expect(packets.map((each) => Buffer.from(toBinary(PacketSchema, each)).toString("hex"))).toEqual(
          before,
        );
      }),
      { numRuns: 100 },
    );
  });

  test("a packet read back from its bytes folds the same", () => {
    fc.assert(
      fc.property(anyTurn, (packets) => {
        const state = emptyTurnState();
        for (const each of packets)
          applyPacket(state, fromBinary(PacketSchema, toBinary(PacketSchema, each)));
        expect(bytesOf(state)).toBe(bytesOf(fold(packets)));
      }),
      { numRuns: 100 },
    );
  });
});

describe("decode", () => {
  const anyCuts = fc.infiniteStream(fc.double({ min: 0, max: 1, noNaN: true }));

  test("D4 text and arguments do not depend on how the stream was cut", () => {
    fc.assert(
      fc.property(fc.oneof(anyStream, anyRetriedStream), anyCuts, (stream, fractions) => {
        const cutAtRandom = (length: number): number[] =>
          Array.from({ length: 3 }, () => Math.floor(fractions.next().value! * (length + 1)));
        const perCharacter = (length: number): number[] =>
          Array.from({ length: Math.max(0, length - 1) }, (_, i) => i + 1);
        const whole = summary(decodeStep(stream));
        expect(summary(decodeStep(recut(stream, cutAtRandom)))).toEqual(whole);
        expect(summary(decodeStep(recut(stream, perCharacter)))).toEqual(whole);
      }),
      RUNS,
    );
  });

  test("D5 no packet holds half a surrogate pair, NUL or an empty text", () => {
    fc.assert(
      fc.property(fc.oneof(anyStream, anyRetriedStream), (stream) => {
        for (const each of decodeStep(recut(stream, (length) => Array.from({ length }, (_, i) => i)))
          .packets) {
          expect(hasLoneSurrogate(brief(each))).toBe(false);
          expect(brief(each)).not.toContain("\0");
          if (each.payload.case === "agentResponseDelta") expect(each.payload.value.content).not.toBe("");
          if (each.payload.case === "reasoningDelta") expect(each.payload.value.reasoning).not.toBe("");
          if (each.payload.case === "toolCallArgumentDelta") {
            expect(each.payload.value.raw).not.toBe("");
            for (const text of Object.values(each.payload.value.argumentDeltas))
              expect(hasLoneSurrogate(text)).toBe(false);
          }
        }
      }),
      RUNS,
    );
  });

  test("D6 a step that is stopped or fails anywhere leaves nothing open", () => {
    fc.assert(
      fc.property(anyStream, fc.nat(), fc.boolean(), (stream, n, stopped) => {
        const state = startStep(stepOptions());
        const packets = stream.slice(0, n % (stream.length + 1)).flatMap((each) => nextDelta(state, each));
        const error = overallStop(emptyTurnState()).payload.value as never;
        const end = finishStep(state, stopped ? { kind: "stopped" } : { kind: "failed", error });
        const lane = fold(numbered([...packets, ...end.packets])).lanes[0];
        for (const block of lane?.blocks ?? []) expect(block.status).not.toBe(1);
        expect(end.outcome).toMatchObject({ kind: stopped ? "stopped" : "failed", calls: [] });
        expect(packets.concat(end.packets).some((each) => each.payload.case === "toolCallReady")).toBe(false);
      }),
      RUNS,
    );
  });

  function summary({ packets, outcome }: ReturnType<typeof decodeStep>): unknown {
    const cycle = [
      {
        ...packets[0]!,
        placement: lanePlacementOf(0),
        payload: {
          case: "cycleStarted",
          value: {
            $typeName: "turnwire.packet.v1.CycleStarted",
            cycle: 1,
            modelId: "",
            attempt: 1,
            toolChoice: 0,
          },
        },
      } as Packet,
    ];
    const lane = fold(numbered([...cycle, ...packets])).lanes[0]!;
    const appended = new Map<string, string>();
    for (const { payload } of packets) {
      if (payload.case !== "toolCallArgumentDelta") continue;
      for (const [key, text] of Object.entries(payload.value.argumentDeltas)) {
        const name = `${payload.value.callId}/${key}`;
        appended.set(name, (appended.get(name) ?? "") + text);
      }
    }
    const order = packets.map((each) => each.payload.case).filter((each, i, all) => each !== all[i - 1]);
    return {
      lane: shown(lane),
      outcome: { ...outcome, assistantMessage: outcome.assistantMessage },
      appended,
      order,
    };
  }
});

describe("turns", () => {
  test("I15 every turn is legal", () => {
    fc.assert(
      fc.property(anyTurn, (packets) => {
        expect(violations(packets)).toEqual([]);
      }),
      RUNS,
    );
  });

  test("a turn that ends at any packet is closed legally, and closing what is closed does nothing", () => {
    const kinds = fc.constantFrom<CloseHow["kind"]>("stopped", "error", "interrupted");
    fc.assert(
      fc.property(anyPoint, kinds, fc.boolean(), ({ packets, at }, kind, inDoubt) => {
        fc.pre(at > 0 && at < packets.length);
        const prefix = packets.slice(0, at);
        const state = fold(prefix);
        const callIds = state.lanes.flatMap((lane) =>
          lane.blocks.flatMap(({ block }) => (block.case === "tool" ? [block.value.call!.callId] : [])),
        );
        const how: CloseHow = {
          kind,
          stopReason: kind === "stopped" ? StopReason.USER_CANCELLED : StopReason.OWNER_LOST,
          ...(inDoubt && { inDoubtCallIds: new Set(callIds) }),
        };
        const closing = numbered(closeOpen(state, how), at + 1);
        const closed = fold(closing, state);
        expect(closeOpen(closed, how)).toEqual([]);
        const end = numbered([overallStop(closed, how)], at + closing.length + 1);
        expect(violations([...prefix, ...closing, ...end])).toEqual([]);
        // What was shown stays: closing never changes the text, and everything open is done.
        closed.lanes.forEach((lane, i) => {
          for (const block of lane.blocks) expect(block.status).not.toBe(1);
          expect(lane.text === state.lanes[i]!.text || state.lanes[i]!.text.startsWith(lane.text)).toBe(true);
        });
      }),
      { numRuns: 600 },
    );
  });
});

import { create } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { AnswerKind } from "../../../gen/turnwire/packet/v1/answer_pb.js";
import {
  ErrorCode,
  FinishReason,
  StopReason,
  TurnOutcome,
} from "../../../gen/turnwire/packet/v1/common_pb.js";
import { ResetReason, SectionStatus, WaitKind } from "../../../gen/turnwire/packet/v1/control_pb.js";
import type { Packet } from "../../../gen/turnwire/packet/v1/packet_pb.js";
import { PacketSchema } from "../../../gen/turnwire/packet/v1/packet_pb.js";
import { ToolCallStatus } from "../../../gen/turnwire/packet/v1/tools_pb.js";
import { applyPacket, emptyTurnState } from "../../turn/fold.js";
import { packet, type PayloadCase } from "../../turn/packets.js";
import { lanePlacementOf, placementOf, turnPlacement } from "../../turn/placement.js";
import { TurnViewer } from "./turn-viewer.js";
import type { GroupView, ToolGroup, TurnView } from "./view-types.js";

/** A turn by hand: each packet is numbered, folded and shown. */
class Turn {
  readonly state = emptyTurnState();
  nowMs = 1_000;
  readonly viewer = new TurnViewer(() => this.nowMs);

  constructor(lanes = 1) {
    const models = Array.from({ length: lanes }, (_, modelIndex) => ({
      modelIndex,
      modelId: `model-${modelIndex}`,
    }));
    this.add(packet("turnStarted", { turnId: "turn-1", lanes: models }, turnPlacement()));
    for (let i = 0; i < lanes; i++) this.lane("laneStarted", {}, i);
    this.lane("cycleStarted", { cycle: 1, attempt: 1 });
  }

  add(each: Packet, tMs = 0): TurnView {
    const numbered: Packet = { ...each, seq: this.state.seq + 1, tMs };
    applyPacket(this.state, numbered);
    return this.viewer.update(this.state, [numbered]);
  }

  lane<C extends PayloadCase>(
    kind: C,
    value: Parameters<typeof packet<C>>[1],
    modelIndex = 0,
    tMs = 0,
  ): TurnView {
    return this.add(packet(kind, value, lanePlacementOf(modelIndex)), tMs);
  }

  at<C extends PayloadCase>(
    place: readonly number[],
    kind: C,
    value: Parameters<typeof packet<C>>[1],
    tMs = 0,
  ): TurnView {
    const [turn = 0, tab = 0, sub, subTab] = place;
    return this.add(packet(kind, value, placementOf(turn, tab, sub, 0, subTab)), tMs);
  }

  answer(index: number, text: string, kind = AnswerKind.ANSWER): TurnView {
    this.at([index], "agentResponseStart", {});
    this.at([index], "agentResponseDelta", { content: text });
    return this.at([index], "agentResponseDone", { kind });
  }

  call(index: number, tab: number, callId: string, toolName = "search"): TurnView {
    this.at([index, tab], "toolCallStart", { callId, toolName });
    return this.at([index, tab], "toolCallReady", { callId, argumentsJson: "{}", argumentsValid: true });
  }

  endCall(index: number, tab: number, callId: string, status = ToolCallStatus.OK, durationMs = 5): TurnView {
    this.at([index, tab], "toolCallResult", { callId, status, modelText: `result of ${callId}` });
    return this.at([index, tab], "sectionEnd", { status: SectionStatus.OK, durationMs });
  }
}

const groups = (view: TurnView, lane = 0): readonly GroupView[] => view.lanes[lane]!.groups;
const kinds = (view: TurnView): string[] => groups(view).map(({ kind }) => kind);
const tools = (view: TurnView, at: number): ToolGroup => groups(view)[at] as ToolGroup;

describe("turn view - groups", () => {
  it("shows reasoning, narration, a step's calls and the answer in their order", () => {
    const turn = new Turn();
    turn.at([0], "reasoningStart", {});
    turn.at([0], "reasoningDelta", { reasoning: "Hm." });
    turn.at([0], "reasoningDone", { durationMs: 3_200 });
    turn.answer(1, "Let me look.", AnswerKind.NARRATION);
    turn.call(2, 0, "a");
    turn.call(2, 1, "b");
    turn.endCall(2, 0, "a", ToolCallStatus.OK, 40);
    turn.endCall(2, 1, "b", ToolCallStatus.ERROR, 70);
    const view = turn.answer(3, "Here.");
    expect(kinds(view)).toEqual(["reasoning", "narration", "tools", "answer"]);
    expect(tools(view, 2).calls.map(({ callId, status }) => [callId, status])).toEqual([
      ["a", "ok"],
      ["b", "error"],
    ]);
    expect(tools(view, 2)).toMatchObject({ open: false, durationMs: 70 });
    expect(view.lanes[0]).toMatchObject({ reasoningMs: 3_200, toolMs: 70 });
  });

  it("follows a call from its first argument to its result", () => {
    const turn = new Turn();
    const statusOf = (view: TurnView): string => tools(view, 0).calls[0]!.status;
    expect(statusOf(turn.at([0], "toolCallStart", { callId: "a", toolName: "search" }))).toBe("preparing");
    expect(statusOf(turn.at([0], "toolCallReady", { callId: "a", argumentsJson: "{}" }))).toBe("running");
    turn.at([0], "searchToolStart", { isInternetSearch: true });
    const searching = turn.at([0], "searchToolQueriesDelta", { queries: ["rain", "snow"] });
    expect(searching.lanes[0]!.status).toEqual({
      kind: "tool",
      text: "Searching the web for “rain” and 1 more",
    });
    turn.at([0], "searchToolDocumentsDelta", { documents: [{ documentId: "d1", title: "Rain" }] });
    const done = turn.endCall(0, 0, "a");
    expect(statusOf(done)).toBe("ok");
    expect(tools(done, 0).calls[0]!.body).toMatchObject({
      kind: "search",
      isInternet: true,
      queries: ["rain", "snow"],
      documents: [{ documentId: "d1" }],
    });
  });

  it("nests what an agent shows inside its call", () => {
    const turn = new Turn();
    turn.call(0, 0, "agent", "research");
    turn.at([0, 0], "researchAgentStart", { researchTask: "Find out" });
    turn.at([0, 0, 0], "reasoningStart", {});
    turn.at([0, 0, 0], "reasoningDelta", { reasoning: "inner" });
    turn.at([0, 0, 1], "toolCallStart", { callId: "x", toolName: "search" });
    turn.at([0, 0, 1, 1], "toolCallStart", { callId: "y", toolName: "search" });
    turn.at([0, 0], "intermediateReportStart", {});
    const view = turn.at([0, 0], "intermediateReportDelta", { content: "Found." });
    expect(kinds(view)).toEqual(["tools"]);
    const [call] = tools(view, 0).calls;
    expect(call!.body).toMatchObject({ kind: "agent", task: "Find out" });
    expect(call!.nested.map(({ kind }) => kind)).toEqual(["reasoning", "tools", "report"]);
    expect((call!.nested[1] as ToolGroup).calls.map(({ callId }) => callId)).toEqual(["x", "y"]);
  });

  it("says once that a cycle was taken back, in the place of what it had shown", () => {
    const turn = new Turn();
    turn.answer(0, "kept", AnswerKind.NARRATION);
    turn.lane("cycleStarted", { cycle: 2, attempt: 1 });
    turn.at([1], "reasoningStart", {});
    const from = turn.state.seq;
    turn.at([1], "reasoningDone", {});
    turn.at([2], "agentResponseStart", {});
    turn.at([2], "agentResponseDelta", { content: "gone" });
    turn.lane("cycleReset", { cycle: 2, discardFromSeq: from, reason: ResetReason.RETRY });
    const view = turn.answer(3, "again");
    expect(kinds(view)).toEqual(["narration", "notice", "answer"]);
    expect(JSON.stringify(view)).not.toContain("gone");
  });

  it("shows only what replaced an answer", () => {
    const turn = new Turn();
    turn.answer(0, "one ");
    turn.lane("cycleStarted", { cycle: 2, attempt: 1 });
    turn.answer(1, "two");
    const view = turn.lane("agentResponseReplaced", { content: "instead", by: "filter" });
    expect(groups(view).map((group) => "text" in group && group.text)).toEqual(["instead"]);
  });

  it("maps citation numbers to documents", () => {
    const turn = new Turn();
    turn.call(0, 0, "a");
    turn.at([0], "searchToolDocumentsDelta", {
      documents: [{ documentId: "d7", title: "Seven", citationNumber: 7 }],
    });
    turn.endCall(0, 0, "a");
    turn.at([1], "agentResponseStart", {});
    const before = turn.at([1], "agentResponseDelta", { content: "So " });
    expect(before.lanes[0]!.citations.size).toBe(0);
    const after = turn.at([1], "citationInfo", { citationNumber: 7, documentId: "d7" });
    expect(after.lanes[0]!.citations.get(7)?.title).toBe("Seven");
  });

  it("passes over packets of another age and says so where it must", () => {
    const turn = new Turn();
    turn.answer(0, "text");
    const unknown = create(PacketSchema, { placement: lanePlacementOf(0) });
    expect(turn.add(unknown).incomplete).toBe(false);
    expect(turn.add({ ...unknown, mustUnderstand: true }).incomplete).toBe(true);
    expect(kinds(turn.viewer.view!)).toEqual(["answer"]);
  });
});

describe("turn view - what goes on and how it ended", () => {
  it("names what the lane does", () => {
    const turn = new Turn();
    const text = (view: TurnView): string | undefined => view.lanes[0]!.status?.text;
    expect(text(turn.viewer.view!)).toBe("Waiting for the model");
    expect(text(turn.at([0], "reasoningStart", {}))).toBe("Thinking");
    turn.at([0], "reasoningDone", {});
    expect(text(turn.at([1], "agentResponseStart", {}))).toBe("Writing");
    expect(text(turn.lane("statusUpdate", { description: "Asking the archive", statusId: "s" }))).toBe(
      "Asking the archive",
    );
    expect(text(turn.lane("statusUpdate", { description: "Asked", statusId: "s", done: true }))).toBe(
      "Writing",
    );
    expect(text(turn.lane("waitStarted", { waitId: "w", kind: WaitKind.APPROVAL }))).toBe(
      "Waiting for an approval",
    );
    expect(text(turn.lane("waitEnded", { waitId: "w" }))).toBe("Writing");
    expect(text(turn.lane("laneEnd", { outcome: TurnOutcome.COMPLETED }))).toBeUndefined();
  });

  it("tells when an open block began, on the viewer's clock, and how long a closed one took", () => {
    const turn = new Turn();
    turn.nowMs = 5_000;
    turn.at([0], "reasoningStart", {}, 4_000);
    expect(groups(turn.viewer.view!)[0]).toMatchObject({ open: true, openedAtMs: 5_000, durationMs: 0 });
    turn.nowMs = 9_000;
    const view = turn.at([0], "reasoningDone", { durationMs: 3_990 }, 7_990);
    expect(groups(view)[0]).toMatchObject({ open: false, openedAtMs: undefined, durationMs: 3_990 });
  });

  it("says of each lane and of the turn how it ended, and each thing once", () => {
    const turn = new Turn(2);
    const error = {
      code: ErrorCode.RATE_LIMIT,
      message: "the provider limits the rate",
      retryable: true,
      retryAfterMs: 2_100,
    };
    turn.lane("error", error, 1);
    turn.lane("laneEnd", { outcome: TurnOutcome.ERROR, error }, 1);
    turn.lane("laneEnd", { outcome: TurnOutcome.COMPLETED, finishReason: FinishReason.LENGTH }, 0);
    const view = turn.add(packet("overallStop", { outcome: TurnOutcome.COMPLETED }, turnPlacement()));
    expect(view).toMatchObject({ progress: "completed", end: undefined });
    expect(view.lanes[0]).toMatchObject({ progress: "completed", end: undefined });
    expect(view.lanes[0]!.notices).toHaveLength(1);
    expect(view.lanes[1]).toMatchObject({
      progress: "error",
      notices: [],
      end: {
        text: "The provider limits the rate.",
        advice: "Try again in 3 s, or choose another model.",
        retryable: true,
      },
    });
  });

  it.each([
    [StopReason.USER_CANCELLED, undefined, undefined],
    [StopReason.DEADLINE, "The time for this answer ran out.", true],
    [StopReason.BUDGET, "The budget was used up.", false],
  ])("tells why the turn was stopped where its lane does not (%s)", (stopReason, text, retryable) => {
    const turn = new Turn();
    turn.lane("laneEnd", { outcome: TurnOutcome.STOPPED });
    const view = turn.add(
      packet("overallStop", { outcome: TurnOutcome.STOPPED, stopReason }, turnPlacement()),
    );
    expect(view.lanes[0]!.end?.text).toBe("Stopped.");
    expect(view.end?.text).toBe(text);
    expect(view.end?.retryable).toBe(retryable);
  });
});

describe("turn view - identities", () => {
  it("keeps everything that a packet does not change", () => {
    const turn = new Turn(2);
    turn.at([0], "reasoningStart", {});
    turn.at([0], "reasoningDone", { durationMs: 1 });
    turn.call(1, 0, "a");
    turn.call(1, 1, "b");
    turn.endCall(1, 0, "a");
    turn.endCall(1, 1, "b");
    const before = turn.at([2], "agentResponseStart", {});
    const after = turn.at([2], "agentResponseDelta", { content: "x" });
    expect(groups(after)[0]).toBe(groups(before)[0]);
    expect(groups(after)[1]).toBe(groups(before)[1]);
    expect(groups(after)[2]).not.toBe(groups(before)[2]);
    expect(after.lanes[1]).toBe(before.lanes[1]);
    expect(after.lanes[0]!.citations).toBe(before.lanes[0]!.citations);
    expect(after.notices).toBe(before.notices);
  });

  it("changes one call of a step and not its neighbour", () => {
    const turn = new Turn();
    turn.call(0, 0, "a");
    const before = turn.call(0, 1, "b");
    const after = turn.at([0, 1], "searchToolStart", {});
    expect(tools(after, 0).calls[0]).toBe(tools(before, 0).calls[0]);
    expect(tools(after, 0).calls[1]).not.toBe(tools(before, 0).calls[1]);
  });

  it("is the same view when nothing came, and equal parts when a snapshot says the same", () => {
    const turn = new Turn();
    turn.answer(0, "text");
    turn.call(1, 0, "a");
    const view = turn.viewer.view!;
    expect(turn.viewer.update(turn.state, [])).toBe(view);
    expect(groups(turn.viewer.update(structuredClone(turn.state)))).toBe(groups(view));
  });

  it("gives every group of a lane its own key, and never another", () => {
    const turn = new Turn();
    const seen = new Map<string, string>();
    const check = (view: TurnView): void => {
      const keys = groups(view).map(({ key }) => key);
      expect(new Set(keys).size).toBe(keys.length);
      for (const group of groups(view)) {
        const kind = group.kind === "narration" ? "answer" : group.kind; // a block may turn out to be a narration
        expect(seen.get(group.key) ?? kind).toBe(kind);
        seen.set(group.key, kind);
      }
    };
    for (let i = 0; i < 20; i += 2) {
      check(turn.answer(i, "words", AnswerKind.NARRATION));
      check(turn.call(i + 1, 0, `call-${i}`));
      check(turn.endCall(i + 1, 0, `call-${i}`));
    }
  });
});

describe("turn view - cost", () => {
  /** Milliseconds to fold and show a turn packet by packet. */
  function cost(packets: readonly Packet[]): number {
    const state = emptyTurnState();
    const viewer = new TurnViewer(() => 0);
    const began = performance.now();
    for (const each of packets) {
      applyPacket(state, each);
      viewer.update(state, [each]);
    }
    return performance.now() - began;
  }

  const deltas = (count: number): Packet[] =>
    Array.from({ length: count }, (_, i) => ({
      ...packet(
        i === 0 ? "agentResponseStart" : "agentResponseDelta",
        i === 0 ? {} : { content: "four" },
        placementOf(0, 0, undefined, 0, undefined),
      ),
      seq: i + 1,
    }));

  const steps = (count: number): Packet[] =>
    Array.from({ length: count }, (_, i) => {
      const index = i >> 1;
      const place = placementOf(index, 0, undefined, 0, undefined);
      const each =
        i % 2 === 0 ? packet("reasoningStart", {}, place) : packet("reasoningDone", { durationMs: 1 }, place);
      return { ...each, seq: i + 1 };
    });

  it.each([
    ["one long answer", deltas],
    ["many blocks", steps],
  ])("grows with the packets and not with their square: %s", (_, make) => {
    let [small, large] = [Infinity, Infinity];
    for (let round = 0; round < 5; round++) {
      small = Math.min(small, cost(make(1_000)));
      large = Math.min(large, cost(make(8_000)));
    }
    // Eight times the packets: linear work takes eight times as long (and one copy of a list), quadratic work 64 times.
    expect(large / small).toBeLessThan(48);
  });
});

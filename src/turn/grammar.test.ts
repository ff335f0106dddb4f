import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { AnswerKind } from "../../gen/turnwire/packet/v1/answer_pb.js";
import { FinishReason, StopReason, TurnOutcome } from "../../gen/turnwire/packet/v1/common_pb.js";
import { SectionStatus, ToolChoiceKind } from "../../gen/turnwire/packet/v1/control_pb.js";
import type { Packet, Placement } from "../../gen/turnwire/packet/v1/packet_pb.js";
import { ToolCallStatus } from "../../gen/turnwire/packet/v1/tools_pb.js";
import { GrammarChecker } from "./grammar.js";
import { answerDelta, argumentDelta, packet, reasoningDelta } from "./packets.js";
import { lanePlacementOf, placementOf, turnPlacement } from "./placement.js";
import { anyTurn, numbered, violations } from "./test-support.js";

const at = (turn: number, tab = 0, sub?: number, subTab?: number): Placement =>
  placementOf(turn, tab, sub, 0, subTab);
const lane = lanePlacementOf(0);
const turn = turnPlacement();

/** A legal turn with two cycles: reasoning, narration, two calls (one an agent with a call of its own), an answer. */
const parts = {
  started: packet("turnStarted", { turnId: "t", lanes: [{ modelIndex: 0 }] }, turn),
  laneStarted: packet("laneStarted", {}, lane),
  cycle1: packet("cycleStarted", { cycle: 1, attempt: 1, toolChoice: ToolChoiceKind.AUTO }, lane),
  reasoningStart: packet("reasoningStart", {}, at(0)),
  reasoning: reasoningDelta("hm", at(0)),
  reasoningDone: packet("reasoningDone", {}, at(0)),
  narrationStart: packet("agentResponseStart", {}, at(1)),
  narration: answerDelta("Let me look.", at(1)),
  narrationDone: packet("agentResponseDone", { kind: AnswerKind.NARRATION }, at(1)),
  call1: packet("toolCallStart", { callId: "c1", toolName: "search" }, at(2)),
  args1: argumentDelta("c1", "{}", {}, at(2)),
  branching: packet("topLevelBranching", { numParallelBranches: 2 }, at(2)),
  call2: packet("toolCallStart", { callId: "c2", toolName: "agent" }, at(2, 1)),
  ready1: packet("toolCallReady", { callId: "c1", argumentsJson: "{}", argumentsValid: true }, at(2)),
  ready2: packet("toolCallReady", { callId: "c2", argumentsJson: "{}", argumentsValid: true }, at(2, 1)),
  tool1: packet("openUrlStart", {}, at(2)),
  agentStart: packet("codingAgentStart", { query: "q" }, at(2, 1)),
  innerCall: packet("toolCallStart", { callId: "c3", toolName: "bash", parentCallId: "c2" }, at(2, 1, 0)),
  innerReady: packet(
    "toolCallReady",
    { callId: "c3", argumentsJson: "{}", argumentsValid: true },
    at(2, 1, 0),
  ),
  innerTool: packet("bashToolDelta", { stdout: "x" }, at(2, 1, 0)),
  innerResult: packet("toolCallResult", { callId: "c3", status: ToolCallStatus.OK }, at(2, 1, 0)),
  innerEnd: packet("sectionEnd", { status: SectionStatus.OK }, at(2, 1, 0)),
  result1: packet("toolCallResult", { callId: "c1", status: ToolCallStatus.OK, modelText: "r" }, at(2)),
  end1: packet("sectionEnd", { status: SectionStatus.OK }, at(2)),
  agentFinal: packet("codingAgentFinal", { answer: "a" }, at(2, 1)),
  result2: packet("toolCallResult", { callId: "c2", status: ToolCallStatus.OK }, at(2, 1)),
  end2: packet("sectionEnd", { status: SectionStatus.OK }, at(2, 1)),
  cycle1End: packet("cycleEnd", { cycle: 1 }, lane),
  cycle2: packet("cycleStarted", { cycle: 2, attempt: 1, toolChoice: ToolChoiceKind.AUTO }, lane),
  wait: packet("waitStarted", { waitId: "w" }, lane),
  waitEnd: packet("waitEnded", { waitId: "w" }, lane),
  answerStart: packet("agentResponseStart", {}, at(3)),
  answer: answerDelta("It is.", at(3)),
  citation: packet("citationInfo", { citationNumber: 1, documentId: "d" }, at(3)),
  answerDone: packet(
    "agentResponseDone",
    { kind: AnswerKind.ANSWER, finishReason: FinishReason.STOP },
    at(3),
  ),
  cycle2End: packet("cycleEnd", { cycle: 2 }, lane),
  laneEnd: packet("laneEnd", { outcome: TurnOutcome.COMPLETED }, lane),
  stop: packet("overallStop", { outcome: TurnOutcome.COMPLETED }, turn),
};
type Part = keyof typeof parts;

/** The violations when parts are left out, replaced, or something is put before them. */
function with_(changes: Partial<Record<Part, readonly Packet[]>>): string[] {
  const packets = (Object.keys(parts) as Part[]).flatMap((name) => changes[name] ?? [parts[name]]);
  return violations(numbered(packets));
}

test("a legal turn", () => {
  expect(with_({})).toEqual([]);
});

test.each<[rule: string, what: string, changes: Partial<Record<Part, readonly Packet[]>>]>([
  ["turn", "no TurnStarted", { started: [] }],
  ["turn", "TurnStarted twice", { laneStarted: [parts.started, parts.laneStarted] }],
  ["turn", "no OverallStop", { stop: [] }],
  [
    "turn",
    "a packet after OverallStop",
    { stop: [parts.stop, packet("sessionTitle", { title: "x" }, turn)] },
  ],
  ["turn", "OverallStop twice", { stop: [parts.stop, parts.stop] }],
  [
    "turn",
    "another outcome than its lanes'",
    { stop: [packet("overallStop", { outcome: TurnOutcome.ERROR }, turn)] },
  ],
  [
    "turn",
    "no outcome",
    {
      laneEnd: [packet("laneEnd", { outcome: TurnOutcome.ERROR }, lane)],
      stop: [packet("overallStop", {}, turn)],
    },
  ],
  [
    "turn",
    "stopped without a reason",
    {
      laneEnd: [packet("laneEnd", { outcome: TurnOutcome.STOPPED }, lane)],
      stop: [packet("overallStop", { outcome: TurnOutcome.STOPPED }, turn)],
    },
  ],
  ["turn", "no lanes", { started: [packet("turnStarted", { turnId: "t" }, turn)] }],
  ["lane", "no LaneEnd", { laneEnd: [] }],
  ["lane", "two LaneEnds", { laneEnd: [parts.laneEnd, parts.laneEnd] }],
  ["lane", "no LaneStarted", { laneStarted: [] }],
  [
    "lane",
    "a packet after LaneEnd",
    { laneEnd: [parts.laneEnd, packet("statusUpdate", { action: "x" }, lane)] },
  ],
  [
    "lane",
    "a lane that was not announced",
    { laneEnd: [packet("laneEnd", { outcome: TurnOutcome.ERROR }, lanePlacementOf(5)), parts.laneEnd] },
  ],
  [
    "lane",
    "content that belongs to no lane",
    { answer: [answerDelta("x", placementOf(3, 0, undefined, undefined, undefined))] },
  ],
  ["lane", "LaneEnd without outcome", { laneEnd: [packet("laneEnd", {}, lane)] }],
  ["cycle", "no CycleStarted", { cycle2: [] }],
  ["cycle", "a cycle is left out", { cycle2: [packet("cycleStarted", { cycle: 3 }, lane)] }],
  ["cycle", "a cycle inside a cycle", { cycle1End: [] }],
  ["cycle", "a block that is open at CycleEnd", { answerDone: [] }],
  ["cycle", "a call that is open at CycleEnd", { end1: [] }],
  ["cycle", "CycleEnd of another cycle", { cycle1End: [packet("cycleEnd", { cycle: 7 }, lane)] }],
  [
    "cycle",
    "a reset of another cycle",
    { cycle1End: [packet("cycleReset", { cycle: 9 }, lane, true), parts.cycle1End] },
  ],
  [
    "cycle",
    "a reset that keeps a call nobody knows",
    {
      answerDone: [
        packet("cycleReset", { cycle: 2, keptCallIds: ["?"] }, lane, true),
        packet("cycleStarted", { cycle: 2 }, lane),
      ],
    },
  ],
  ["lane", "a cycle that is open at LaneEnd", { cycle2End: [] }],
  [
    "placement",
    "an index used twice",
    {
      answerStart: [packet("agentResponseStart", {}, at(0))],
      answer: [answerDelta("x", at(0))],
      citation: [],
      answerDone: [packet("agentResponseDone", { kind: AnswerKind.ANSWER }, at(0))],
    },
  ],
  ["placement", "an index left out", { reasoningStart: [packet("reasoningStart", {}, at(1))] }],
  ["placement", "a tab left out", { call2: [packet("toolCallStart", { callId: "c2" }, at(2, 2))] }],
  [
    "placement",
    "a second group of calls in a step",
    { call2: [packet("toolCallStart", { callId: "c2" }, at(3))] },
  ],
  [
    "placement",
    "a result in another place",
    { result1: [packet("toolCallResult", { callId: "c1", status: ToolCallStatus.OK }, at(2, 1))] },
  ],
  [
    "placement",
    "branching where no calls are",
    { branching: [packet("topLevelBranching", { numParallelBranches: 2 }, at(1))] },
  ],
  ["block", "a delta before its start", { answerStart: [] }],
  ["block", "a delta in another placement", { answer: [answerDelta("x", at(4))] }],
  ["block", "a delta after done", { cycle2End: [answerDelta("x", at(3)), parts.cycle2End] }],
  ["block", "done twice", { answerDone: [parts.answerDone, parts.answerDone] }],
  ["block", "a citation outside an answer", { cycle2End: [parts.citation, parts.cycle2End] }],
  ["block", "the end of nothing", { cycle2End: [parts.end1, parts.cycle2End] }],
  [
    "reasoning",
    "open when the answer begins",
    { reasoningDone: [], narrationDone: [parts.narrationDone, parts.reasoningDone] },
  ],
  [
    "reasoning",
    "open when a call begins",
    {
      reasoningDone: [],
      narrationStart: [],
      narration: [],
      narrationDone: [],
      args1: [parts.args1, parts.reasoningDone],
    },
  ],
  ["answer", "Done without a kind", { answerDone: [packet("agentResponseDone", {}, at(3))] }],
  [
    "answer",
    "a call after the answer",
    { narrationDone: [packet("agentResponseDone", { kind: AnswerKind.ANSWER }, at(1))] },
  ],
  ["call", "a call_id used twice", { call2: [packet("toolCallStart", { callId: "c1" }, at(2, 1))] }],
  ["call", "arguments before the call", { call1: [], branching: [] }],
  ["call", "arguments after they were complete", { ready1: [parts.ready1, parts.args1] }],
  ["call", "ready twice", { ready1: [parts.ready1, parts.ready1] }],
  ["call", "a good result without being ready", { ready1: [], tool1: [] }],
  ["call", "a tool's packet before the call is ready", { ready1: [parts.tool1, parts.ready1], tool1: [] }],
  ["call", "a tool's packet after the result", { result1: [parts.result1, parts.tool1] }],
  ["call", "a tool's packet of no call", { cycle2End: [parts.tool1, parts.cycle2End] }],
  ["call", "two results", { result1: [parts.result1, parts.result1] }],
  ["call", "an end without a result", { result1: [] }],
  ["call", "a result without a status", { result1: [packet("toolCallResult", { callId: "c1" }, at(2))] }],
  ["call", "an end without a status", { end1: [packet("sectionEnd", {}, at(2))] }],
  ["call", "one branch", { branching: [packet("topLevelBranching", { numParallelBranches: 1 }, at(2))] }],
  ["call", "branches that do not grow", { branching: [parts.branching, parts.branching] }],
  [
    "call",
    "a parent nobody knows",
    { innerCall: [packet("toolCallStart", { callId: "c3", parentCallId: "?" }, at(2, 1, 0))] },
  ],
  ["wait", "a wait that is never ended", { waitEnd: [] }],
  ["wait", "a wait that is ended twice", { waitEnd: [parts.waitEnd, parts.waitEnd] }],
  [
    "wait",
    "a client call that is never resolved",
    { waitEnd: [parts.waitEnd, packet("clientCallRequest", { clientCallId: "x" }, turn)] },
  ],
  ["content", "an empty delta", { answer: [answerDelta("", at(3))] }],
  ["content", "half a surrogate pair", { answer: [answerDelta("\ud83d", at(3))] }],
  ["content", "a text over 64 KiB", { answer: [answerDelta("x".repeat(64 * 1024 + 1), at(3))] }],
  ["content", "control text", { answer: [parts.answer, answerDelta("[stopped]", at(3))] }],
  [
    "must",
    "a reset that may be skipped",
    { answerDone: [packet("cycleReset", { cycle: 2 }, lane), packet("cycleStarted", { cycle: 2 }, lane)] },
  ],
])("%s: %s", (rule, _, changes) => {
  const found = with_(changes);
  expect(found.length).toBeGreaterThan(0);
  expect(
    found.some((violation) => violation.startsWith(`${rule}:`)),
    found.join("\n"),
  ).toBe(true);
});

describe("header", () => {
  const legal = numbered(Object.values(parts));

  test.each([
    ["seq", "a gap", legal.map((each) => (each.seq > 5 ? { ...each, seq: each.seq + 1 } : each))],
    ["seq", "a packet twice", [...legal.slice(0, 5), legal[4]!, ...legal.slice(5)]],
    ["seq", "a packet without seq", legal.map((each) => (each.seq === 5 ? { ...each, seq: 0 } : each))],
    ["time", "time goes back", legal.map((each) => (each.seq === 5 ? { ...each, tMs: 1 } : each))],
  ])("%s: %s", (rule, _, packets) => {
    expect(violations(packets).some((violation) => violation.startsWith(`${rule}:`))).toBe(true);
  });

  test("heartbeats of a reader are no packets of the turn", () => {
    const heartbeat = packet("chatHeartbeat", { headSeq: 5 }, undefined);
    expect(violations([...legal.slice(0, 5), heartbeat, ...legal.slice(5), heartbeat])).toEqual([]);
    expect(violations(numbered([...legal.slice(0, 5), heartbeat, ...legal.slice(5)])).length).toBe(1);
  });

  test("payloads of a newer writer are let through", () => {
    const newer: Packet = { ...legal[0]!, payload: { case: undefined } };
    expect(violations(numbered([...legal.slice(0, 5), newer, ...legal.slice(5)]))).toEqual([]);
  });

  test("nothing at all is no turn", () => {
    expect(new GrammarChecker().finish()).toEqual(["turn: no TurnStarted", "turn: no OverallStop"]);
  });
});

describe("resets", () => {
  test("what was shown is gone, kept calls go on, indices are not used again", () => {
    const again = [
      packet("cycleReset", { cycle: 2, reason: 1 }, lane, true),
      packet("cycleStarted", { cycle: 2, attempt: 2 }, lane),
    ];
    const answer = [
      packet("agentResponseStart", {}, at(4)),
      answerDelta("x", at(4)),
      packet("agentResponseDone", { kind: AnswerKind.ANSWER }, at(4)),
    ];
    expect(with_({ answerDone: [...again, ...answer] })).toEqual([]);
    const kept = [
      packet("cycleReset", { cycle: 1, keptCallIds: ["c1", "c2"] }, lane, true),
      packet("cycleStarted", { cycle: 1, attempt: 2 }, lane),
    ];
    expect(with_({ tool1: [...kept, parts.tool1] })).toEqual([]);
    const dropped = [
      packet("cycleReset", { cycle: 1, keptCallIds: ["c2"] }, lane, true),
      packet("cycleStarted", { cycle: 1, attempt: 2 }, lane),
    ];
    expect(with_({ tool1: [...dropped, parts.tool1] }).some((each) => each.startsWith("call:"))).toBe(true);
  });

  test("a stop reason is given with a stop", () => {
    expect(
      with_({
        laneEnd: [packet("laneEnd", { outcome: TurnOutcome.STOPPED }, lane)],
        stop: [
          packet(
            "overallStop",
            { outcome: TurnOutcome.STOPPED, stopReason: StopReason.USER_CANCELLED },
            turn,
          ),
        ],
      }),
    ).toEqual([]);
  });
});

/** Packets whose absence the order alone cannot show. */
const OPTIONAL = new Set<Packet["payload"]["case"]>([
  "agentResponseDelta",
  "reasoningDelta",
  "toolCallArgumentDelta",
  "topLevelBranching",
  "usageInfo",
  "sourceInfo",
  "statusUpdate",
  "bashToolStart",
  "bashToolDelta",
  "openUrlStart",
  "openUrlUrls",
  "codingAgentThinkingDelta",
  "codingAgentFinal",
  "intermediateReportDelta",
  "researchAgentStart",
]);

test("no turn stays legal without one of its packets", () => {
  fc.assert(
    fc.property(anyTurn, fc.nat(), (packets, n) => {
      const drop = packets[n % packets.length]!;
      fc.pre(!OPTIONAL.has(drop.payload.case));
      fc.pre(drop.payload.case !== "toolCallReady"); // a call that failed needs not have been ready
      // A reset closes what is open: what it discards may be there in part.
      fc.pre(
        drop.payload.case === "cycleReset" || !packets.some((each) => each.payload.case === "cycleReset"),
      );
      expect(violations(numbered(packets.filter((each) => each !== drop)))).not.toEqual([]);
    }),
    { numRuns: 400 },
  );
});

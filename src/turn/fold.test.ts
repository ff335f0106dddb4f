import { describe, expect, test } from "vitest";
import type { TurnState } from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import { BlockStatus } from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import { AnswerKind } from "../../gen/turnwire/packet/v1/answer_pb.js";
import { ErrorCode, FinishReason, TurnOutcome } from "../../gen/turnwire/packet/v1/common_pb.js";
import { ResetReason, SectionStatus } from "../../gen/turnwire/packet/v1/control_pb.js";
import type { Packet, Placement } from "../../gen/turnwire/packet/v1/packet_pb.js";
import { CustomToolResponseType, ToolCallStatus } from "../../gen/turnwire/packet/v1/tools_pb.js";
import { MAX_DETAIL_CHARS, MAX_DETAIL_PACKETS } from "./fold-detail.js";
import { applyPacket, emptyTurnState, fold } from "./fold.js";
import { answerDelta, argumentDelta, packet, reasoningDelta } from "./packets.js";
import { lanePlacement, lanePlacementOf, nextBlock, placementOf, turnPlacement } from "./placement.js";
import { bytesOf, numbered } from "./test-support.js";

const at = (turn: number, tab = 0, sub?: number, model = 0): Placement =>
  placementOf(turn, tab, sub, model, undefined);
const lane = lanePlacementOf(0);
const turn = turnPlacement();
const stateOf = (...packets: Packet[]): TurnState => fold(numbered(packets));
const laneOf = (...packets: Packet[]) => stateOf(...packets).lanes[0]!;

const started = packet(
  "turnStarted",
  {
    turnId: "t",
    lanes: [
      { modelIndex: 1, modelId: "b" },
      { modelIndex: 0, modelId: "a", assistantMessageId: "m", displayName: "A" },
    ],
  },
  turn,
);
const cycle = (n: number): Packet => packet("cycleStarted", { cycle: n, modelId: "a", attempt: 1 }, lane);
const answer = (place: Placement, text: string, kind?: AnswerKind): Packet[] => [
  packet("agentResponseStart", {}, place),
  answerDelta(text, place),
  ...(kind === undefined
    ? []
    : [packet("agentResponseDone", { kind, finishReason: FinishReason.STOP }, place)]),
];
const callStart = (callId: string, place: Placement): Packet =>
  packet("toolCallStart", { callId, toolName: "search" }, place);
const callReady = (callId: string, place: Placement, argumentsJson = "{}"): Packet =>
  packet("toolCallReady", { callId, argumentsJson, argumentsValid: true }, place);
const callEnd = (callId: string, place: Placement): Packet[] => [
  packet(
    "toolCallResult",
    {
      callId,
      status: ToolCallStatus.OK,
      modelText: "r",
      documents: [{ documentId: "d1", title: "One", citationNumber: 1 }],
    },
    place,
  ),
  packet("sectionEnd", { status: SectionStatus.OK }, place),
];

describe("cursor", () => {
  test("F2 heartbeats and packets it has change nothing", () => {
    const packets = numbered([started, ...answer(at(0), "a")]);
    const state = fold(packets);
    const before = bytesOf(state);
    applyPacket(state, { ...packets[2]!, seq: 0 });
    applyPacket(state, packets[2]!);
    expect(bytesOf(state)).toBe(before);
    expect(state.seq).toBe(packets.length);
  });

  test("F3 must_understand on an unknown payload is remembered", () => {
    const state = emptyTurnState();
    applyPacket(state, { ...started, seq: 1, mustUnderstand: true, payload: { case: undefined } });
    expect(state).toMatchObject({ seq: 1, unknownPackets: 1, mustUnderstandMissed: true, turnId: "" });
  });
});

describe("lanes", () => {
  test("are announced by TurnStarted, in order of their index", () => {
    const state = stateOf(started, packet("laneStarted", { modelId: "a2" }, lane));
    expect(state).toMatchObject({ turnId: "t", started: { turnId: "t" } });
    expect(state.lanes).toMatchObject([
      { modelIndex: 0, modelId: "a2", assistantMessageId: "m", displayName: "A", started: true },
      { modelIndex: 1, modelId: "b", started: false },
    ]);
  });

  test("end with the model that answered and the usage it cost", () => {
    const ended = laneOf(
      started,
      cycle(1),
      packet("cycleEnd", { cycle: 1, usage: { inputTokens: 1 } }, lane),
      packet("laneEnd", { outcome: TurnOutcome.COMPLETED, modelId: "real", usage: { inputTokens: 5 } }, lane),
    );
    expect(ended).toMatchObject({
      modelId: "real",
      usage: { inputTokens: 5 },
      end: { outcome: TurnOutcome.COMPLETED },
    });
  });

  test("usage is the sum of the cycles, newest figures first, until the lane says it", () => {
    const counted = laneOf(
      cycle(1),
      packet("usageInfo", { cycle: 1, usage: { inputTokens: 1 } }, lane),
      packet("usageInfo", { cycle: 1, usage: { inputTokens: 2 } }, lane),
      packet("cycleReset", { cycle: 1 }, lane, true),
      packet("cycleStarted", { cycle: 1, attempt: 2 }, lane),
      packet("cycleEnd", { cycle: 1, usage: { inputTokens: 10 } }, lane),
      packet("usageInfo", { cycle: 1, usage: { inputTokens: 99 } }, lane), // late: the cycle has its figure
      cycle(2),
      packet("usageInfo", { cycle: 2, usage: { inputTokens: 3 } }, lane),
    );
    expect(counted.usage).toMatchObject({ inputTokens: 13 });
    expect(counted.cycles).toMatchObject([
      { cycle: 1, attempt: 1, reset: true },
      { cycle: 1, attempt: 2, ended: true },
      { cycle: 2 },
    ]);
  });
});

describe("text", () => {
  test("grows while its block is provisional; narration leaves it", () => {
    expect(laneOf(...answer(at(0), "Let me")).text).toBe("Let me");
    expect(laneOf(...answer(at(0), "Let me", AnswerKind.NARRATION)).text).toBe("");
    expect(
      laneOf(...answer(at(0), "Let me", AnswerKind.NARRATION), ...answer(at(2), "It is", AnswerKind.ANSWER))
        .text,
    ).toBe("It is");
  });

  test("is made of all answer blocks in order, whichever grows", () => {
    const text = laneOf(
      packet("agentResponseStart", {}, at(0)),
      answerDelta("a", at(0)),
      packet("agentResponseStart", {}, at(2)),
      answerDelta("c", at(2)),
      answerDelta("b", at(0)),
    ).text;
    expect(text).toBe("abc");
  });

  test("an agent's answer is its own", () => {
    const inner = laneOf(
      ...answer(at(0, 0, 1), "inner", AnswerKind.ANSWER),
      ...answer(at(1), "outer", AnswerKind.ANSWER),
    );
    expect(inner.text).toBe("outer");
    expect(inner.blocks.length).toBe(2);
  });

  test("is not lost when its start is missing", () => {
    const lost = laneOf(answerDelta("a", at(0)), reasoningDelta("r", at(1)), answerDelta("b", at(0)));
    expect(lost.text).toBe("ab");
    expect(lost.blocks.map(({ block }) => block.case)).toEqual(["answer", "reasoning"]);
  });

  test("a block has its seqs, its cycle, and what its start and end say", () => {
    const [block] = laneOf(
      cycle(3),
      packet("agentResponseStart", { preAnswerMs: 9, finalDocuments: [{ documentId: "d" }] }, at(0)),
      answerDelta("a", at(0)),
      packet(
        "agentResponseDone",
        { kind: AnswerKind.ANSWER, truncated: true, finishReason: FinishReason.LENGTH },
        at(0),
      ),
    ).blocks;
    expect(block).toMatchObject({
      firstSeq: 2,
      lastSeq: 4,
      cycle: 3,
      status: BlockStatus.DONE,
      block: {
        case: "answer",
        value: {
          text: "a",
          preAnswerMs: 9,
          truncated: true,
          finishReason: FinishReason.LENGTH,
          documents: [{ documentId: "d" }],
        },
      },
    });
  });

  test("a replaced answer is one block, done, however many there were", () => {
    const replaced = laneOf(
      ...answer(at(0), "n", AnswerKind.NARRATION),
      ...answer(at(2), "a", AnswerKind.ANSWER),
      ...answer(at(4), "b [1]"),
      packet("citationInfo", { citationNumber: 1, documentId: "d" }, at(4)),
      packet("agentResponseReplaced", { content: "new", truncated: true }, at(4), true),
    );
    expect(replaced.text).toBe("new");
    expect(replaced.citations).toEqual([]);
    expect(replaced.blocks.map((block) => block.status)).toEqual([
      BlockStatus.DONE,
      BlockStatus.DISCARDED,
      BlockStatus.DONE,
    ]);
    expect(laneOf(packet("agentResponseReplaced", { content: "only" }, at(0), true)).text).toBe("only");
  });

  test("reasoning", () => {
    const [block] = laneOf(
      packet("reasoningStart", {}, at(0)),
      reasoningDelta("a", at(0)),
      reasoningDelta("b", at(0)),
      packet("reasoningDone", { durationMs: 5, redacted: true }, at(0)),
    ).blocks;
    expect(block).toMatchObject({
      status: BlockStatus.DONE,
      block: { case: "reasoning", value: { text: "ab", durationMs: 5, redacted: true } },
    });
  });
});

describe("reset", () => {
  const before = [
    cycle(1),
    ...answer(at(0), "first [1]", AnswerKind.NARRATION),
    packet("citationInfo", { citationNumber: 1, documentId: "d1" }, at(0)),
    callStart("c1", at(1)),
    callReady("c1", at(1)),
    ...callEnd("c1", at(1)),
    packet("cycleEnd", { cycle: 1 }, lane),
  ];
  const second = [
    cycle(2),
    ...answer(at(2), "second [2]", AnswerKind.NARRATION),
    packet("citationInfo", { citationNumber: 2, documentId: "d2" }, at(2)),
    callStart("c2", at(3)),
    callStart("c3", at(3, 1)),
  ];

  test("discards what its cycle has shown from a seq on, in its lane", () => {
    const state = stateOf(
      ...before,
      ...second,
      ...answer(at(0, 0, undefined, 1), "other lane"),
      packet("cycleReset", { cycle: 2, reason: ResetReason.RETRY }, lane, true),
    );
    expect(state.lanes[0]!.blocks.map((block) => block.status === BlockStatus.DISCARDED)).toEqual([
      false,
      false,
      true,
      true,
      true,
    ]);
    expect(state.lanes[0]!.citations.map(({ number }) => number)).toEqual([1]);
    expect(state.lanes[0]!.text).toBe("");
    expect(state.lanes[1]!.text).toBe("other lane");
  });

  test("keeps the calls it names, with what is nested in them, and what came before its seq", () => {
    const packets = numbered([...before, ...second, callStart("inner", at(3, 0, 0))]);
    const narration = packets.findIndex(
      (each) => each.placement?.turnIndex === 2 && each.payload.case === "agentResponseDelta",
    );
    const state = fold([
      ...packets,
      ...numbered(
        [
          packet(
            "cycleReset",
            { cycle: 2, keptCallIds: ["c2"], discardFromSeq: packets[narration]!.seq },
            lane,
            true,
          ),
        ],
        packets.length + 1,
      ),
    ]);
    const discarded = state.lanes[0]!.blocks.filter((block) => block.status === BlockStatus.DISCARDED);
    expect(discarded.map((block) => [block.placement!.turnIndex, block.placement!.tabIndex])).toEqual([
      [3, 1],
    ]);
  });

  test("the text comes anew", () => {
    const again = laneOf(
      cycle(1),
      ...answer(at(0), "half"),
      packet("cycleReset", { cycle: 1 }, lane, true),
      cycle(1),
      ...answer(at(1), "whole", AnswerKind.ANSWER),
    );
    expect(again.text).toBe("whole");
  });
});

describe("calls", () => {
  test("have their arguments, readiness, result and end", () => {
    const place = at(1);
    const [block] = laneOf(
      callStart("c", place),
      argumentDelta("c", '{"q":', {}, place),
      argumentDelta("c", '"x"}', {}, place),
      callReady("c", place, '{"q":"x"}'),
      ...callEnd("c", place),
    ).blocks;
    expect(block).toMatchObject({
      status: BlockStatus.DONE,
      firstSeq: 1,
      lastSeq: 6,
      block: {
        case: "tool",
        value: {
          argumentsJson: '{"q":"x"}',
          ready: { argumentsValid: true },
          result: { modelText: "r" },
          end: { status: SectionStatus.OK },
        },
      },
    });
  });

  test("arguments that are cut in ToolCallReady are whole from their deltas", () => {
    const place = at(1);
    const [block] = laneOf(
      callStart("c", place),
      argumentDelta("c", '{"q":"long"}', {}, place),
      packet("toolCallReady", { callId: "c", argumentsJson: '{"q"', truncated: true }, place),
    ).blocks;
    expect(block).toMatchObject({
      block: { value: { argumentsJson: '{"q":"long"}', ready: { truncated: true } } },
    });
  });

  test("the first of two results holds; packets of calls nobody began are left out", () => {
    const place = at(1);
    const two = laneOf(
      callStart("c", place),
      ...callEnd("c", place),
      packet("toolCallResult", { callId: "c", status: ToolCallStatus.ERROR }, place),
      packet("toolCallReady", { callId: "other" }, place),
      argumentDelta("other", "x", {}, place),
    );
    expect(two.blocks).toMatchObject([
      { block: { value: { result: { status: ToolCallStatus.OK }, argumentsJson: "" } } },
    ]);
    expect(two.blocks.length).toBe(1);
  });

  test("a section's end ends the innermost until the call has its result, and then all at its place", () => {
    const place = at(1);
    const report = [
      packet("intermediateReportStart", {}, place),
      packet("intermediateReportDelta", { content: "R" }, place),
      packet("intermediateReportCitedDocs", { citedDocs: [{ documentId: "d" }] }, place),
    ];
    const open = [
      callStart("c", place),
      callReady("c", place),
      packet("researchAgentStart", { researchTask: "task" }, place),
      ...report,
    ];
    const half = laneOf(...open, packet("sectionEnd", { status: SectionStatus.OK }, place));
    expect(half.blocks.map(({ block, status }) => [block.case, status])).toEqual([
      ["tool", BlockStatus.OPEN],
      ["agent", BlockStatus.OPEN],
      ["report", BlockStatus.DONE],
    ]);
    const whole = laneOf(...open, ...callEnd("c", place));
    expect(whole.blocks.every(({ status }) => status === BlockStatus.DONE)).toBe(true);
    expect(whole.blocks[2]).toMatchObject({
      block: { value: { text: "R", documents: [{ documentId: "d" }] } },
    });
  });
});

describe("detail", () => {
  const place = at(1);
  const detailOf = (...packets: Packet[]) => {
    const { block } = laneOf(callStart("c", place), ...packets).blocks[0]!;
    return block.case === "tool" ? block.value.detail : [];
  };

  test("output that arrives in pieces is one packet", () => {
    const detail = detailOf(
      packet("bashToolStart", { cmd: "ls" }, place),
      packet("bashToolDelta", { stdout: "a" }, place),
      packet("bashToolDelta", { stdout: "b", stderr: "e" }, place),
      packet("bashToolDelta", { exitCode: 0, timedOut: true }, place),
    );
    expect(detail.map(({ payload }) => payload)).toMatchObject([
      { case: "bashToolStart" },
      { case: "bashToolDelta", value: { stdout: "ab", stderr: "e", exitCode: 0, timedOut: true } },
    ]);
  });

  test.each<[string, Packet[], unknown]>([
    [
      "python",
      [
        packet("pythonToolDelta", { stdout: "a", fileIds: ["f"] }, place),
        packet("pythonToolDelta", { stdout: "b", fileIds: ["f", "g"] }, place),
      ],
      { stdout: "ab", fileIds: ["f", "g"] },
    ],
    [
      "queries",
      [
        packet("searchToolQueriesDelta", { queries: ["a"] }, place),
        packet("searchToolQueriesDelta", { queries: ["a", "b"] }, place),
      ],
      { queries: ["a", "b"] },
    ],
    [
      "urls",
      [packet("openUrlUrls", { urls: ["a"] }, place), packet("openUrlUrls", { urls: ["b"] }, place)],
      { urls: ["a", "b"] },
    ],
    [
      "documents",
      [
        packet("openUrlDocuments", { documents: [{ documentId: "a" }] }, place),
        packet("openUrlDocuments", { documents: [{ documentId: "b" }] }, place),
      ],
      { documents: [{ documentId: "a" }, { documentId: "b" }] },
    ],
    [
      "text of a custom tool",
      [
        packet("customToolDelta", { responseType: CustomToolResponseType.TEXT, data: "a" }, place),
        packet("customToolDelta", { responseType: CustomToolResponseType.TEXT, data: "b" }, place),
      ],
      { data: "ab" },
    ],
  ])("merged: %s", (_, packets, value) => {
    expect(detailOf(...packets).map(({ payload }) => payload.value)).toMatchObject([value]);
  });

  test("JSON of a custom tool is not merged", () => {
    const json = packet("customToolDelta", { responseType: CustomToolResponseType.JSON, data: "{}" }, place);
    expect(detailOf(json, json).length).toBe(2);
  });

  test("is bounded, and the same however it was cut", () => {
    const output = `${"x".repeat(MAX_DETAIL_CHARS - 1)}😀${"y".repeat(50)}`;
    const texts = [1, 7, 1000, output.length].map((size) => {
      const packets: Packet[] = [];
      for (let i = 0; i < output.length;) {
        let end = Math.min(output.length, i + size * 37);
        if (output.charCodeAt(end - 1) === 0xd83d) end++;
        packets.push(packet("bashToolDelta", { stdout: output.slice(i, end) }, place));
        i = end;
      }
      const [merged] = detailOf(...packets);
      return merged!.payload.case === "bashToolDelta" ? merged!.payload.value.stdout : "";
    });
    expect(new Set(texts).size).toBe(1);
    expect(texts[0]!.length).toBe(MAX_DETAIL_CHARS + 1);
    const many = Array.from({ length: 500 }, () => packet("memoryToolDelta", { memoryText: "m" }, place));
    expect(detailOf(...many).length).toBe(MAX_DETAIL_PACKETS);
  });

  test("packets nested in a call that has no call of its own there are kept with it", () => {
    expect(detailOf(packet("bashToolStart", { cmd: "ls" }, at(1, 0, 4))).length).toBe(1);
    expect(detailOf(packet("bashToolStart", { cmd: "ls" }, at(7))).length).toBe(0);
  });
});

describe("agents", () => {
  test("a coding agent's thinking and answer", () => {
    const place = at(1);
    const { blocks } = laneOf(
      packet("codingAgentStart", { query: "q", repo: "r" }, place),
      packet("codingAgentThinkingDelta", { content: "a" }, place),
      packet("codingAgentThinkingDelta", { content: "b" }, place),
      packet("codingAgentFinal", { answer: "done" }, place),
      packet("sectionEnd", { status: SectionStatus.OK }, place),
    );
    expect(blocks).toMatchObject([
      {
        status: BlockStatus.DONE,
        block: {
          case: "agent",
          value: { task: "q", repo: "r", thinking: "ab", answer: "done", end: { status: SectionStatus.OK } },
        },
      },
    ]);
  });

  test("a research plan", () => {
    const { blocks } = laneOf(
      packet("deepResearchPlanStart", {}, at(0)),
      packet("deepResearchPlanDelta", { content: "1." }, at(0)),
      packet("sectionEnd", { status: SectionStatus.OK }, at(0)),
    );
    expect(blocks).toMatchObject([
      { status: BlockStatus.DONE, block: { case: "researchPlan", value: { text: "1." } } },
    ]);
  });
});

describe("citations", () => {
  test("have their document, found among those the lane has shown: by number, then by id", () => {
    const place = at(0);
    const cited = laneOf(
      callStart("c", place),
      packet(
        "openUrlDocuments",
        { documents: [{ documentId: "d1", title: "Other", citationNumber: 7 }] },
        place,
      ),
      callReady("c", place),
      ...callEnd("c", place),
      ...answer(at(1), "[1] [7] [9]"),
      packet("citationInfo", { citationNumber: 1, documentId: "d1", startChar: 0, endChar: 3 }, at(1)),
      packet("citationInfo", { citationNumber: 7, documentId: "d1" }, at(1)),
      packet("citationInfo", { citationNumber: 9, documentId: "d1" }, at(1)),
      packet("citationInfo", { citationNumber: 8, documentId: "nowhere" }, at(1)),
      packet("citationInfo", { citationNumber: 1, documentId: "d2" }, at(1)),
    );
    expect(
      cited.citations.map(({ number, document }) => [number, document!.documentId, document!.title]),
    ).toEqual([
      [1, "d1", "One"],
      [7, "d1", "Other"],
      [9, "d1", "One"],
      [8, "nowhere", ""],
    ]);
    expect(cited.citations[0]).toMatchObject({ startChar: 0, endChar: 3 });
  });
});

describe("beside the answer", () => {
  test("of the turn and of a lane", () => {
    const state = stateOf(
      started,
      packet("error", { code: ErrorCode.INTERNAL }, turn),
      packet("error", { code: ErrorCode.RATE_LIMIT }, lane),
      packet("statusUpdate", { action: "a" }, turn),
      packet("statusUpdate", { action: "b", statusId: "s" }, lane),
      packet("statusUpdate", { action: "b", statusId: "s", done: true }, lane),
      packet("sourceInfo", { documents: [{ documentId: "d" }] }, lane),
      packet("fileInfo", { file: { fileId: "f" } }, lane),
      packet("fileInfo", { file: { fileId: "f" } }, lane),
      packet("embedInfo", { embedId: "e", htmlFileId: "1" }, lane),
      packet("embedInfo", { embedId: "e", htmlFileId: "2", replace: true }, lane),
      packet("contextInfo", { droppedMessages: 2 }, lane),
      packet("sessionTitle", { title: "Title" }, turn),
      packet("sessionTags", { tags: ["x"] }, turn),
      packet("followUps", { followUps: ["and?"] }, turn),
      packet("extension", { type: "kept" }, turn),
      packet("extension", { type: "gone", transient: true }, turn),
      packet("userMessageAdded", { messageId: "m2" }, turn),
    );
    expect(state).toMatchObject({
      title: "Title",
      tags: ["x"],
      followUps: ["and?"],
      errors: [{ code: ErrorCode.INTERNAL }],
      statuses: [{ action: "a" }],
      extensions: [{ type: "kept" }],
      steeredMessages: [{ added: { messageId: "m2" }, seq: 18 }],
    });
    expect(state.lanes[0]).toMatchObject({
      errors: [{ code: ErrorCode.RATE_LIMIT }],
      statuses: [{ done: true }],
      sources: [{ documents: [{ documentId: "d" }] }],
      files: [{ fileId: "f" }],
      embeds: [{ htmlFileId: "2" }],
      context: [{ droppedMessages: 2 }],
    });
    expect(state.lanes[0]!.files.length).toBe(1);
  });

  test("status lines are bounded", () => {
    const many = Array.from({ length: 300 }, (_, i) => packet("statusUpdate", { action: `${i}` }, lane));
    const { statuses } = laneOf(...many);
    expect(statuses.length).toBe(100);
    expect(statuses.at(-1)!.action).toBe("299");
  });

  test("waits and client calls are there while they are open", () => {
    const open = [
      packet("waitStarted", { waitId: "w" }, lane),
      packet("clientCallRequest", { clientCallId: "cc", toolCallId: "c" }, turn),
      packet("clientCallClaimed", { clientCallId: "cc" }, turn),
    ];
    expect(stateOf(...open)).toMatchObject({
      waits: [{ started: { waitId: "w" }, modelIndex: 0 }],
      pendingCalls: [{ claimed: true, request: { clientCallId: "cc" } }],
    });
    const closed = stateOf(
      ...open,
      packet("waitEnded", { waitId: "w" }, lane),
      packet("clientCallResolved", { clientCallId: "cc" }, turn),
    );
    expect(closed).toMatchObject({ waits: [], pendingCalls: [] });
  });

  test("the end of the turn", () => {
    expect(
      stateOf(started, packet("overallStop", { outcome: TurnOutcome.STOPPED }, turn)).stop,
    ).toMatchObject({ outcome: TurnOutcome.STOPPED });
  });
});

test("fold - its work grows with the packets, not with their square: 20,000 blocks take no longer each than 2,000", () => {
  const perBlockMs = (blocks: number): number => {
    const state = emptyTurnState();
    const lane = lanePlacement(0);
    const startMs = performance.now();
    let seq = 0;
    for (let i = 0; i < blocks; i++) {
      const place = nextBlock(lane);
      for (const made of [
        packet("reasoningStart", {}, place),
        reasoningDelta("r", place),
        packet("reasoningDone", {}, place),
      ])
        applyPacket(state, { ...made, seq: ++seq });
    }
    return (performance.now() - startMs) / blocks;
  };
  perBlockMs(2_000); // warm up
  const few = Math.min(...[1, 2, 3].map(() => perBlockMs(2_000)));
  const many = Math.min(...[1, 2].map(() => perBlockMs(20_000)));
  // Quadratic work would make it ten times as long.
  expect(many).toBeLessThan(few * 4);
});

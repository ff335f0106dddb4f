/** What the tests of the pure core share: deltas by hand and at random, and whole turns run without any I/O. */
import { create, toBinary } from "@bufbuild/protobuf";
import fc from "fast-check";
import type { LaneState, TurnState } from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import { TurnStateSchema } from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import type { CompletionDelta } from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { CompletionDeltaSchema } from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { FinishReason } from "../../gen/turnwire/packet/v1/common_pb.js";
import type { Packet, Placement } from "../../gen/turnwire/packet/v1/packet_pb.js";
import { ToolCallStatus } from "../../gen/turnwire/packet/v1/tools_pb.js";
import type { ToolOutcomeRecord } from "./cycle.js";
import { nextAction, recordStep, recordToolResults, refuseCalls, startCycles } from "./cycle.js";
import { sectionStatusOf } from "./decode-calls.js";
import { finishStep, nextDelta, startStep } from "./decode.js";
import { fold } from "./fold.js";
import { GrammarChecker } from "./grammar.js";
import { overallStop } from "./close-open.js";
import { packet } from "./packets.js";
import { lanePlacement, lanePlacementOf, placementOf, placeToolPacket, turnPlacement } from "./placement.js";
import type { DecodedCall, StepOptions, StepOutcome } from "./step.js";

// ---- deltas

export const content = (text: string, blockIndex = 0): CompletionDelta =>
  delta("content", { text, blockIndex });
export const reasoning = (text: string, blockIndex = 0): CompletionDelta =>
  delta("reasoning", { text, blockIndex });
export const call = (
  blockIndex: number,
  fields: { callId?: string; name?: string; argumentsFragment?: string; complete?: boolean },
): CompletionDelta => delta("toolCall", { blockIndex, ...fields });
export const finish = (reason: FinishReason): CompletionDelta => delta("finish", { reason });

export function delta(kind: NonNullable<CompletionDelta["delta"]["case"]>, value: unknown): CompletionDelta {
  return create(CompletionDeltaSchema, { delta: { case: kind, value } as never });
}

// ---- steps

/** Tools of the tests: `search` streams nothing, `run_code` streams its arguments; others are unknown. */
export function stepOptions(overrides: Partial<StepOptions> = {}): StepOptions {
  let calls = 0;
  return {
    modelIndex: 0,
    cycle: 1,
    placement: lanePlacement(0),
    newCallId: () => `call-${++calls}`,
    toolByName: (name) => {
      if (name !== "search" && name !== "run_code") return undefined;
      return {
        toolId: `tool-${name}`,
        displayName: `The ${name}`,
        streamsArguments: name === "run_code",
        clientSide: false,
      };
    },
    ...overrides,
  };
}

export interface DecodedStep {
  readonly packets: Packet[];
  readonly outcome: StepOutcome;
}

export function decodeStep(
  deltas: readonly CompletionDelta[],
  overrides: Partial<StepOptions> = {},
): DecodedStep {
  const state = startStep(stepOptions(overrides));
  const packets = deltas.flatMap((each) => nextDelta(state, each));
  const end = finishStep(state, { kind: "done" });
  return { packets: [...packets, ...end.packets], outcome: end.outcome };
}

// ---- packets

/** Numbers packets as the turn's writer does. */
export function numbered(packets: readonly Packet[], from = 1): Packet[] {
  return packets.map((each, index) => ({ ...each, seq: from + index, tMs: (from + index) * 2 }));
}

/** A packet in one line: "1.0 toolCallStart search". For tables. */
export function brief(each: Packet): string {
  const place = each.placement;
  const at = place
    ? `${place.turnIndex}.${place.tabIndex}${place.subTurnIndex === undefined ? "" : `>${place.subTurnIndex}.${place.subTabIndex ?? 0}`}`
    : "-";
  return `${at} ${each.payload.case}${detailOf(each)}`;
}

function detailOf({ payload }: Packet): string {
  switch (payload.case) {
    case "agentResponseDelta":
      return ` ${payload.value.content}`;
    case "reasoningDelta":
      return ` ${payload.value.reasoning}`;
    case "toolCallArgumentDelta":
      return ` ${payload.value.raw}`;
    case "agentResponseDone":
      return payload.value.kind === 1 ? " answer" : payload.value.kind === 2 ? " narration" : " ?";
    case "toolCallStart":
      return ` ${payload.value.toolName}`;
    case "toolCallReady":
      return ` ${payload.value.argumentsJson}${payload.value.argumentsValid ? "" : " invalid"}`;
    case "toolCallResult":
      return ` ${ToolCallStatus[payload.value.status]}`;
    case "topLevelBranching":
      return ` ${payload.value.numParallelBranches}`;
    default:
      return "";
  }
}

/** The violations of a whole turn. */
export function violations(packets: readonly Packet[]): string[] {
  const checker = new GrammarChecker();
  return [...packets.flatMap((each) => checker.push(each)), ...checker.finish()];
}

/** Two states are the same when their encodings are. */
export function bytesOf(state: TurnState): string {
  return Buffer.from(toBinary(TurnStateSchema, state)).toString("hex");
}

/** What a reader sees of a lane, without seqs: equal however the deltas were cut. */
export function shown(lane: LaneState): unknown {
  return {
    text: lane.text,
    blocks: lane.blocks.map(({ placement, status, block }) => {
      const at = [placement?.turnIndex, placement?.tabIndex, placement?.subTurnIndex, placement?.subTabIndex];
      if (block.case === "tool") {
        const { call: started, argumentsJson, ready, result } = block.value;
        return { at, status, call: started, argumentsJson, ready, result };
      }
      return { at, status, block: { ...block } };
    }),
  };
}

// ---- whole turns

export interface SimulatedTool {
  readonly status: ToolCallStatus;
  readonly stopsTurn: boolean;
  readonly packets: readonly Packet[];
}

export interface SimulatedLane {
  /** The model streams of the lane, one per cycle; when they run out the model answers "done". */
  readonly steps: readonly (readonly CompletionDelta[])[];
  readonly tools: readonly SimulatedTool[];
  readonly maxCycles: number;
}

/** All packets of one lane, LaneStarted to LaneEnd, as the orchestrator would write them. */
export function simulateLane(modelIndex: number, plan: SimulatedLane): Packet[] {
  const out: Packet[] = [];
  const place = lanePlacementOf(modelIndex);
  const placement = lanePlacement(modelIndex);
  let calls = 0;
  let state = startCycles({ maxCycles: plan.maxCycles });
  out.push(packet("laneStarted", { modelId: "m" }, place));
  for (;;) {
    const action = nextAction(state);
    if (action.kind === "finish") {
      if (state.cycle > 0) {
        out.push(...refuseCalls(action.refusedCalls));
        out.push(
          packet("cycleEnd", { cycle: state.cycle, finishReason: action.outcome.finishReason }, place),
        );
      }
      out.push(packet("laneEnd", { ...action.outcome }, place));
      return out;
    }
    if (action.kind === "call_model") {
      out.push(
        packet(
          "cycleStarted",
          { cycle: action.cycle, modelId: "m", attempt: 1, toolChoice: action.toolChoice },
          place,
        ),
      );
      const step = startStep(
        stepOptions({
          modelIndex,
          cycle: action.cycle,
          placement,
          modelId: "m",
          toolChoice: action.toolChoice,
          toolsOffered: action.tools.kind !== "none",
          newCallId: () => `call-${modelIndex}-${++calls}`,
        }),
      );
      for (const each of plan.steps[action.cycle - 1] ?? [content("done"), finish(FinishReason.STOP)])
        out.push(...nextDelta(step, each));
      const end = finishStep(step, { kind: "done" });
      out.push(...end.packets);
      state = recordStep(state, end.outcome);
      continue;
    }
    const records: ToolOutcomeRecord[] = action.calls.map((each, index) =>
      runTool(out, each, plan.tools[index % Math.max(1, plan.tools.length)]),
    );
    out.push(packet("cycleEnd", { cycle: action.cycle, finishReason: FinishReason.TOOL_CALLS }, place));
    state = recordToolResults(state, records);
  }
}

function runTool(
  out: Packet[],
  { callId, placement, argumentsValid }: DecodedCall,
  tool: SimulatedTool | undefined,
): ToolOutcomeRecord {
  const status = argumentsValid ? (tool?.status ?? ToolCallStatus.OK) : ToolCallStatus.ERROR;
  if (argumentsValid) for (const inner of tool?.packets ?? []) out.push(placeToolPacket(inner, placement));
  out.push(packet("toolCallResult", { callId, status, modelText: "result" }, placement));
  out.push(packet("sectionEnd", { status: sectionStatusOf(status) }, placement));
  return { callId, status, stopsTurn: tool?.stopsTurn ?? false };
}

/** The numbered packets of a whole turn. `order` says which lane writes next, as an endless pattern. */
export function simulateTurn(lanes: readonly SimulatedLane[], order: readonly number[] = [0]): Packet[] {
  const started = packet(
    "turnStarted",
    {
      turnId: "turn-1",
      sessionId: "session-1",
      userMessageId: "message-1",
      lanes: lanes.map((_, modelIndex) => ({
        modelIndex,
        modelId: "m",
        assistantMessageId: `answer-${modelIndex}`,
      })),
      input: { text: "hello" },
    },
    turnPlacement(),
  );
  const queues = lanes.map((plan, index) => simulateLane(index, plan));
  const packets: Packet[] = [started];
  for (let i = 0; queues.some((queue) => queue.length > 0); i++) {
    const pick = order[i % order.length]! % queues.length;
    const queue = queues[pick]!.length > 0 ? queues[pick]! : queues.find((each) => each.length > 0)!;
    packets.push(queue.shift()!);
  }
  const soFar = numbered(packets);
  return [...soFar, ...numbered([overallStop(fold(soFar))], soFar.length + 1)];
}

// ---- at random

/** Texts with everything that hurts: pairs, halves of pairs, NUL, quotes, braces. */
export const anyText = fc
  .array(
    fc.oneof(
      fc.string({ unit: "grapheme", maxLength: 5 }),
      fc.constantFrom("\ud83d", "\ude00", "\0", "😀", "é", " ", '"', "{", "}", "\\", "[1]", "[stop"),
    ),
    { maxLength: 6 },
  )
  .map((parts) => parts.join(""));

const anyArguments = fc.oneof(
  {
    weight: 3,
    arbitrary: fc
      .dictionary(
        fc.constantFrom("code", "q", "n", "__proto__"),
        fc.oneof(anyText, fc.integer(), fc.array(anyText, { maxLength: 2 })),
      )
      .map((value) => JSON.stringify(value)),
  },
  { weight: 1, arbitrary: anyText },
  { weight: 1, arbitrary: fc.constantFrom("", "{}", "null", '{"code":"a', '{"code":"\\ud83d\\ude00"}') },
);

const anyPiece: fc.Arbitrary<readonly CompletionDelta[]> = fc.oneof(
  { weight: 4, arbitrary: anyText.map((text) => [content(text)]) },
  {
    weight: 3,
    arbitrary: fc
      .tuple(anyText, fc.integer({ min: 0, max: 1 }))
      .map(([text, block]) => [reasoning(text, block)]),
  },
  {
    weight: 3,
    arbitrary: fc
      .record({
        block: fc.integer({ min: 2, max: 5 }),
        name: fc.constantFrom("search", "run_code", "nothing_known"),
        callId: fc.constantFrom("", "a", "b"),
        text: anyArguments,
        complete: fc.boolean(),
      })
      .map(({ block, name, callId, text, complete }) => [
        call(block, { name, callId }),
        call(block, { argumentsFragment: text, complete }),
      ]),
  },
  { weight: 1, arbitrary: anyArguments.map((text) => [call(6, { argumentsFragment: text })]) },
  { weight: 1, arbitrary: fc.constantFrom("search", "run_code").map((name) => [call(6, { name })]) },
  { weight: 1, arbitrary: anyText.map((text) => [delta("refusal", text)]) },
  {
    weight: 1,
    arbitrary: fc.constant([delta("providerState", { provider: "p", data: new Uint8Array([1]) })]),
  },
  {
    weight: 1,
    arbitrary: fc.nat(100).map((inputTokens) => [delta("usage", { usage: { inputTokens }, attempt: 1 })]),
  },
  {
    weight: 1,
    arbitrary: fc.constant([delta("citation", { document: { documentId: "d", url: "https://ex.test" } })]),
  },
  { weight: 1, arbitrary: fc.constant([delta("serverToolCall", { name: "web", callId: "w" })]) },
);

const anyFinish = fc.constantFrom(
  FinishReason.UNSPECIFIED,
  FinishReason.STOP,
  FinishReason.LENGTH,
  FinishReason.TOOL_CALLS,
  FinishReason.CONTENT_FILTER,
);

/** One model stream, as pieces that may still be cut. */
export const anyStream: fc.Arbitrary<readonly CompletionDelta[]> = fc
  .tuple(fc.array(anyPiece, { maxLength: 8 }), anyFinish)
  .map(([pieces, reason]) => [...pieces.flat(), finish(reason)]);

/** A stream in which an attempt is given up somewhere. */
export const anyRetriedStream: fc.Arbitrary<readonly CompletionDelta[]> = fc
  .tuple(anyStream, anyStream, fc.constantFrom("", "other"))
  .map(([first, second, nextModelId]) => [
    ...first.filter((each) => each.delta.case !== "finish"),
    delta("attemptBoundary", { failedAttempt: 1, nextModelId }),
    ...second,
  ]);

const toolPackets: fc.Arbitrary<readonly Packet[]> = fc.constantFrom(
  [],
  [
    packet("bashToolStart", { cmd: "ls" }, undefined),
    packet("bashToolDelta", { stdout: "a" }, undefined),
    packet("bashToolDelta", { stdout: "b", exitCode: 0 }, undefined),
  ],
  [packet("openUrlStart", {}, undefined), packet("openUrlUrls", { urls: ["https://ex.test"] }, undefined)],
  [
    packet("codingAgentStart", { query: "q" }, undefined),
    packet("codingAgentThinkingDelta", { content: "hm" }, undefined),
    packet("bashToolStart", { cmd: "ls" }, sub(0)),
    packet("codingAgentFinal", { answer: "a" }, undefined),
  ],
  [
    packet("researchAgentStart", { researchTask: "t" }, undefined),
    packet("intermediateReportStart", {}, undefined),
    packet("intermediateReportDelta", { content: "r" }, undefined),
  ],
);

function sub(subTurnIndex: number): Placement {
  return placementOf(0, 0, subTurnIndex, undefined, undefined);
}

const anyTool: fc.Arbitrary<SimulatedTool> = fc.record({
  status: fc.constantFrom(
    ToolCallStatus.OK,
    ToolCallStatus.ERROR,
    ToolCallStatus.TIMEOUT,
    ToolCallStatus.DENIED,
  ),
  stopsTurn: fc.boolean(),
  packets: toolPackets,
});

const anyLane: fc.Arbitrary<SimulatedLane> = fc.record({
  steps: fc.array(fc.oneof({ weight: 3, arbitrary: anyStream }, { weight: 1, arbitrary: anyRetriedStream }), {
    maxLength: 4,
  }),
  tools: fc.array(anyTool, { maxLength: 3 }),
  maxCycles: fc.integer({ min: 1, max: 4 }),
});

/** The numbered packets of a whole turn of one to three lanes. */
export const anyTurn: fc.Arbitrary<Packet[]> = fc
  .tuple(
    fc.array(anyLane, { minLength: 1, maxLength: 3 }),
    fc.array(fc.nat(2), { minLength: 1, maxLength: 7 }),
  )
  .map(([lanes, order]) => simulateTurn(lanes, order));

/** Cuts the texts of a stream anew: positions as fractions of each text. */
export function recut(
  deltas: readonly CompletionDelta[],
  cutsOf: (length: number) => readonly number[],
): CompletionDelta[] {
  return deltas.flatMap((each) => {
    const { delta: inner } = each;
    if (inner.case === "content")
      return pieces(inner.value.text, cutsOf).map((text) => content(text, inner.value.blockIndex));
    if (inner.case === "reasoning")
      return pieces(inner.value.text, cutsOf).map((text) => reasoning(text, inner.value.blockIndex));
    if (inner.case === "refusal") return pieces(inner.value, cutsOf).map((text) => delta("refusal", text));
    if (inner.case === "toolCall" && inner.value.argumentsFragment !== "") {
      const cut = pieces(inner.value.argumentsFragment, cutsOf);
      return cut.map((argumentsFragment, index) =>
        delta("toolCall", {
          ...inner.value,
          argumentsFragment,
          complete: inner.value.complete && index === cut.length - 1,
        }),
      );
    }
    return [each];
  });
}

function pieces(text: string, cutsOf: (length: number) => readonly number[]): string[] {
  const cuts = [0, ...[...cutsOf(text.length)].sort((a, b) => a - b), text.length];
  return cuts.slice(1).map((end, index) => text.slice(cuts[index], end));
}

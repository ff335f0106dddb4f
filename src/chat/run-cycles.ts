/** The middle loop: one lane, cycle after cycle. The policy (turn/cycle.ts) says what comes next; this only obeys. */
import { create, toBinary } from "@bufbuild/protobuf";
import { timestampMs } from "@bufbuild/protobuf/wkt";
import {
  ModelMessageSchema,
  StreamCompletionRequestSchema,
  ToolChoiceMode,
  type ModelMessage,
  type StreamCompletionRequest,
} from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import type { Usage } from "../../gen/turnwire/packet/v1/common_pb.js";
import type { Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import {
  nextAction,
  recordStep,
  recordToolResults,
  refuseCalls,
  startCycles,
  type LaneAction,
  type LaneOutcome,
} from "../turn/cycle.js";
import type { StepOptions, StepOutcome } from "../turn/decode.js";
import { appendStep } from "../turn/history.js";
import { addUsage, packet, zeroUsage } from "../turn/packets.js";
import { lanePlacement, lanePlacementOf, type LanePlacement } from "../turn/placement.js";
import type { LanePlan, TurnPlan } from "./resolve-plan.js";
import type { TurnContext } from "./active-turn.js";
import { LaneSources } from "./lane-sources.js";
import { runTools } from "./run-tools.js";
import { streamStep, type ModelCall } from "./stream-step.js";

type CallModel = Extract<LaneAction, { kind: "call_model" }>;

/** One lane's run: what it needs besides the turn's plan. */
export interface LaneRun {
  readonly turn: TurnContext;
  readonly plan: TurnPlan;
  readonly lane: LanePlan;
  /** The conversation as assembled at the start of the lane. */
  readonly messages: readonly ModelMessage[];
  readonly signal: AbortSignal;
}

/** Yields the lane's packets from LaneStarted to LaneEnd. Throws the signal's reason when the turn or lane is ended. */
export async function* runCycles(run: LaneRun): AsyncGenerator<readonly Packet[], void> {
  const { plan, lane } = run;
  const placement = lanePlacement(lane.modelIndex);
  const say = lanePackets(lane);
  let messages = run.messages;
  let usage = zeroUsage();
  let step: StepOutcome | undefined;
  const sources = new LaneSources(plan.citationMode);
  let state = startCycles({ maxCycles: plan.maxCycles, forcedToolId: plan.forcedToolId });
  yield [say.started()];
  for (;;) {
    const action = nextAction(state);
    switch (action.kind) {
      case "call_model": {
        yield [say.cycleStarted(action)];
        const request = completionRequest(
          run,
          [...messages, ...sources.reminder()],
          action,
          step?.reasoningOpen,
        );
        if (!step) await saveInput(run, request);
        step = yield* streamStep(modelCall(run, request, stepOptions(run, action, placement, sources)));
        usage = addUsage(usage, step.usage);
        state = recordStep(state, step);
        break;
      }
      case "run_tools": {
        await saveCycle(run, action.cycle, step!);
        const results = yield* runTools({ ...run, sources, cycle: action.cycle, calls: action.calls });
        yield [say.cycleEnd(action.cycle, step!)];
        messages = appendStep(messages, step!, results);
        for (const { documents } of results) sources.add(documents);
        state = recordToolResults(state, results);
        break;
      }
      case "finish":
        yield [
          ...refuseCalls(action.refusedCalls),
          say.cycleEnd(state.cycle, step!),
          ...say.end(action.outcome, step!, usage),
        ];
        return;
    }
  }
}

/** The packets of a lane that belong to none of its blocks. */
function lanePackets(lane: LanePlan) {
  const here = lanePlacementOf(lane.modelIndex);
  const { modelId } = lane.model;
  return {
    started: () => packet("laneStarted", { modelId }, here),
    cycleStarted: ({ cycle, toolChoice }: CallModel) =>
      packet("cycleStarted", { cycle, modelId, attempt: 1, toolChoice }, here),
    cycleEnd: (cycle: number, { finishReason, shownUsage }: StepOutcome) =>
      packet("cycleEnd", { cycle, finishReason, usage: shownUsage }, here),
    end: ({ outcome, finishReason, error }: LaneOutcome, step: StepOutcome, usage: Usage) => {
      const answeredBy = step.modelId || modelId;
      const told = error && { ...error, modelId: answeredBy };
      const end = packet("laneEnd", { outcome, finishReason, usage, modelId: answeredBy, error: told }, here);
      return told ? [packet("error", told, here), end] : [end];
    },
  };
}

/** The input as assembled, once per lane: what a cycle can be repeated from. */
async function saveInput({ turn, lane }: LaneRun, request: StreamCompletionRequest): Promise<void> {
  await turn.checkpoint({
    kind: "input",
    modelIndex: lane.modelIndex,
    data: toBinary(StreamCompletionRequestSchema, request),
  });
}

/** The raw assistant message and its calls, before any of them is dispatched. */
async function saveCycle({ turn, lane }: LaneRun, cycle: number, step: StepOutcome): Promise<void> {
  await turn.checkpoint({
    kind: "cycle",
    modelIndex: lane.modelIndex,
    cycle,
    data: toBinary(ModelMessageSchema, step.assistantMessage),
  });
}

function modelCall(run: LaneRun, request: StreamCompletionRequest, step: StepOptions): ModelCall {
  const { turn, signal } = run;
  const { models, clock, logger } = turn.deps;
  const saveText = (name: string, text: string): Promise<string> => turn.saveTextFile(name, text);
  return { models, request, step, clock, logger, saveText, signal };
}

function completionRequest(
  run: LaneRun,
  messages: readonly ModelMessage[],
  action: CallModel,
  reasoningOpen = false,
): StreamCompletionRequest {
  const { plan, lane, turn } = run;
  const tools = lane.model.tools ? plan.tools : [];
  const offered = action.tools.kind === "none" ? [] : tools;
  const wanted = action.tools.kind === "one" ? action.tools.toolId : undefined;
  const forced = tools.find((tool) => tool.toolId === wanted);
  return create(StreamCompletionRequestSchema, {
    caller: {
      tenantId: turn.row.tenantId,
      userId: turn.row.userId,
      groups: [...plan.groups],
      turnId: turn.row.turnId,
      modelIndex: lane.modelIndex,
      cycle: action.cycle,
      epoch: turn.epoch,
      purpose: "chat",
    },
    idempotencyKey: `${turn.row.turnId}:${lane.modelIndex}:${action.cycle}:${turn.epoch}`,
    input: {
      modelId: lane.model.modelId,
      messages: [...messages],
      tools: offered.map((tool) => ({
        name: tool.name,
        description: tool.description,
        parametersJsonSchema: tool.parametersJsonSchema,
      })),
      toolChoice: {
        mode: forced ? ToolChoiceMode.ONE : offered.length > 0 ? ToolChoiceMode.AUTO : ToolChoiceMode.NONE,
        toolName: forced?.name ?? "",
      },
      sampling: lane.sampling,
      reasoningEffort: lane.reasoningEffort,
      reasoningOpen,
    },
  });
}

function stepOptions(
  run: LaneRun,
  action: CallModel,
  placement: LanePlacement,
  sources: LaneSources,
): StepOptions {
  const { plan, turn, lane } = run;
  return {
    modelIndex: lane.modelIndex,
    cycle: action.cycle,
    placement,
    newCallId: turn.deps.newId,
    toolByName: (name) => plan.tools.find((tool) => tool.name === name),
    preAnswerMs: Math.max(
      0,
      Math.round(turn.deps.clock.now().getTime() - timestampMs(plan.started.startedAt!)),
    ),
    citations: sources.citations(),
    toolsOffered: action.tools.kind !== "none",
    modelId: lane.model.modelId,
    toolChoice: action.toolChoice,
  };
}

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
import type { LanePlan, TurnPlan } from "./accept-turn.js";
import type { TurnContext } from "./active-turn.js";
import { runTools } from "./run-tools.js";
import { streamStep } from "./stream-step.js";

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
  const { plan, lane, turn } = run;
  const here = lanePlacementOf(lane.modelIndex);
  const placement = lanePlacement(lane.modelIndex);
  let messages = run.messages;
  let usage = zeroUsage();
  let step: StepOutcome | undefined;
  let state = startCycles({ maxCycles: plan.maxCycles, forcedToolId: plan.forcedToolId });
  yield [packet("laneStarted", { modelId: lane.model.modelId }, here)];
  for (;;) {
    const action = nextAction(state);
    switch (action.kind) {
      case "call_model": {
        yield [
          packet(
            "cycleStarted",
            { cycle: action.cycle, modelId: lane.model.modelId, attempt: 1, toolChoice: action.toolChoice },
            here,
          ),
        ];
        const request = completionRequest(run, messages, action);
        if (!step)
          await turn.checkpoint({
            kind: "input",
            modelIndex: lane.modelIndex,
            data: toBinary(StreamCompletionRequestSchema, request),
          });
        step = yield* streamStep({
          models: turn.deps.models,
          request,
          step: stepOptions(run, action, placement),
          clock: turn.deps.clock,
          signal: run.signal,
        });
        usage = addUsage(usage, step.usage);
        yield [
          packet(
            "cycleEnd",
            { cycle: action.cycle, finishReason: step.finishReason, usage: step.usage },
            here,
          ),
        ];
        state = recordStep(state, step);
        break;
      }
      case "run_tools": {
        const cycleMessage = toBinary(ModelMessageSchema, step!.assistantMessage);
        await turn.checkpoint({
          kind: "cycle",
          modelIndex: lane.modelIndex,
          cycle: action.cycle,
          data: cycleMessage,
        });
        const results = yield* runTools({
          turn,
          plan,
          lane,
          cycle: action.cycle,
          calls: action.calls,
          signal: run.signal,
        });
        messages = appendStep(messages, step!, results);
        state = recordToolResults(state, results);
        break;
      }
      case "finish":
        yield [...refuseCalls(action.refusedCalls), ...laneEnd(lane, step, action.outcome, usage)];
        return;
    }
  }
}

function laneEnd(
  lane: LanePlan,
  step: StepOutcome | undefined,
  end: LaneOutcome,
  usage: Usage,
): readonly Packet[] {
  const here = lanePlacementOf(lane.modelIndex);
  const modelId = step?.modelId || lane.model.modelId;
  const error = end.error && { ...end.error, modelId };
  const ended = packet(
    "laneEnd",
    { outcome: end.outcome, finishReason: end.finishReason, usage, modelId, error },
    here,
  );
  return error ? [packet("error", error, here), ended] : [ended];
}

function completionRequest(
  run: LaneRun,
  messages: readonly ModelMessage[],
  action: CallModel,
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
      sampling: lane.selection?.sampling,
      reasoningEffort: lane.selection?.reasoningEffort,
    },
  });
}

function stepOptions(run: LaneRun, action: CallModel, placement: LanePlacement): StepOptions {
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
    toolsOffered: action.tools.kind !== "none",
    modelId: lane.model.modelId,
    toolChoice: action.toolChoice,
  };
}

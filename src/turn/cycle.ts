/**
 * The policy of a lane's cycles: call the model, run the tools it asked for, call it again, until it answers, the lane is
 * stopped, or its cycles are used up. A pure reducer: the loop asks `nextAction`, obeys, and records what came of it.
 *
 * Rules: the last cycle offers no tools, so that it must answer; a forced tool is forced in the first cycle only; after a
 * tool that ends the turn one more cycle comes, without tools. Calls made where none were offered are refused.
 */
import type { TurnError as TurnErrorMessage, FinishReason } from "../../gen/turnwire/packet/v1/common_pb.js";
import { ErrorCode, TurnOutcome } from "../../gen/turnwire/packet/v1/common_pb.js";
import { SectionStatus, ToolChoiceKind } from "../../gen/turnwire/packet/v1/control_pb.js";
import type { Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import { ToolCallStatus } from "../../gen/turnwire/packet/v1/tools_pb.js";
import { assertNever } from "../lib/assert-never.js";
import { TurnError } from "../lib/errors.js";
import { errorMessage, packet } from "./packets.js";
import type { DecodedCall, StepOutcome } from "./step.js";

export interface CycleOptions {
  /** Model calls a lane may make; at least 1. */
  readonly maxCycles: number;
  /** Tool that the first cycle must call. Not forced when there is one cycle only: nothing could read its result. */
  readonly forcedToolId?: string;
  /** Cycles that an earlier owner of the turn completed. Default 0. */
  readonly completedCycles?: number;
}

/** How a lane ends: what its LaneEnd says. */
export interface LaneOutcome {
  readonly outcome: TurnOutcome;
  readonly finishReason: FinishReason;
  readonly error?: TurnErrorMessage;
}

/** Which tools a model call is offered. */
export type OfferedTools =
  { readonly kind: "all" } | { readonly kind: "none" } | { readonly kind: "one"; readonly toolId: string };

export type LaneAction =
  /** `cycle` counts from 1. */
  | {
      readonly kind: "call_model";
      readonly cycle: number;
      readonly tools: OfferedTools;
      readonly toolChoice: ToolChoiceKind;
    }
  | { readonly kind: "run_tools"; readonly cycle: number; readonly calls: readonly DecodedCall[] }
  /** `refusedCalls` are ready and must be closed with `refuseCalls` before the cycle ends. */
  | { readonly kind: "finish"; readonly outcome: LaneOutcome; readonly refusedCalls: readonly DecodedCall[] };

/** Opaque to callers; a new one at each record. */
export interface LaneCycleState {
  readonly options: CycleOptions;
  /** Model calls made. */
  readonly cycle: number;
  /** A tool that ends the turn has run. */
  readonly toolsEnded: boolean;
  readonly phase:
    | { readonly kind: "call_model" }
    | { readonly kind: "run_tools"; readonly calls: readonly DecodedCall[] }
    | {
        readonly kind: "finish";
        readonly outcome: LaneOutcome;
        readonly refusedCalls: readonly DecodedCall[];
      };
}

/** What became of one call, as far as the policy cares. */
export interface ToolOutcomeRecord {
  readonly callId: string;
  readonly status: ToolCallStatus;
  /** The tool's `stops_turn`: after it the model answers and calls nothing more. */
  readonly stopsTurn: boolean;
}

const REFUSED_TEXT = "No more tool calls can be made in this turn.";

/** A lane before its first model call (or before the one after `completedCycles`). */
export function startCycles(options: CycleOptions): LaneCycleState {
  return { options, cycle: options.completedCycles ?? 0, toolsEnded: false, phase: { kind: "call_model" } };
}

/** What to do now. */
export function nextAction(state: LaneCycleState): LaneAction {
  const { phase } = state;
  switch (phase.kind) {
    case "call_model": {
      const tools = offeredTools(state);
      return { kind: "call_model", cycle: state.cycle + 1, tools, toolChoice: toolChoiceOf(tools) };
    }
    case "run_tools":
      return { kind: "run_tools", cycle: state.cycle, calls: phase.calls };
    case "finish":
      return { kind: "finish", outcome: phase.outcome, refusedCalls: phase.refusedCalls };
    default:
      return assertNever(phase, "phase");
  }
}

/** Records how the model call that `nextAction` asked for came out. */
export function recordStep(state: LaneCycleState, step: StepOutcome): LaneCycleState {
  const offered = offeredTools(state);
  const next = { ...state, cycle: state.cycle + 1 };
  const finish = (outcome: TurnOutcome, error?: TurnErrorMessage): LaneCycleState => ({
    ...next,
    phase: {
      kind: "finish",
      outcome: { outcome, finishReason: step.finishReason, ...(error && { error }) },
      refusedCalls: step.calls,
    },
  });
  switch (step.kind) {
    case "answered":
      return finish(TurnOutcome.COMPLETED);
    case "stopped":
      return finish(TurnOutcome.STOPPED);
    case "failed":
      return finish(TurnOutcome.ERROR, step.error);
    case "wants_tools":
      if (offered.kind !== "none") return { ...next, phase: { kind: "run_tools", calls: step.calls } };
      if (step.text !== "") return finish(TurnOutcome.COMPLETED);
      return finish(TurnOutcome.ERROR, errorMessage(new TurnError(ErrorCode.CYCLE_LIMIT), step.modelId));
    default:
      return assertNever(step.kind, "step outcome");
  }
}

/** Records that the calls `nextAction` asked to run are settled, whatever their results. */
export function recordToolResults(
  state: LaneCycleState,
  results: readonly ToolOutcomeRecord[],
): LaneCycleState {
  const toolsEnded = state.toolsEnded || results.some((result) => result.stopsTurn);
  return { ...state, toolsEnded, phase: { kind: "call_model" } };
}

/** The result and end packets of calls that are not run any more. */
export function refuseCalls(calls: readonly DecodedCall[]): Packet[] {
  return calls.flatMap(({ callId, placement }) => [
    packet("toolCallResult", { callId, status: ToolCallStatus.ERROR, modelText: REFUSED_TEXT }, placement),
    packet("sectionEnd", { status: SectionStatus.ERROR, message: REFUSED_TEXT }, placement),
  ]);
}

function offeredTools({ options, cycle, toolsEnded }: LaneCycleState): OfferedTools {
  if (toolsEnded || cycle + 1 >= options.maxCycles) return { kind: "none" };
  if (cycle === 0 && options.forcedToolId) return { kind: "one", toolId: options.forcedToolId };
  return { kind: "all" };
}

function toolChoiceOf(tools: OfferedTools): ToolChoiceKind {
  switch (tools.kind) {
    case "all":
      return ToolChoiceKind.AUTO;
    case "none":
      return ToolChoiceKind.NONE;
    case "one":
      return ToolChoiceKind.ONE;
  }
}

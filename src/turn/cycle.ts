import type { TurnError, FinishReason, TurnOutcome } from "../../gen/turnwire/packet/v1/common_pb.js";
import type { ToolChoiceKind } from "../../gen/turnwire/packet/v1/control_pb.js";
import type { Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import type { ToolCallStatus } from "../../gen/turnwire/packet/v1/tools_pb.js";
import type { DecodedCall, StepOutcome } from "./step.js";
export interface CycleOptions { readonly maxCycles: number; readonly forcedToolId?: string; readonly completedCycles?: number }
/** Opaque to callers; never mutated. */
export interface LaneCycleState { readonly options: CycleOptions }
/** How a lane ends: what LaneEnd says. */
export interface LaneOutcome { readonly outcome: TurnOutcome; readonly finishReason: FinishReason; readonly error?: TurnError }
/** Which tools a model call is offered. */
export type OfferedTools = { readonly kind: "all" } | { readonly kind: "none" } | { readonly kind: "one"; readonly toolId: string };
export type LaneAction =
  | { readonly kind: "call_model"; readonly cycle: number; readonly tools: OfferedTools; readonly toolChoice: ToolChoiceKind }
  | { readonly kind: "run_tools"; readonly cycle: number; readonly calls: readonly DecodedCall[] }
  | { readonly kind: "finish"; readonly outcome: LaneOutcome; readonly refusedCalls: readonly DecodedCall[] };
export interface ToolOutcomeRecord { readonly callId: string; readonly status: ToolCallStatus; readonly stopsTurn: boolean }
export function startCycles(_options: CycleOptions): LaneCycleState { throw new Error("to come"); }
export function recordStep(_state: LaneCycleState, _outcome: StepOutcome): LaneCycleState { throw new Error("to come"); }
export function recordToolResults(_state: LaneCycleState, _results: readonly ToolOutcomeRecord[]): LaneCycleState { throw new Error("to come"); }
export function nextAction(_state: LaneCycleState): LaneAction { throw new Error("to come"); }
/** The result and end packets of calls that are not run any more. */
export function refuseCalls(_calls: readonly DecodedCall[]): Packet[] { throw new Error("to come"); }

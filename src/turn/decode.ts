import type { CompletionDelta } from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import type { Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import type { StepEnd, StepOptions, StepOutcome } from "./step.js";
export type { DecodedCall, StepEnd, StepOptions, StepOutcome, StepTool } from "./step.js";
/** The decoder's state; opaque, owned by one step. */
export interface StepState { readonly options: StepOptions }
/** Starts decoding one model stream. */
export function startStep(_options: StepOptions): StepState { throw new Error("to come"); }
/** The packets that one delta comes to (seq 0, t_ms 0). `tMs` is used for durations only. */
export function nextDelta(_state: StepState, _delta: CompletionDelta, _tMs = 0): Packet[] { throw new Error("to come"); }
/** Closes what is open and says what the step came to. Call exactly once. */
export function finishStep(_state: StepState, _end: StepEnd, _tMs = 0): { packets: Packet[]; outcome: StepOutcome } { throw new Error("to come"); }
/** True when the stream said how it finished (FinishDelta or error). A stream that just ends was cut off. */
export function hasFinished(_state: StepState): boolean { throw new Error("to come"); }

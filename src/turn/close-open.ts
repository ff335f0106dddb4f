import type { TurnState } from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import type { StopReason, TurnError, Usage } from "../../gen/turnwire/packet/v1/common_pb.js";
import type { Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import type { ToolCallResult } from "../../gen/turnwire/packet/v1/tools_pb.js";
export interface CloseHow {
  readonly kind: "stopped" | "error" | "interrupted";
  readonly stopReason?: StopReason;
  readonly error?: TurnError;
  readonly settledResults?: ReadonlyMap<string, ToolCallResult>;
  readonly inDoubtCallIds?: ReadonlySet<string>;
  /** Whole arguments of calls whose ToolCallReady may not be in the log (from the cycle's checkpoint). */
  readonly argumentsJson?: ReadonlyMap<string, string>;
  /** Close this lane only; default all. */
  readonly modelIndex?: number;
  /** Usage of lanes where the caller knows more than the log; default: what the fold counted. */
  readonly usageByLane?: ReadonlyMap<number, Usage>;
}
export function closeOpen(_state: TurnState, _how: CloseHow): Packet[] { throw new Error("to come"); }
/** The terminal packet of a turn whose lanes have all ended. `how`: set when the turn was stopped, failed or interrupted. */
export function overallStop(_state: TurnState, _how?: CloseHow): Packet { throw new Error("to come"); }

/** What the orchestrator needs from outside, passed in as one object by src/main. */
import type {
  StreamCompletionRequest,
  StreamCompletionResponse,
  Model,
} from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import type {
  ExecuteToolRequest,
  ExecuteToolResponse,
  Tool,
} from "../../gen/turnwire/tool/v1/tool_service_pb.js";
import type { Clock } from "../lib/clock.js";
import type { Logger } from "../lib/log.js";
import type { LoopTick } from "../lib/loop-tick.js";
import type { Principal } from "../lib/rpc/service-binding.js";
import type { ReplayLog } from "../replay/replay-log.js";
import type { Store } from "../store/store.js";

/** The llm peer, seen from here. Errors are TurnErrors; a break or an abort cancels the call upstream at once. */
export interface ModelPort {
  streamCompletion(
    request: StreamCompletionRequest,
    signal: AbortSignal,
  ): AsyncIterable<StreamCompletionResponse>;
  listModels(principal: Principal, signal: AbortSignal): Promise<readonly Model[]>;
}

/** The tool peer, seen from here. */
export interface ToolPort {
  executeTool(request: ExecuteToolRequest, signal: AbortSignal): AsyncIterable<ExecuteToolResponse>;
  listTools(principal: Principal, signal: AbortSignal): Promise<readonly Tool[]>;
}

/** Bounds and defaults of the orchestrator; every field has a default in `defaultChatLimits`. */
export interface ChatLimits {
  /** Model calls per turn and lane when the request sets none. TURNWIRE_MAX_CYCLES. */
  readonly maxCycles: number;
  /** Time a turn may take, ms, when the request sets none, and the most it may ask for. TURNWIRE_TURN_DEADLINE_MS. */
  readonly turnDeadlineMs: number;
  /** Idle time after which a reader gets a heartbeat, ms. TURNWIRE_HEARTBEAT_MS. */
  readonly heartbeatMs: number;
  /** Encoded packets of one turn, bytes; beyond it the turn ends with size_limit. */
  readonly maxTurnBytes: number;
  /** Turns that one process runs at once; beyond it a send is OVERLOADED. */
  readonly maxRunningTurns: number;
  /** Fullness of the log, 0..1, from which new turns are refused. */
  readonly refuseTurnsAtFullness: number;
  /** Lanes of one turn. */
  readonly maxLanes: number;
  /** Time one tool call may take when the tool names none, ms. */
  readonly toolTimeoutMs: number;
  /** Tool calls that one step may make; the model is told about those beyond. */
  readonly maxCallsPerStep: number;
  /** Tool calls of one step that run at the same time. */
  readonly maxParallelTools: number;
}

export const defaultChatLimits: ChatLimits = {
  maxCycles: 6,
  turnDeadlineMs: 600_000,
  heartbeatMs: 15_000,
  maxTurnBytes: 32 * 1024 * 1024,
  maxRunningTurns: 2_000,
  refuseTurnsAtFullness: 0.8,
  maxLanes: 8,
  toolTimeoutMs: 60_000,
  maxCallsPerStep: 64,
  maxParallelTools: 8,
};

export interface ChatDeps {
  readonly log: ReplayLog;
  readonly store: Store;
  readonly models: ModelPort;
  readonly tools: ToolPort;
  readonly clock: Clock;
  /** Lets what belongs to one turn of the event loop leave in one write. */
  readonly tick: LoopTick;
  readonly logger: Logger;
  readonly limits: ChatLimits;
  /** Random id of this life of the process; the owner's name on turns. */
  readonly incarnation: string;
  readonly newId: () => string;
}

/** The outer loop: the lanes of a turn, merged as they arrive, into the log; then one commit, then the terminal packet. */
import { merge } from "../lib/merge.js";
import { abortable } from "../lib/signals.js";
import { TurnError } from "../lib/errors.js";
import { StopReason } from "../../gen/turnwire/packet/v1/common_pb.js";
import type { Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import type { ModelMessage } from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { closeOpen, type CloseHow } from "../turn/close-open.js";
import { errorMessage } from "../turn/packets.js";
import type { LanePlan, TurnPlan } from "./resolve-plan.js";
import { TurnEnded, type ActiveTurn } from "./active-turn.js";
import { endTurn } from "./end-turn.js";
import { runCycles } from "./run-cycles.js";
import { FencedError, type Closing } from "./turn-writer.js";

/**
 * Runs a turn that has its claim and TurnStarted in the log to its end. Never throws for what goes wrong inside the turn:
 * that becomes its typed end. Throws FencedError when the turn belongs to another process now.
 */
export async function runTurn(
  turn: ActiveTurn,
  plan: TurnPlan,
  assemble: () => Promise<readonly ModelMessage[]>,
): Promise<void> {
  const { writer, signal } = turn;
  let how: CloseHow | undefined;
  try {
    const messages = await abortable(assemble(), signal);
    const lanes = plan.lanes.map((lane) => ({
      values: runLane(turn, plan, lane, messages),
      until: turn.laneSignal(lane.modelIndex),
    }));
    for await (const packets of merge(lanes, signal)) await writer.write(packets);
    await writer.flush();
    signal.throwIfAborted(); // what was not logged yet was stopped
  } catch (thrown) {
    const reason: unknown = signal.aborted ? signal.reason : thrown;
    turn.abort(
      reason instanceof TurnEnded || reason instanceof FencedError ? reason : TurnError.from(reason),
    );
    how = howItEnded(reason);
  }
  await endTurn(turn, how);
}

/** A lane that fails ends as a lane: the others go on. A lane that was stopped has been closed already. */
async function* runLane(
  turn: ActiveTurn,
  plan: TurnPlan,
  lane: LanePlan,
  messages: readonly ModelMessage[],
): AsyncGenerator<readonly (Packet | Closing)[]> {
  const signal = turn.laneSignal(lane.modelIndex);
  try {
    yield* runCycles({ turn, plan, lane, messages, signal });
  } catch (thrown) {
    if (turn.signal.aborted || thrown instanceof FencedError) throw thrown;
    if (signal.aborted) return;
    const error = TurnError.from(thrown);
    turn.deps.logger.error(
      { err: error.cause ?? error, turnId: turn.row.turnId, modelIndex: lane.modelIndex },
      "a lane failed",
    );
    const how: CloseHow = {
      kind: "error",
      error: errorMessage(error, lane.model.modelId),
      modelIndex: lane.modelIndex,
    };
    yield [(state) => closeOpen(state, how)]; // behind what the lane had to say before
  }
}

function howItEnded(thrown: unknown): CloseHow {
  if (thrown instanceof FencedError) throw thrown;
  if (thrown instanceof TurnEnded) {
    const { stopReason } = thrown;
    return stopReason === StopReason.OWNER_LOST
      ? { kind: "interrupted", stopReason }
      : { kind: "stopped", stopReason };
  }
  return { kind: "error", error: errorMessage(TurnError.from(thrown)) };
}

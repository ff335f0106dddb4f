/**
 * StopTurn (durability.md 5): the request is stored first, so that it survives anybody's crash; then the owner stops, here
 * or woken in its process; an owner that is silent for a second loses the turn to whoever was asked.
 */
import { ErrorCode, StopReason } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../lib/errors.js";
import type { Principal } from "../lib/rpc/service-binding.js";
import type { StopTarget, TurnRow } from "../store/store.js";
import type { ActiveTurns } from "./active-turns.js";
import type { ChatDeps } from "./ports.js";
import { recoverTurn } from "./recover-turn.js";

/** How long an owner elsewhere may be silent before the turn is taken from it. */
const OWNER_SILENCE_MS = 1_000;

export interface Stopped {
  readonly turnId: string;
  /** No content packet has a greater seq. */
  readonly stopSeq: number;
  /** False when the turn had ended before. */
  readonly wasRunning: boolean;
}

export async function stopTurn(
  deps: ChatDeps,
  turns: ActiveTurns,
  principal: Principal,
  target: StopTarget,
  modelIndex: number | undefined,
  signal: AbortSignal,
): Promise<Stopped> {
  const outcome = await deps.store.requestStop(principal, target, modelIndex);
  switch (outcome.kind) {
    case "requested":
      return {
        turnId: outcome.turn.turnId,
        stopSeq: await stopOwned(deps, turns, outcome.turn, modelIndex, signal),
        wasRunning: true,
      };
    case "ended":
      return { turnId: outcome.turn.turnId, stopSeq: outcome.turn.terminalSeq, wasRunning: false };
    case "tombstone":
    case "idle":
      return { turnId: "", stopSeq: 0, wasRunning: false };
    case "not_found":
      throw new TurnError(ErrorCode.NOT_FOUND, { message: `no such ${target.kind}` });
  }
}

async function stopOwned(
  deps: ChatDeps,
  turns: ActiveTurns,
  turn: TurnRow,
  modelIndex: number | undefined,
  signal: AbortSignal,
): Promise<number> {
  if (turns.find(turn.turnId)) return stopHere(deps, turns, turn.turnId, modelIndex);
  const answered = await deps.store.waitStopped(turn.turnId, OWNER_SILENCE_MS, signal);
  if (answered !== undefined) return answered;
  const taken = await recoverTurn(
    deps,
    turn,
    { kind: "stopped", stopReason: StopReason.USER_CANCELLED },
    turns.life,
  );
  if (taken !== undefined) return taken;
  // Somebody else was faster: whatever they did, the turn ends by them.
  const current = await deps.store.loadTurn(turn.turnId);
  if (current && current.phase !== "running") return current.terminalSeq;
  throw new TurnError(ErrorCode.UNAVAILABLE, { message: "the turn is being taken over, ask again" });
}

/** Stops a turn of this process and says so to whoever waits for the answer. */
async function stopHere(
  deps: ChatDeps,
  turns: ActiveTurns,
  turnId: string,
  modelIndex: number | undefined,
): Promise<number> {
  const turn = await turns.find(turnId);
  if (!turn) throw new TurnError(ErrorCode.UNAVAILABLE, { message: "the turn has just ended, ask again" });
  if (modelIndex !== undefined && !turn.row.lanes.some((lane) => lane.modelIndex === modelIndex)) {
    throw new TurnError(ErrorCode.INVALID_ARGUMENT, {
      message: `the turn has no lane ${modelIndex}`,
      details: { field: "model_index" },
    });
  }
  const stopSeq = await turn.stop(StopReason.USER_CANCELLED, modelIndex);
  await deps.store.answerStop(turnId, stopSeq, modelIndex);
  return stopSeq;
}

/** Obeys the commands that other processes stored for turns of this one: when woken, and whenever `obey` is called. */
export interface CommandListener {
  obey(): Promise<void>;
  close(): void;
}

export function listenForCommands(deps: ChatDeps, turns: ActiveTurns): CommandListener {
  const obey = async (): Promise<void> => {
    if (turns.size === 0) return;
    for (const command of await deps.store.listCommands(deps.incarnation)) {
      if (turns.find(command.turnId)) await stopHere(deps, turns, command.turnId, command.modelIndex);
    }
  };
  const close = deps.store.onCommand(deps.incarnation, () => {
    obey().catch((error: unknown) => deps.logger.warn({ err: error }, "commands could not be read"));
  });
  return { obey, close };
}

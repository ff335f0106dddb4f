/**
 * StopTurn (durability.md 5): the request is stored first, so that it survives anybody's crash; then the owner stops, here
 * or woken in its process; an owner that is silent for a second loses the turn to whoever was asked.
 */
import { ErrorCode, StopReason } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../lib/errors.js";
import { abortable } from "../lib/signals.js";
import type { Principal } from "../lib/rpc/service-binding.js";
import type { StopTarget, TurnCommand, TurnRow } from "../store/store.js";
import type { ActiveTurns } from "./active-turns.js";
import type { ChatDeps } from "./ports.js";
import { FencedError } from "./turn-writer.js";

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
  if (turns.find(turn.turnId)) {
    try {
      return await abortable(stopHere(deps, turns, turn.turnId, modelIndex), signal);
    } catch (error) {
      if (!(error instanceof FencedError)) throw error; // else it is another process's by now
    }
  }
  const answered = await deps.store.waitStopped(turn.turnId, OWNER_SILENCE_MS, signal);
  if (answered !== undefined) return answered;
  const taken = await takeSilent(deps, turns, turn.turnId, modelIndex);
  if (taken !== undefined) return taken;
  // Somebody else was faster: whatever they did, the turn ends by them.
  const current = await deps.store.loadTurn(turn.turnId);
  if (current && current.phase !== "running") return current.terminalSeq;
  throw new TurnError(ErrorCode.UNAVAILABLE, { message: "the turn is being taken over, ask again" });
}

/**
 * Takes the turn from an owner that does not answer, and ends it: stopped, or when only a lane was to be stopped,
 * interrupted, for nobody asked for the end of the others.
 */
async function takeSilent(
  deps: ChatDeps,
  turns: ActiveTurns,
  turnId: string,
  modelIndex: number | undefined,
): Promise<number | undefined> {
  const row = await deps.store.loadTurn(turnId);
  if (!row) return undefined;
  try {
    return await turns.recover(
      row,
      modelIndex === undefined
        ? { kind: "stopped", stopReason: StopReason.USER_CANCELLED }
        : { kind: "interrupted" },
    );
  } catch (error) {
    if (error instanceof FencedError) return undefined;
    throw error;
  }
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

/**
 * Obeys the commands that other processes stored for turns of this one: when woken, and whenever `obey` is called, which
 * resolves when they are read, not when they are done.
 */
export interface CommandListener {
  obey(): Promise<void>;
  close(): void;
}

export function listenForCommands(deps: ChatDeps, turns: ActiveTurns): CommandListener {
  const obeying = new Set<string>();
  const obeyOne = async ({ turnId, modelIndex }: TurnCommand): Promise<void> => {
    const name = `${turnId} ${modelIndex ?? ""}`;
    if (obeying.has(name) || !turns.find(turnId)) return;
    obeying.add(name);
    try {
      await stopHere(deps, turns, turnId, modelIndex);
    } catch (error) {
      deps.logger.warn({ err: error, turnId }, "a stop could not be obeyed");
    } finally {
      obeying.delete(name);
    }
  };
  const obey = async (): Promise<void> => {
    if (turns.size === 0) return;
    // Side by side: a turn whose log does not answer keeps no other one waiting.
    for (const command of await deps.store.listCommands(deps.incarnation)) void obeyOne(command);
  };
  const close = deps.store.onCommand(deps.incarnation, () => {
    obey().catch((error: unknown) => deps.logger.warn({ err: error }, "commands could not be read"));
  });
  return { obey, close };
}

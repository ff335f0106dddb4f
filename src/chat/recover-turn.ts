/**
 * Ends a turn whose owner is gone. A committed turn gets exactly the terminal bytes that its commit stored; a running one
 * is folded from the log, closed as interrupted (or as stopped, when somebody asked for that) and committed. Results that
 * the dead owner stored and did not show are shown; a call that was dispatched and has no result has an unknown outcome
 * (I8). Carrying the turn on instead of ending it needs nothing more than another branch here.
 */
import { fromBinary } from "@bufbuild/protobuf";
import { timestampMs } from "@bufbuild/protobuf/wkt";
import { UserInputSchema, StopReason } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnStartedSchema } from "../../gen/turnwire/packet/v1/control_pb.js";
import { PacketBatchSchema } from "../../gen/turnwire/log/v1/log_pb.js";
import { ToolCallResultSchema, type ToolCallResult } from "../../gen/turnwire/packet/v1/tools_pb.js";
import type { TurnState } from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import { claimTurn, appendSurely, type Claim } from "../replay/claim.js";
import { NOTHING, type TurnLogKey } from "../replay/replay-log.js";
import type { Checkpoint, TurnRow } from "../store/store.js";
import type { CloseHow } from "../turn/close-open.js";
import { emptyTurnState, applyPacket } from "../turn/fold.js";
import { packet } from "../turn/packets.js";
import { turnPlacement } from "../turn/placement.js";
import { ActiveTurn } from "./active-turn.js";
import { commitEnd, endTurn } from "./end-turn.js";
import type { ChatDeps } from "./ports.js";
import { saveTextFile } from "./text-file.js";
import { FencedError } from "./turn-writer.js";

export type RecoveryReason =
  { readonly kind: "interrupted" } | { readonly kind: "stopped"; readonly stopReason: StopReason };

/** Resolves with the last content seq when the turn is closed; undefined when another process was faster. */
export async function recoverTurn(
  deps: ChatDeps,
  row: TurnRow,
  reason: RecoveryReason,
  life: AbortSignal,
): Promise<number | undefined> {
  const key = { turnId: row.turnId, partition: row.partition };
  const claim = await takeOver(deps, key, row, life);
  if (!claim) return undefined;
  // Read again under the new epoch: the commit may have come between.
  const current = await deps.store.loadTurn(row.turnId);
  if (!current || current.phase === "closed") return undefined;
  if (current.phase === "committed") {
    await publishCommitted(deps, key, current, claim, life);
    return current.terminalSeq;
  }
  return closeRunning(deps, key, current, claim, reason, life);
}

interface Takeover extends Claim {
  /** The log does not hold what the turn had been shown: it was replaced, or lost its tail. The archive is what is left. */
  readonly logLost: boolean;
}

/** Row first, then log: from here on the former owner can write to neither. undefined = another process was faster. */
async function takeOver(
  deps: ChatDeps,
  key: TurnLogKey,
  row: TurnRow,
  life: AbortSignal,
): Promise<Takeover | undefined> {
  const { log, store, incarnation } = deps;
  const head = await log.head(key, life);
  const epoch = Math.max(row.epoch, head?.epoch ?? 0) + 1;
  const logLost = row.logId !== log.logId || head?.erased === true || (head?.lastSeq ?? 0) < row.archivedSeq;
  if (!(await store.takeTurn(row.turnId, row.epoch, epoch, incarnation, log.logId))) return undefined;
  if (logLost) return { epoch, position: NOTHING, lastSeq: row.archivedSeq, lastEntry: undefined, logLost };
  const claim = await claimTurn(log, key, {
    minEpoch: epoch - 1,
    incarnation,
    signal: life,
    clock: deps.clock,
  });
  if (claim.epoch > epoch && !(await store.takeTurn(row.turnId, epoch, claim.epoch, incarnation)))
    return undefined;
  // A log that has its terminal takes no claim: its epoch is the former owner's, the row's is ours.
  return { ...claim, epoch: Math.max(claim.epoch, epoch), logLost };
}

/** The terminal of a committed turn: those bytes and nothing else. */
async function publishCommitted(
  deps: ChatDeps,
  key: TurnLogKey,
  row: TurnRow,
  claim: Takeover,
  life: AbortSignal,
): Promise<void> {
  const missing = row.terminalSeq - claim.lastSeq;
  if (missing === 1 && !claim.logLost) {
    const entry = {
      epoch: claim.epoch,
      incarnation: deps.incarnation,
      firstSeq: row.terminalSeq,
      lastSeq: row.terminalSeq,
      terminal: true,
      batch: row.terminalBatch!,
    };
    const { clock } = deps;
    const outcome = await appendSurely(deps.log, key, claim.position, entry, life, { clock });
    if (outcome.kind === "fenced") throw new FencedError("another process owns the turn");
    if (outcome.kind !== "appended")
      throw new Error(`the terminal of turn ${row.turnId} could not be appended: ${outcome.kind}`);
  } else if (missing !== 0) {
    // The log lost acked packets; the archive has them all, so readers lose nothing.
    deps.logger.error({ turnId: row.turnId, missing }, "the log of a committed turn lost entries");
  }
  await deps.store.markClosed(row.turnId);
}

async function closeRunning(
  deps: ChatDeps,
  key: TurnLogKey,
  row: TurnRow,
  claim: Takeover,
  reason: RecoveryReason,
  life: AbortSignal,
): Promise<number> {
  const { state, lastTMs } = await foldShown(deps, key, row, claim, life);
  const started = fromBinary(TurnStartedSchema, row.plan);
  const current = { ...row, epoch: claim.epoch, owner: deps.incarnation };
  const turn = new ActiveTurn(deps, {
    row: current,
    claim,
    logLost: claim.logLost,
    state,
    lastTMs,
    startedAtMs: timestampMs(started.startedAt!),
    life,
  });
  const { writer } = turn;
  try {
    if (!claim.logLost) await writer.rearchive(deps.log.read(key, row.archivedSeq, { signal: life }));
    // The log has the terminal and the row does not know: the store was restored to a time before its commit.
    if (claim.lastEntry?.terminal) {
      await commitEnd(turn, claim.lastEntry.batch, "logged");
      return state.seq;
    }
    const lastContentSeq = state.seq;
    if (!state.started) {
      await keepLongInput(deps, row, claim.epoch, started.input?.textFileId ?? "");
      await writer.write([packet("turnStarted", started, turnPlacement())]);
      await writer.flush();
    }
    // Lanes that all had their ends when the owner died are a turn like any other: only its terminal was missing.
    const open = writer.state.lanes.some((lane) => !lane.end);
    await endTurn(turn, open ? await howItEnds(deps, row, reason) : undefined);
    return lastContentSeq;
  } finally {
    turn.markEnded();
  }
}

/** What was shown so far, from the archive and behind it the log, and the time of its last packet. */
async function foldShown(
  deps: ChatDeps,
  key: TurnLogKey,
  row: TurnRow,
  claim: Takeover,
  life: AbortSignal,
): Promise<{ state: TurnState; lastTMs: number }> {
  const state = emptyTurnState();
  let lastTMs = 0;
  const take = ({ batch }: { readonly batch: Uint8Array }): void => {
    for (const packet of fromBinary(PacketBatchSchema, batch).packets) {
      applyPacket(state, packet); // what it has already changes nothing
      lastTMs = packet.tMs;
    }
  };
  for await (const part of deps.store.readArchive(row.turnId, 0)) take(part);
  if (claim.logLost) return { state, lastTMs };
  for await (const entry of deps.log.read(key, state.seq, { signal: life })) take(entry);
  return { state, lastTMs };
}

/** The owner may have died between the accept and storing the file that TurnStarted names. */
async function keepLongInput(deps: ChatDeps, row: TurnRow, epoch: number, fileId: string): Promise<void> {
  if (fileId === "") return;
  const principal = { tenantId: row.tenantId, userId: row.userId, admin: false };
  const [message] = await deps.store.branch(principal, row.userMessageId, 1);
  const text = message?.input ? fromBinary(UserInputSchema, message.input).text : "";
  await saveTextFile(deps, row, epoch, fileId, "message.txt", text);
}

async function howItEnds(deps: ChatDeps, row: TurnRow, reason: RecoveryReason): Promise<CloseHow> {
  const checkpoints = await deps.store.listCheckpoints(row.turnId);
  const settledResults = new Map<string, ToolCallResult>();
  for (const checkpoint of checkpoints)
    if (checkpoint.kind === "result")
      settledResults.set(checkpoint.callId, fromBinary(ToolCallResultSchema, checkpoint.data));
  const inDoubtCallIds = new Set(checkpoints.filter(isDispatching).map((checkpoint) => checkpoint.callId));
  const calls = { settledResults, inDoubtCallIds };
  const stopReason = reason.kind === "stopped" ? reason.stopReason : await askedToStop(deps, row.turnId);
  return stopReason !== undefined
    ? { kind: "stopped", stopReason, ...calls }
    : { kind: "interrupted", stopReason: StopReason.OWNER_LOST, ...calls };
}

/** A stop of the turn that the lost owner had been asked for, or had answered and not come to the end of. */
async function askedToStop(deps: ChatDeps, turnId: string): Promise<StopReason | undefined> {
  return (await deps.store.wasAskedToStop(turnId)) ? StopReason.USER_CANCELLED : undefined;
}

function isDispatching(checkpoint: Checkpoint): checkpoint is Extract<Checkpoint, { kind: "dispatching" }> {
  return checkpoint.kind === "dispatching";
}

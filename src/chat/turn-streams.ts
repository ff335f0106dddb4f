/** The two streams of ChatService: a send with its turn, and a turn from a cursor. Both read the log; neither writes it. */
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import {
  ResumeTurnResponseSchema,
  SendMessageResponseSchema,
  SnapshotPolicy,
  type ResumeTurnRequest,
  type ResumeTurnResponse,
} from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import type { TurnState } from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import { PacketBatchSchema } from "../../gen/turnwire/log/v1/log_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import type { Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import { TurnError } from "../lib/errors.js";
import { messageFrame, type StreamFrame } from "../lib/rpc/service-binding.js";
import type { Position } from "../replay/replay-log.js";
import type { TurnRow } from "../store/store.js";
import { applyPacket, emptyTurnState } from "../turn/fold.js";
import { packet } from "../turn/packets.js";
import { turnPlacement } from "../turn/placement.js";
import type { ChatDeps } from "./ports.js";
import type { Cursor, ReadBatch, TurnReader } from "./read-turn.js";
import { snapshotParts } from "./snapshot.js";
import { withHeartbeat } from "./with-heartbeat.js";

/** Bytes that are a message of either stream: they have the same fields 1 (packets) and 3 (head_seq). */
type PacketFrame = { readonly kind: "bytes"; readonly bytes: Uint8Array };

export const FROM_THE_START: Cursor = { afterSeq: 0, logId: "", hint: undefined };

/** Packets of a turn as the log's own bytes, or word that nothing came for a while and the reader has all there is. */
export type TurnBeat =
  | { readonly kind: "packets"; readonly batch: ReadBatch }
  | { readonly kind: "heartbeat"; readonly headSeq: number };

/**
 * A turn from a cursor. While nothing comes: heartbeats, and a look at the row, so that an end which the log could not take
 * is read from there.
 */
export async function* turnBeats(
  deps: ChatDeps,
  reader: TurnReader,
  turn: TurnRow,
  cursor: Cursor,
  follow: boolean,
  signal: AbortSignal,
): AsyncGenerator<TurnBeat, void> {
  let seq = cursor.afterSeq;
  for await (const beat of withHeartbeat(
    reader.read(turn, cursor, follow, signal),
    deps.limits.heartbeatMs,
    deps.clock,
  )) {
    if (beat.kind === "value") {
      seq = beat.value.lastSeq;
      yield { kind: "packets", batch: beat.value };
      continue;
    }
    const head = await verifiedHead(reader, turn, signal);
    if (!head) continue;
    if (head.row.phase !== "running" && seq < head.seq) {
      yield* turnBeats(deps, reader, head.row, { ...cursor, afterSeq: seq }, follow, signal);
      return;
    }
    if (head.seq === seq) yield { kind: "heartbeat", headSeq: head.seq };
  }
}

/** The same as messages of SendMessage and ResumeTurn. */
export async function* packetFrames(
  ...turn: Parameters<typeof turnBeats>
): AsyncGenerator<PacketFrame, void> {
  for await (const beat of turnBeats(...turn))
    yield beat.kind === "packets" ? { kind: "bytes", bytes: beat.batch.bytes } : heartbeat(beat.headSeq);
}

/** A heartbeat is only sent when the head was verified and the reader is at it; stores that cannot be asked send none. */
async function verifiedHead(
  reader: TurnReader,
  turn: TurnRow,
  signal: AbortSignal,
): Promise<{ row: TurnRow; seq: number } | undefined> {
  try {
    const row = await reader.reload(turn);
    return { row, seq: await reader.headSeq(row, signal) };
  } catch {
    return undefined; // asked again at the next beat
  }
}

/** What a heartbeat is in every stream of packets. */
export function heartbeatPackets(headSeq: number): Packet[] {
  return [packet("chatHeartbeat", { headSeq }, turnPlacement())];
}

function heartbeat(headSeq: number): PacketFrame {
  const packets = heartbeatPackets(headSeq);
  return {
    kind: "bytes",
    bytes: toBinary(SendMessageResponseSchema, create(SendMessageResponseSchema, { packets, headSeq })),
  };
}

/** ResumeTurn: refusals first, then (when asked) a snapshot, then the exact suffix. */
export async function* resumeTurn(
  deps: ChatDeps,
  reader: TurnReader,
  turn: TurnRow,
  request: ResumeTurnRequest,
  signal: AbortSignal,
): AsyncGenerator<StreamFrame<ResumeTurnResponse>, void> {
  const hint = Number(request.logPositionHint);
  let cursor: Cursor = {
    afterSeq: request.afterSeq,
    logId: request.logId,
    hint: hint > 0 ? (hint as Position) : undefined,
  };
  const wantsSnapshot = request.snapshot === SnapshotPolicy.ALWAYS;
  const takesSnapshot = wantsSnapshot || request.snapshot === SnapshotPolicy.IF_EXPIRED;
  let needsSnapshot = wantsSnapshot;
  try {
    await reader.check(turn, cursor, signal);
  } catch (error) {
    if (!takesSnapshot || !offersSnapshot(error)) throw error;
    needsSnapshot = true;
  }
  if (needsSnapshot) cursor = yield* snapshot(deps, reader, turn, signal);
  yield messageFrame(
    create(ResumeTurnResponseSchema, { logId: turn.logId, headSeq: await reader.headSeq(turn, signal) }),
  );
  const follow = !request.noFollow;
  try {
    yield* packetFrames(deps, reader, turn, cursor, follow, signal);
  } catch (error) {
    if (!takesSnapshot || !offersSnapshot(error)) throw error;
    cursor = yield* snapshot(deps, reader, turn, signal);
    yield* packetFrames(deps, reader, turn, cursor, follow, signal);
  }
}

function offersSnapshot(error: unknown): boolean {
  return (
    error instanceof TurnError &&
    (error.code === ErrorCode.CURSOR_EXPIRED || error.code === ErrorCode.LOG_REPLACED)
  );
}

/** Sends the fold of what there is now; the cursor goes on behind it. */
async function* snapshot(
  deps: ChatDeps,
  reader: TurnReader,
  turn: TurnRow,
  signal: AbortSignal,
): AsyncGenerator<StreamFrame<ResumeTurnResponse>, Cursor> {
  const current = (await deps.store.loadTurn(turn.turnId)) ?? turn;
  const state = await foldTurn(reader, current, 0, signal);
  for (const part of snapshotParts(state)) {
    yield messageFrame(create(ResumeTurnResponseSchema, { snapshot: part, logId: turn.logId }));
  }
  return { ...FROM_THE_START, afterSeq: state.seq };
}

/** The fold of a turn's packets up to `atSeq` (0 = all that are there). */
export async function foldTurn(
  reader: TurnReader,
  turn: TurnRow,
  atSeq: number,
  signal: AbortSignal,
): Promise<TurnState> {
  const state = emptyTurnState();
  for await (const batch of reader.read(turn, FROM_THE_START, false, signal)) {
    if (foldBatch(state, batch.bytes, atSeq)) break;
  }
  return state;
}

/** Folds one batch; true when `atSeq` was reached. */
export function foldBatch(state: TurnState, bytes: Uint8Array, atSeq = 0): boolean {
  for (const logged of fromBinary(PacketBatchSchema, bytes).packets) {
    applyPacket(state, logged);
    if (atSeq > 0 && logged.seq >= atSeq) return true;
  }
  return false;
}

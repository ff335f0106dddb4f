/**
 * Reading a turn from a cursor: the one path of SendMessage, ResumeTurn, SendMessageAndWait, GetTurn and recovery's
 * readers. A running turn is read from the log, an ended one from the archive and its committed terminal; both hold the
 * same bytes, so a reader that changes over in the middle does not notice.
 *
 * I1 what is yielded is a gap-free suffix after the cursor. I11 what cannot be served exactly is a typed error.
 */
import {
  CursorAheadSchema,
  CursorExpiredSchema,
  LogReplacedSchema,
} from "../../gen/turnwire/chat/v1/errors_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../lib/errors.js";
import type { Position } from "../replay/replay-log.js";
import { trimEntry } from "../replay/trim-entry.js";
import { trimBatch } from "../turn/batch.js";
import type { TurnRow } from "../store/store.js";
import type { ActiveTurns } from "./active-turns.js";
import type { ChatDeps } from "./ports.js";

/** Some packets, as the bytes of a PacketBatch. */
export interface ReadBatch {
  readonly bytes: Uint8Array;
  /** Seq of the last packet in it. */
  readonly lastSeq: number;
  /** Where it stands in the log, as a hint for a later cold read; undefined from the archive. */
  readonly position: Position | undefined;
}

export interface Cursor {
  readonly afterSeq: number;
  /** The log the client took its cursor from; "" = not said. */
  readonly logId: string;
  readonly hint: Position | undefined;
}

/** A turn whose log was lost is ended by its owner within this time. */
const ENDED_SOON_MS = 5_000;
const ENDED_SOON_POLL_MS = 200;

export class TurnReader {
  readonly #deps: ChatDeps;
  readonly #turns: ActiveTurns;

  constructor(deps: ChatDeps, turns: ActiveTurns) {
    this.#deps = deps;
    this.#turns = turns;
  }

  /** The last seq a reader can have now. */
  async headSeq(turn: TurnRow, signal: AbortSignal): Promise<number> {
    if (turn.phase !== "running") return turn.terminalSeq;
    const active = this.#turns.get(turn.turnId);
    if (active) return active.writer.ackedSeq;
    const head = await this.#deps.log.head({ turnId: turn.turnId, partition: turn.partition }, signal);
    return head?.lastSeq ?? 0;
  }

  /** Throws the typed refusals of contract.md 2 before anything is read: ahead, replaced. */
  async check(turn: TurnRow, cursor: Cursor, signal: AbortSignal): Promise<void> {
    const { logId } = this.#deps.log;
    const head = cursor.afterSeq > 0 || cursor.logId !== "" ? await this.headSeq(turn, signal) : 0;
    const replaced = cursor.logId !== "" && cursor.logId !== turn.logId;
    if (replaced || (turn.phase === "running" && turn.logId !== logId)) {
      throw new TurnError(ErrorCode.LOG_REPLACED, {
        typed: [{ desc: LogReplacedSchema, value: { logId: turn.logId, headSeq: head } }],
      });
    }
    if (cursor.afterSeq > head) {
      throw new TurnError(ErrorCode.CURSOR_AHEAD, {
        message: `the cursor ${cursor.afterSeq} is beyond the head ${head} of the turn`,
        typed: [{ desc: CursorAheadSchema, value: { headSeq: head } }],
      });
    }
  }

  /** What is there after the cursor, then (with `follow`) what comes, to the terminal. */
  async *read(
    turn: TurnRow,
    cursor: Cursor,
    follow: boolean,
    signal: AbortSignal,
  ): AsyncGenerator<ReadBatch, void> {
    let row = turn;
    let afterSeq = cursor.afterSeq;
    for (;;) {
      if (row.phase !== "running") {
        yield* this.#readEnded(row, afterSeq, signal);
        return;
      }
      try {
        for await (const batch of this.#readRunning(row, { ...cursor, afterSeq }, follow, signal)) {
          afterSeq = batch.lastSeq;
          yield batch;
        }
      } catch (error) {
        row = await this.#afterLogFailure(row, error, signal);
        if (row.phase !== "running") continue; // the archive has the same bytes
        const cursorSeq = afterSeq;
        if (isExpired(error)) {
          for await (const batch of this.#readArchive(row, afterSeq, signal)) {
            afterSeq = batch.lastSeq;
            yield batch;
          }
        }
        if (afterSeq === cursorSeq) throw withOffer(error, row, afterSeq);
        continue; // behind what is archived the log goes on
      }
      row = await this.reload(row);
      if (!follow || row.phase === "running" || afterSeq === row.terminalSeq) return;
    }
  }

  /** The row as it is now. */
  async reload(turn: TurnRow): Promise<TurnRow> {
    const row = await this.#deps.store.loadTurn(turn.turnId);
    if (!row) throw new TurnError(ErrorCode.NOT_FOUND, { message: "the turn was deleted" });
    return row;
  }

  /** A log that let go of an ended turn, or lost a running one (which then is about to be ended): the row says. */
  async #afterLogFailure(turn: TurnRow, error: unknown, signal: AbortSignal): Promise<TurnRow> {
    const { clock } = this.#deps;
    const giveUpMs = clock.monotonicMs() + (isLost(error) ? ENDED_SOON_MS : 0);
    for (;;) {
      const row = await this.reload(turn);
      if (!isExpired(error) && !isLost(error)) throw error;
      if (row.phase !== "running" || clock.monotonicMs() >= giveUpMs) return row;
      await clock.sleep(ENDED_SOON_POLL_MS, signal);
    }
  }

  async *#readRunning(
    turn: TurnRow,
    cursor: Cursor,
    follow: boolean,
    signal: AbortSignal,
  ): AsyncGenerator<ReadBatch, void> {
    const key = { turnId: turn.turnId, partition: turn.partition };
    const options = { hint: cursor.hint, signal };
    const { log } = this.#deps;
    const entries = follow
      ? log.follow(key, cursor.afterSeq, options)
      : log.read(key, cursor.afterSeq, options);
    let afterSeq = cursor.afterSeq;
    for await (const entry of entries) {
      const { batch, lastSeq } = trimEntry(entry, afterSeq);
      if (lastSeq <= afterSeq) continue;
      afterSeq = lastSeq;
      yield { bytes: batch, lastSeq, position: entry.position };
    }
  }

  async *#readEnded(turn: TurnRow, cursorSeq: number, signal: AbortSignal): AsyncGenerator<ReadBatch, void> {
    let afterSeq = cursorSeq;
    for await (const batch of this.#readArchive(turn, cursorSeq, signal)) {
      afterSeq = batch.lastSeq;
      yield batch;
    }
    if (afterSeq >= turn.terminalSeq) return;
    if (afterSeq !== turn.terminalSeq - 1) throw new TurnError(ErrorCode.LOG_TRUNCATED);
    yield { bytes: turn.terminalBatch!, lastSeq: turn.terminalSeq, position: undefined };
  }

  /** The parts of the archive after a cursor; those that are there. */
  async *#readArchive(
    turn: TurnRow,
    cursorSeq: number,
    signal: AbortSignal,
  ): AsyncGenerator<ReadBatch, void> {
    let afterSeq = cursorSeq;
    for await (const part of this.#deps.store.readArchive(turn.turnId, afterSeq)) {
      signal.throwIfAborted();
      if (part.firstSeq > afterSeq + 1) throw new TurnError(ErrorCode.LOG_TRUNCATED);
      const bytes = trimBatch(part.batch, afterSeq + 1 - part.firstSeq);
      afterSeq = part.lastSeq;
      if (bytes.length > 0) yield { bytes, lastSeq: afterSeq, position: undefined };
    }
  }
}

function isLost(error: unknown): boolean {
  return (
    error instanceof TurnError &&
    (error.code === ErrorCode.LOG_TRUNCATED || error.code === ErrorCode.LOG_REPLACED)
  );
}

function isExpired(error: unknown): boolean {
  return (
    error instanceof TurnError &&
    (error.code === ErrorCode.CURSOR_EXPIRED || error.code === ErrorCode.NOT_FOUND)
  );
}

/** An expired cursor says what could be had instead. */
function withOffer(error: unknown, turn: TurnRow, afterSeq: number): unknown {
  if (!isExpired(error)) return error;
  return new TurnError(ErrorCode.CURSOR_EXPIRED, {
    cause: error,
    typed: [
      {
        desc: CursorExpiredSchema,
        value: {
          oldestSeq: afterSeq + 1,
          headSeq: turn.terminalSeq,
          snapshotAvailable: turn.archivedSeq > 0,
        },
      },
    ],
  });
}

/**
 * The log in the memory of one process: for unit tests of what stands on the port, never for a running service. It keeps
 * every rule of the port, and a hook decides how each append ends, so that tests can make any outcome happen.
 */
import { newId } from "../lib/ids.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { systemClock, type Clock } from "../lib/clock.js";
import { TurnError } from "../lib/errors.js";
import { silentLogger } from "../lib/log.js";
import { PAGE_ENTRIES } from "./entry-reader.js";
import { TurnTails } from "./follow.js";
import {
  MAX_BATCH_BYTES,
  NOTHING,
  type AppendOutcome,
  type Entry,
  type LoggedEntry,
  type Position,
  type ReadOptions,
  type ReplayLog,
  type TurnLogKey,
} from "./replay-log.js";

/** How an append ends: as usual, stored but the answer lost, not stored and the answer lost, or no room. */
export type AppendFate = "normal" | "stored_unknown" | "lost_unknown" | "full";

export interface MemoryReplayLogOptions {
  /** Asked before each append; a promise holds the append until it resolves. */
  readonly onAppend?: (
    turn: TurnLogKey,
    expected: Position,
    entry: Entry,
  ) => AppendFate | Promise<AppendFate>;
  readonly clock?: Clock;
}

export interface MemoryReplayLog extends ReplayLog {
  /** Forgets everything and takes a new `logId`: the log was replaced. */
  replace(): void;
  /** Drops the turn's entries up to and including `position`, as expiry does. */
  expire(turnId: string, position: Position): void;
  /** Turns with followers or a local writer, and followers. */
  readonly counts: TurnTails["counts"];
}

/** Makes an empty log. Positions are shared by all turns, as in a stream. */
export function createMemoryReplayLog(options: MemoryReplayLogOptions = {}): MemoryReplayLog {
  return new InMemory(options);
}

class InMemory implements MemoryReplayLog {
  readonly kind = "memory" as const;
  logId = newId();
  readonly #onAppend: NonNullable<MemoryReplayLogOptions["onAppend"]>;
  readonly #tails: TurnTails;
  readonly #turns = new Map<string, LoggedEntry[]>();
  #lastPosition = 0;
  #closed = false;

  constructor(options: MemoryReplayLogOptions) {
    this.#onAppend = options.onAppend ?? (() => "normal");
    this.#tails = new TurnTails({
      store: {
        head: (turn) => Promise.resolve(this.#last(turn)),
        locate: (turn, afterSeq, _hint, head) => Promise.resolve(this.#locate(turn, afterSeq, head)),
        page: (turn, after, upTo) => Promise.resolve(this.#page(turn, after, upTo)),
        heads: (turns) => Promise.resolve(this.#heads(turns)),
        watch: () => () => undefined,
      },
      clock: options.clock ?? systemClock,
      logger: silentLogger,
    });
  }

  get counts(): TurnTails["counts"] {
    return this.#tails.counts;
  }

  async append(
    turn: TurnLogKey,
    expected: Position,
    entry: Entry,
    signal: AbortSignal,
  ): Promise<AppendOutcome> {
    signal.throwIfAborted();
    if (entry.batch.length > MAX_BATCH_BYTES) throw new TurnError(ErrorCode.SIZE_LIMIT);
    const fate = await this.#onAppend(turn, expected, entry);
    signal.throwIfAborted();
    if (fate === "full") return { kind: "full" };
    if (fate === "lost_unknown" || this.#closed) return { kind: "unknown", cause: new Error("no answer") };
    const last = this.#last(turn);
    if ((last?.position ?? NOTHING) !== expected) return { kind: "refused", last };
    const stored = this.#store(turn, entry);
    // A follower elsewhere sees a stored entry whatever its writer was told.
    this.#tails.appended(turn, stored, expected);
    if (fate === "stored_unknown") return { kind: "unknown", cause: new Error("no answer") };
    return { kind: "appended", position: stored.position };
  }

  head(turn: TurnLogKey, signal: AbortSignal): Promise<LoggedEntry | undefined> {
    signal.throwIfAborted();
    return Promise.resolve(this.#last(turn));
  }

  read(turn: TurnLogKey, afterSeq: number, options: ReadOptions): AsyncIterable<LoggedEntry> {
    return this.#tails.read(turn, afterSeq, options);
  }

  follow(turn: TurnLogKey, afterSeq: number, options: ReadOptions): AsyncIterable<LoggedEntry> {
    return this.#tails.follow(turn, afterSeq, options);
  }

  erase(turn: TurnLogKey, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    const last = this.#last(turn);
    if (!last || last.erased) return Promise.resolve();
    const { epoch, incarnation, lastSeq } = last;
    const batch = new Uint8Array(0);
    const tomb = { epoch, incarnation, firstSeq: lastSeq + 1, lastSeq, terminal: false, erased: true, batch };
    const stored = this.#store(turn, tomb);
    this.#turns.set(turn.turnId, [stored]);
    this.#tails.appended(turn, stored, last.position);
    return Promise.resolve();
  }

  fullness(): Promise<number> {
    return Promise.resolve(0);
  }

  ping(): Promise<void> {
    return this.#closed ? Promise.reject(new TurnError(ErrorCode.UNAVAILABLE)) : Promise.resolve();
  }

  close(): Promise<void> {
    this.#closed = true;
    this.#tails.close(new TurnError(ErrorCode.UNAVAILABLE));
    return Promise.resolve();
  }

  replace(): void {
    this.#turns.clear();
    this.logId = newId();
    this.#tails.fail(new TurnError(ErrorCode.LOG_REPLACED));
  }

  expire(turnId: string, position: Position): void {
    const kept = (this.#turns.get(turnId) ?? []).filter((entry) => entry.position > position);
    this.#turns.set(turnId, kept);
  }

  #locate(turn: TurnLogKey, afterSeq: number, head: LoggedEntry): Position {
    const entries = this.#entries(turn);
    const from = entries.findLastIndex(
      (entry) => entry.firstSeq <= afterSeq + 1 && entry.position <= head.position,
    );
    return from > 0 ? entries[from - 1]!.position : NOTHING;
  }

  #page(turn: TurnLogKey, after: Position, upTo: Position): readonly LoggedEntry[] {
    return this.#entries(turn)
      .filter((entry) => entry.position > after && entry.position <= upTo)
      .slice(0, PAGE_ENTRIES);
  }

  #heads(turns: readonly TurnLogKey[]): ReadonlyMap<string, Position> {
    const heads = new Map<string, Position>();
    for (const turn of turns) {
      const last = this.#last(turn);
      if (last) heads.set(turn.turnId, last.position);
    }
    return heads;
  }

  #entries(turn: TurnLogKey): readonly LoggedEntry[] {
    return this.#turns.get(turn.turnId) ?? [];
  }

  #last(turn: TurnLogKey): LoggedEntry | undefined {
    return this.#turns.get(turn.turnId)?.at(-1);
  }

  #store(turn: TurnLogKey, entry: Omit<LoggedEntry, "position">): LoggedEntry {
    this.#lastPosition += 1;
    const stored: LoggedEntry = { ...entry, position: this.#lastPosition as Position };
    this.#turns.set(turn.turnId, [...this.#entries(turn), stored]);
    return stored;
  }
}

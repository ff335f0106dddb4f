/**
 * The port of the durable log of turns. One turn has one ordered list of entries; readers read it from a seq, its one
 * writer appends with the position of the entry it saw last. Adapters: JetStream, Postgres, memory (unit tests only);
 * `contract suite`: test/contract/replay-log.ts runs over all of them.
 *
 * Invariants (design.md names): I1 entries of a turn are read in the one order they were appended; I5 an append whose
 * expectation is stale is refused, whoever sends it; I6 `append` resolves "appended" only when the entry is durable, and
 * no reader sees an entry before that; I11 a read that cannot serve the entry after `afterSeq` fails with
 * CURSOR_EXPIRED, never skips.
 *
 * When `read` and `follow` fail: CURSOR_EXPIRED (the packets after the cursor are gone), CURSOR_AHEAD (the cursor is beyond
 * the leader's head), LOG_TRUNCATED (the log ends before entries it had served), LOG_REPLACED (another log took its
 * place; `logId` differs from now on), UNAVAILABLE (the store stayed away for long), or the reason of `signal`.
 */

declare const positionBrand: unique symbol;
/** Where an entry stands in the store (stream sequence, entry number). Opaque: only compared with ===, handed back as hint. */
export type Position = number & { readonly [positionBrand]: true };

/** The largest `batch` an append takes. */
export const MAX_BATCH_BYTES = 256 * 1024;

/** The expectation of a turn's first append: nothing there. A purged turn keeps a tombstone, so it never succeeds again. */
export const NOTHING = 0 as Position;

/** Names a turn's log. The partition is chosen at accept and stored in the turn row. */
export interface TurnLogKey {
  readonly turnId: string;
  readonly partition: number;
}

/** What one append puts into the log. A claim entry has no packets: lastSeq = firstSeq - 1 and `batch` is empty. */
export interface Entry {
  /** Number of the writer that owns the turn; grows at each takeover. */
  readonly epoch: number;
  /** Random id of the writing process's life; tells my own repeated append from another's. */
  readonly incarnation: string;
  /** Seq of the first packet in the batch (the next seq, for a claim). */
  readonly firstSeq: number;
  readonly lastSeq: number;
  /** True for the entry that holds OverallStop, and only for it. */
  readonly terminal: boolean;
  /** The encoding of turnwire.log.v1.PacketBatch; at most 256 KiB. */
  readonly batch: Uint8Array;
}

export interface LoggedEntry extends Entry {
  readonly position: Position;
  /** True for the tombstone that `erase` leaves: no packets, nothing before it, nothing after it. */
  readonly erased?: boolean;
}

export type AppendOutcome =
  | { readonly kind: "appended"; readonly position: Position }
  /** The turn's last entry is not the expected one. `last` is read from the leader; undefined = the turn has none. */
  | { readonly kind: "refused"; readonly last: LoggedEntry | undefined }
  /** Nobody knows whether it was stored: repeat the same bytes with the same expectation. */
  | { readonly kind: "unknown"; readonly cause: unknown }
  /** The store is full: nothing was stored. */
  | { readonly kind: "full" };

export interface ReadOptions {
  /** Position of the entry that holds (or precedes) afterSeq, if the caller knows it. Untrusted; checked. */
  readonly hint?: Position;
  readonly signal: AbortSignal;
}

export interface ReplayLog {
  readonly kind: "nats" | "postgres" | "memory";
  /** Random id made with the log store; differs after a restore or re-creation, also when that happens while this runs. */
  readonly logId: string;
  /**
   * Appends one entry. At most one append per turn may be in flight. Resolves within a bounded time (unknown), about a
   * second. Throws SIZE_LIMIT for a batch above MAX_BATCH_BYTES, and the reason of a `signal` that has aborted already; one
   * that aborts later does not cut it short, so that the outcome is not lost.
   */
  append(turn: TurnLogKey, expected: Position, entry: Entry, signal: AbortSignal): Promise<AppendOutcome>;
  /** The turn's last entry, from the leader; undefined = no entry. */
  head(turn: TurnLogKey, signal: AbortSignal): Promise<LoggedEntry | undefined>;
  /**
   * The entries with lastSeq > afterSeq (claims left out) up to the head at the time of the call, in order. The first may
   * begin at or before afterSeq: trim with `trimEntry`. Throws CURSOR_EXPIRED when the entry after afterSeq is gone.
   */
  read(turn: TurnLogKey, afterSeq: number, options: ReadOptions): AsyncIterable<LoggedEntry>;
  /** As `read`, then every later entry as it becomes durable, until the terminal entry, `signal`, or a typed error. */
  follow(turn: TurnLogKey, afterSeq: number, options: ReadOptions): AsyncIterable<LoggedEntry>;
  /** Removes the entries of a closed turn; a tombstone stays. Safe to repeat; does nothing for a turn without entries. */
  erase(turn: TurnLogKey, signal: AbortSignal): Promise<void>;
  /** How full the store is, 0..1; 0 where it has no bound. */
  fullness(signal: AbortSignal): Promise<number>;
  /** Resolves when the store answers; rejects with UNAVAILABLE after a bounded time. For readiness. */
  ping(signal: AbortSignal): Promise<void>;
  close(): Promise<void>;
}

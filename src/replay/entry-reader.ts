/**
 * Reading a turn's entries in order, the same for every adapter: from a seq to the head, checked, in bounded pages,
 * shared by all who read the same turn at the same time.
 */
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import type { Clock } from "../lib/clock.js";
import { TurnError } from "../lib/errors.js";
import { NOTHING, type LoggedEntry, type Position, type TurnLogKey } from "./replay-log.js";
import { SingleFlight } from "./single-flight.js";

/** What an adapter gives: plain reads of its store. Each fails with UNAVAILABLE after a bounded time. */
export interface EntryStore {
  /** The turn's last entry, from the leader. */
  head(turn: TurnLogKey): Promise<LoggedEntry | undefined>;
  /** A position after which the entries begin that a reader at `afterSeq` needs; the hint is untrusted. */
  locate(
    turn: TurnLogKey,
    afterSeq: number,
    hint: Position | undefined,
    head: LoggedEntry,
  ): Promise<Position>;
  /**
   * The next entries with a position above `after` and up to `upTo`, in order, claims and tombstones included, about
   * `PAGE_BYTES` at most and at least one if there is one.
   */
  page(turn: TurnLogKey, after: Position, upTo: Position): Promise<readonly LoggedEntry[]>;
}

/** What one page holds at most before it is handed on (an entry more may be in it). */
export const PAGE_BYTES = 512 * 1024;
export const PAGE_ENTRIES = 256;

const RETRY_FIRST_MS = 50;
const RETRY_MOST_MS = 500;

/** Where a reader stands. `advance` is the one place that decides whether an entry continues what the reader has. */
export class ReadCursor {
  seq: number;
  /** Position of the last entry seen, of any kind; undefined until the first look at the log. */
  position: Position | undefined;
  ended = false;

  constructor(afterSeq: number) {
    this.seq = afterSeq;
  }

  /** Takes the next entry in order; returns it if it brings packets. Throws CURSOR_EXPIRED at a gap. */
  advance(entry: LoggedEntry): LoggedEntry | undefined {
    if (entry.firstSeq > this.seq + 1) throw expired(this.seq, entry.firstSeq);
    this.position = entry.position;
    this.ended = entry.terminal || entry.erased === true;
    if (entry.lastSeq <= this.seq) return undefined;
    this.seq = entry.lastSeq;
    return entry;
  }
}

export interface EntryReaderOptions {
  readonly store: EntryStore;
  readonly clock: Clock;
}

export class EntryReader {
  readonly #store: EntryStore;
  readonly #clock: Clock;
  readonly #heads = new SingleFlight<LoggedEntry | undefined>();
  readonly #pages = new SingleFlight<readonly LoggedEntry[]>();

  constructor(options: EntryReaderOptions) {
    this.#store = options.store;
    this.#clock = options.clock;
  }

  /** The turn's head as of now or later, tried again for `patienceMs` while the store is away. */
  head(turn: TurnLogKey, patienceMs: number, signal: AbortSignal): Promise<LoggedEntry | undefined> {
    return this.#persist(
      () => this.#heads.after(turn.turnId, () => this.#store.head(turn), signal),
      patienceMs,
      signal,
    );
  }

  /**
   * Moves `cursor` up to `head` and yields the entries with packets on the way. `head` = undefined: the turn has none.
   * Throws the errors that `ReplayLog.read` names.
   */
  async *upTo(
    turn: TurnLogKey,
    cursor: ReadCursor,
    head: LoggedEntry | undefined,
    options: { readonly hint?: Position; readonly patienceMs: number; readonly signal: AbortSignal },
  ): AsyncGenerator<LoggedEntry, void, undefined> {
    if (!head) {
      if (cursor.position) throw new TurnError(ErrorCode.LOG_TRUNCATED);
      if (cursor.seq > 0) throw expired(cursor.seq, undefined);
      cursor.position = NOTHING;
      return;
    }
    if (head.position < (cursor.position ?? NOTHING)) throw new TurnError(ErrorCode.LOG_TRUNCATED);
    if (head.lastSeq < cursor.seq) {
      throw new TurnError(cursor.position ? ErrorCode.LOG_TRUNCATED : ErrorCode.CURSOR_AHEAD);
    }
    if (cursor.position === undefined && head.lastSeq === cursor.seq) {
      cursor.advance(head);
      return;
    }
    const { patienceMs, signal } = options;
    cursor.position ??= await this.#persist(
      () => this.#store.locate(turn, cursor.seq, options.hint, head),
      patienceMs,
      signal,
    );
    while (cursor.position < head.position) {
      const after: Position = cursor.position;
      const load = (): Promise<readonly LoggedEntry[]> => this.#store.page(turn, after, head.position);
      const page = await this.#persist(
        () => this.#pages.join(`${turn.turnId} ${after}`, load, signal),
        patienceMs,
        signal,
      );
      if (page.length === 0) throw await this.#whyEmpty(turn, cursor, head, options);
      for (const entry of page) {
        const packets = cursor.advance(entry);
        if (packets) yield packets;
      }
    }
  }

  /** Entries up to `head` were there and are not: they were erased or expired meanwhile, or the log lost its end. */
  async #whyEmpty(
    turn: TurnLogKey,
    cursor: ReadCursor,
    head: LoggedEntry,
    options: { readonly patienceMs: number; readonly signal: AbortSignal },
  ): Promise<TurnError> {
    const now = await this.head(turn, options.patienceMs, options.signal);
    if (!now || now.position < head.position) return new TurnError(ErrorCode.LOG_TRUNCATED);
    return expired(cursor.seq, undefined);
  }

  async #persist<T>(call: () => Promise<T>, patienceMs: number, signal: AbortSignal): Promise<T> {
    const giveUpAt = this.#clock.monotonicMs() + patienceMs;
    for (let pause = RETRY_FIRST_MS; ; pause = Math.min(pause * 2, RETRY_MOST_MS)) {
      signal.throwIfAborted();
      try {
        return await call();
      } catch (error) {
        signal.throwIfAborted();
        const away = error instanceof TurnError && error.code === ErrorCode.UNAVAILABLE;
        if (!away || this.#clock.monotonicMs() + pause >= giveUpAt) throw error;
      }
      await this.#clock.sleep(pause, signal);
    }
  }
}

function expired(afterSeq: number, firstSeq: number | undefined): TurnError {
  return new TurnError(ErrorCode.CURSOR_EXPIRED, {
    details: {
      after_seq: String(afterSeq),
      ...(firstSeq === undefined ? {} : { first_seq: String(firstSeq) }),
    },
  });
}

/**
 * The log in Postgres, for the embedded mode and for installations without NATS: one row per entry, whose primary key
 * (turn, number) is the compare-and-set. A position is the entry's number in its turn.
 *
 * Owns the tables tw_log_*, the connection that appends, the one that listens, and a small pool that reads.
 */
import pg from "pg";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { systemClock, type Clock } from "../lib/clock.js";
import { TurnError } from "../lib/errors.js";
import { newId } from "../lib/ids.js";
import type { Logger } from "../lib/log.js";
import { abortable } from "../lib/signals.js";
import { PAGE_BYTES, PAGE_ENTRIES } from "./entry-reader.js";
import { TurnTails } from "./follow.js";
import { PostgresAppender } from "./postgres-appender.js";
import { isUndefinedTable, queryError } from "./postgres-errors.js";
import { PostgresListener } from "./postgres-listener.js";
import { ensureSchema } from "./postgres-schema.js";
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

export interface PostgresReplayLogOptions {
  readonly connectionString: string;
  /** How long an append waits for its commit. Default 1,000. */
  readonly appendTimeoutMs?: number;
  /** How long to wait for the database at the start. Default 10,000. */
  readonly connectTimeoutMs?: number;
  /** How long a follower waits for a database that is away before it fails. Default 30,000. */
  readonly patienceMs?: number;
  /** Time between two comparisons of followed turns with the table. Default 1,000. */
  readonly verifyMs?: number;
  readonly clock?: Clock;
  readonly logger: Logger;
}

/** The log, and what it holds on to, for metrics and leak tests. */
export interface PostgresReplayLog extends ReplayLog {
  readonly counts: TurnTails["counts"];
}

const RETRY_FIRST_MS = 50;
const RETRY_MOST_MS = 500;
const PING_WITHIN_MS = 2_000;
const READ_WITHIN_MS = 2_000;
const ERASE_LOT = 500;
/** A tombstone must outlive every writer that may still hold an old expectation. */
const TOMBSTONE_HOURS = 24;

const COLUMNS = "entry_no, epoch, incarnation, first_seq, last_seq, terminal, erased, batch";

const HEAD = `select ${COLUMNS} from tw_log_entries where turn_id = $1 order by entry_no desc limit 1`;

const HEADS = `
select t.turn_id, (select max(e.entry_no) from tw_log_entries e where e.turn_id = t.turn_id) as entry_no
  from unnest($1::text[]) as t(turn_id)`;

const LOCATE = `
select entry_no from tw_log_entries
 where turn_id = $1 and entry_no <= $2 and first_seq <= $3 order by entry_no desc limit 1`;

const PAGE = `
with lot as (
  select entry_no, sum(octet_length(batch)) over (order by entry_no) - octet_length(batch) as bytes_before
    from tw_log_entries where turn_id = $1 and entry_no > $2 and entry_no <= $3 order by entry_no limit ${PAGE_ENTRIES}
)
select ${COLUMNS} from lot join tw_log_entries e using (entry_no)
 where e.turn_id = $1 and lot.bytes_before < ${PAGE_BYTES} order by entry_no`;

// In ascending order: an entry never goes before its predecessors, so no old expectation looks like the last entry.
const ERASE = `
delete from tw_log_entries where turn_id = $1 and entry_no in (
  select entry_no from tw_log_entries where turn_id = $1 and entry_no < $2 order by entry_no limit ${ERASE_LOT}
)`;

const FORGET_TOMBSTONES = `
delete from tw_log_entries where (turn_id, entry_no) in (
  select turn_id, entry_no from tw_log_entries
   where erased and created_at < now() - interval '${TOMBSTONE_HOURS} hours' order by created_at limit 100
)`;

interface EntryRow {
  readonly entry_no: string;
  readonly epoch: string;
  readonly incarnation: string;
  readonly first_seq: string;
  readonly last_seq: string;
  readonly terminal: boolean;
  readonly erased: boolean;
  readonly batch: Buffer;
}

/**
 * Connects, makes or updates the tables, and returns the log. Throws UNAVAILABLE when the database does not answer in
 * time, INTERNAL (with the cause) when its tables are of a newer version or cannot be made.
 */
export async function connectPostgresReplayLog(
  options: PostgresReplayLogOptions,
): Promise<PostgresReplayLog> {
  const clock = options.clock ?? systemClock;
  const log = new OnPostgres(options, clock);
  const giveUpAt = clock.monotonicMs() + (options.connectTimeoutMs ?? 10_000);
  for (let pause = RETRY_FIRST_MS; ; pause = Math.min(pause * 2, RETRY_MOST_MS)) {
    try {
      await log.open();
      return log;
    } catch (error) {
      const failure = queryError(error);
      if (failure.code !== ErrorCode.UNAVAILABLE || clock.monotonicMs() + pause >= giveUpAt) {
        await log.close();
        throw failure;
      }
    }
    await clock.sleep(pause);
  }
}

class OnPostgres implements PostgresReplayLog {
  readonly kind = "postgres" as const;
  logId = "";
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #pool: pg.Pool;
  readonly #appender: PostgresAppender;
  readonly #tails: TurnTails;
  readonly #listenerOptions: ConstructorParameters<typeof PostgresListener>[0];
  #listener: PostgresListener | undefined;
  #identifying: Promise<void> | undefined;
  #closed: Promise<void> | undefined;

  constructor(options: PostgresReplayLogOptions, clock: Clock) {
    const { connectionString, logger } = options;
    const origin = newId();
    this.#clock = clock;
    this.#logger = logger;
    this.#pool = new pg.Pool({
      connectionString,
      application_name: "turnwire-log-read",
      max: 4,
      connectionTimeoutMillis: READ_WITHIN_MS,
      query_timeout: READ_WITHIN_MS,
      statement_timeout: READ_WITHIN_MS,
      keepAlive: true,
      allowExitOnIdle: true,
    });
    this.#pool.on("error", (error) =>
      logger.warn({ err: error }, "lost an idle connection to the log's database"),
    );
    this.#appender = new PostgresAppender({
      connectionString,
      origin,
      timeoutMs: options.appendTimeoutMs ?? 1_000,
      logger,
      onMissing: () => void this.#identify().catch(() => undefined), // tried again with the next call
    });
    this.#listenerOptions = {
      connectionString,
      origin,
      logger,
      onHint: (turnId, entryNo) => this.#tails.behind(turnId, entryNo as Position),
      onReady: () => {
        this.#tails.resync();
        void this.#identify().catch(() => undefined); // tried again with the next verification
      },
    };
    this.#tails = new TurnTails({
      store: {
        head: (turn) => this.#head(turn),
        locate: (turn, afterSeq, _hint, head) => this.#locate(turn, afterSeq, head),
        page: (turn, after, upTo) => this.#page(turn, after, upTo),
        heads: (turns) => this.#heads(turns),
        watch: () => () => undefined, // one LISTEN serves all turns
      },
      clock,
      logger,
      verifyMs: options.verifyMs ?? 1_000,
      ...(options.patienceMs === undefined ? {} : { patienceMs: options.patienceMs }),
    });
  }

  get counts(): TurnTails["counts"] {
    return this.#tails.counts;
  }

  /** Makes or updates the tables, and begins to listen. */
  async open(): Promise<void> {
    this.logId = await this.#ensureSchema();
    this.#listener ??= new PostgresListener(this.#listenerOptions);
  }

  async append(
    turn: TurnLogKey,
    expected: Position,
    entry: Entry,
    signal: AbortSignal,
  ): Promise<AppendOutcome> {
    signal.throwIfAborted();
    if (entry.batch.length > MAX_BATCH_BYTES) throw new TurnError(ErrorCode.SIZE_LIMIT);
    return this.#append(turn, expected, entry);
  }

  async #append(
    turn: TurnLogKey,
    expected: Position,
    entry: Entry & { erased?: boolean },
  ): Promise<AppendOutcome> {
    checkIds(turn, entry);
    const answer = await this.#appender.append(turn, expected, entry);
    if (answer.kind === "appended") {
      this.#tails.appended(turn, { ...entry, position: answer.position }, expected);
      return answer;
    }
    if (answer.kind !== "refused") return answer;
    this.#tails.localLost(turn.turnId);
    try {
      return { kind: "refused", last: await this.#head(turn) };
    } catch (error) {
      return { kind: "unknown", cause: error }; // repeated, it is refused again
    }
  }

  head(turn: TurnLogKey, signal: AbortSignal): Promise<LoggedEntry | undefined> {
    return abortable(this.#head(turn), signal);
  }

  read(turn: TurnLogKey, afterSeq: number, options: ReadOptions): AsyncIterable<LoggedEntry> {
    return this.#tails.read(turn, afterSeq, options);
  }

  follow(turn: TurnLogKey, afterSeq: number, options: ReadOptions): AsyncIterable<LoggedEntry> {
    return this.#tails.follow(turn, afterSeq, options);
  }

  async erase(turn: TurnLogKey, signal: AbortSignal): Promise<void> {
    const tombstone = await this.#bury(turn, signal);
    if (tombstone === undefined) return;
    for (let gone = ERASE_LOT; gone === ERASE_LOT;) {
      signal.throwIfAborted();
      gone = (await this.#query(ERASE, [turn.turnId, tombstone])).rowCount ?? 0;
    }
    await this.#query(FORGET_TOMBSTONES, []);
  }

  /** The position of the turn's tombstone, appended if it is not there; undefined = the turn has no entries. */
  async #bury(turn: TurnLogKey, signal: AbortSignal): Promise<Position | undefined> {
    for (let pause = RETRY_FIRST_MS; ; pause = Math.min(pause * 2, RETRY_MOST_MS)) {
      const last = await this.head(turn, signal);
      if (!last || last.erased) return last?.position;
      const { epoch, lastSeq, position } = last;
      const batch = new Uint8Array(0);
      const incarnation = `erase-${newId()}`;
      const tombstone = {
        epoch,
        incarnation,
        firstSeq: lastSeq + 1,
        lastSeq,
        terminal: false,
        erased: true,
        batch,
      };
      const outcome = await this.#append(turn, position, tombstone);
      if (outcome.kind === "appended") return outcome.position;
      if (outcome.kind === "full") throw new TurnError(ErrorCode.OVERLOADED, { message: "the log is full" });
      await this.#clock.sleep(pause, signal);
    }
  }

  fullness(signal: AbortSignal): Promise<number> {
    signal.throwIfAborted();
    return Promise.resolve(0);
  }

  async ping(signal: AbortSignal): Promise<void> {
    const within = AbortSignal.any([signal, AbortSignal.timeout(PING_WITHIN_MS)]);
    try {
      await abortable(this.#identify(), within);
    } catch (error) {
      signal.throwIfAborted();
      throw new TurnError(ErrorCode.UNAVAILABLE, { message: "the log cannot be reached", cause: error });
    }
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    this.#tails.close(new TurnError(ErrorCode.UNAVAILABLE, { message: "the log was closed" }));
    await Promise.all([this.#appender.close(), this.#listener?.close(), this.#pool.end()]);
  }

  async #query<Row extends pg.QueryResultRow>(
    text: string,
    values: readonly unknown[],
  ): Promise<pg.QueryResult<Row>> {
    try {
      return await this.#pool.query<Row>(text, [...values]);
    } catch (error) {
      if (!isUndefinedTable(error)) throw queryError(error);
      await this.#identify();
      throw new TurnError(ErrorCode.LOG_REPLACED, { cause: error });
    }
  }

  async #head(turn: TurnLogKey): Promise<LoggedEntry | undefined> {
    const { rows } = await this.#query<EntryRow>(HEAD, [turn.turnId]);
    return rows[0] && entryOfRow(rows[0]);
  }

  async #heads(turns: readonly TurnLogKey[]): Promise<ReadonlyMap<string, Position>> {
    await this.#identify();
    const ids = turns.map((turn) => turn.turnId);
    const { rows } = await this.#query<{ turn_id: string; entry_no: string | null }>(HEADS, [ids]);
    return new Map(
      rows
        .filter((row) => row.entry_no !== null)
        .map((row) => [row.turn_id, Number(row.entry_no) as Position]),
    );
  }

  /** A search from the head backwards costs about what checking a hint would. */
  async #locate(turn: TurnLogKey, afterSeq: number, head: LoggedEntry): Promise<Position> {
    if (afterSeq === 0) return NOTHING;
    const { rows } = await this.#query<{ entry_no: string }>(LOCATE, [
      turn.turnId,
      head.position,
      afterSeq + 1,
    ]);
    return (rows[0] ? Number(rows[0].entry_no) - 1 : NOTHING) as Position;
  }

  async #page(turn: TurnLogKey, after: Position, upTo: Position): Promise<readonly LoggedEntry[]> {
    const { rows } = await this.#query<EntryRow>(PAGE, [turn.turnId, after, upTo]);
    return rows.map(entryOfRow);
  }

  async #ensureSchema(): Promise<string> {
    const client = await this.#pool.connect();
    let broken = true;
    try {
      const logId = await ensureSchema(client);
      broken = false;
      return logId;
    } finally {
      client.release(broken);
    }
  }

  /** Looks whether the tables are still the ones they were; if not, makes them and fails who reads the old. */
  #identify(): Promise<void> {
    this.#identifying ??= this.#identifyNow().finally(() => (this.#identifying = undefined));
    return this.#identifying;
  }

  async #identifyNow(): Promise<void> {
    const logId = await this.#currentLogId();
    if (logId === this.logId) return;
    this.#logger.error(
      { before: this.logId, logId },
      "the log was replaced: turns that were running have lost theirs",
    );
    this.logId = logId;
    this.#tails.fail(new TurnError(ErrorCode.LOG_REPLACED));
  }

  async #currentLogId(): Promise<string> {
    try {
      const { rows } = await this.#pool.query<{ log_id: string }>("select log_id from tw_log_meta");
      if (rows[0]) return rows[0].log_id;
    } catch (error) {
      if (!isUndefinedTable(error)) throw queryError(error);
    }
    return this.#ensureSchema();
  }
}

function entryOfRow(row: EntryRow): LoggedEntry {
  const { buffer, byteOffset, byteLength } = row.batch;
  const entry = {
    position: Number(row.entry_no) as Position,
    epoch: Number(row.epoch),
    incarnation: row.incarnation,
    firstSeq: Number(row.first_seq),
    lastSeq: Number(row.last_seq),
    terminal: row.terminal,
    batch: new Uint8Array(buffer, byteOffset, byteLength),
  };
  return row.erased ? { ...entry, erased: true } : entry;
}

/** One bad value would fail the appends of all turns that share its statement. */
function checkIds(turn: TurnLogKey, entry: Entry): void {
  const printable = /^[\x21-\x2b\x2d-\x39\x3b-\x7e]{1,128}$/; // without "," and ":", which part the notifications
  const numbers = [entry.epoch, entry.firstSeq, entry.lastSeq];
  const good = numbers.every((number) => Number.isSafeInteger(number) && number >= 0);
  if (good && printable.test(turn.turnId) && printable.test(entry.incarnation)) return;
  throw new TurnError(ErrorCode.INTERNAL, {
    cause: new Error("a turn id, incarnation or number the log cannot hold"),
  });
}

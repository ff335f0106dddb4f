/**
 * Owns the one connection that appends. All turns' entries that wait while a statement runs go with the next one, in one
 * commit: durable together, refused each alone.
 *
 * Invariants: a batch holds at most one entry per turn; an entry waits at most `timeoutMs` for its outcome, then it is
 * unknown, whatever becomes of it; a connection whose statement takes far longer is given up.
 */
import pg from "pg";
import type { Logger } from "../lib/log.js";
import type { Entry, Position, TurnLogKey } from "./replay-log.js";
import { destroyClient, endClient } from "./postgres-connection.js";
import { isDiskFull, isUndefinedTable } from "./postgres-errors.js";

export type AppendAnswer =
  | { readonly kind: "appended"; readonly position: Position }
  | { readonly kind: "refused" }
  | { readonly kind: "unknown"; readonly cause: unknown }
  | { readonly kind: "full" };

export interface PostgresAppenderOptions {
  readonly connectionString: string;
  /** Stands in each notification, so that this process knows its own. */
  readonly origin: string;
  readonly timeoutMs: number;
  readonly logger: Logger;
  /** Called when the tables are not there. */
  readonly onMissing: () => void;
}

/** The channel of notifications: "<origin> <turn>:<entry_no>,<turn>:<entry_no>..." */
export const CHANNEL = "tw_log";

const MAX_BATCH_ENTRIES = 1_000;
const MAX_BATCH_TOTAL_BYTES = 4 * 1024 * 1024;
const RECONNECT_FIRST_MS = 25;
const RECONNECT_MOST_MS = 250;
const SWEEP_MS = 100;
/** Payloads stay below the 8,000 bytes that Postgres takes: 50 x (128 + 1 + 19 + 1) and the origin. */
const IDS_PER_NOTIFICATION = 50;

// The expectation is checked twice: against the last entry this snapshot sees, and by the primary key against a writer
// that commits at the same time. The first keeps an old expectation out while the entries before a tombstone go away.
const APPEND = `
with wanted as (
  select * from unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[],
                       $7::boolean[], $8::boolean[], $9::integer[], $10::integer[])
    as e(turn_id, expected, epoch, incarnation, first_seq, last_seq, terminal, erased, start, length)
), stored as (
  insert into tw_log_entries (turn_id, entry_no, epoch, incarnation, first_seq, last_seq, terminal, erased, batch)
  select turn_id, expected + 1, epoch, incarnation, first_seq, last_seq, terminal, erased,
         substring($11::bytea from start + 1 for length)
    from wanted
   where expected = coalesce((select max(x.entry_no) from tw_log_entries x where x.turn_id = wanted.turn_id), 0)
  on conflict do nothing
  returning turn_id, entry_no
), told as (
  select pg_notify('${CHANNEL}', $12 || ' ' || string_agg(turn_id || ':' || entry_no, ','))
    from (select *, (row_number() over () - 1) / ${IDS_PER_NOTIFICATION} as lot from stored) numbered
   group by lot
)
select turn_id, entry_no, (select count(*) from told) from stored`;

interface Pending {
  readonly turn: TurnLogKey;
  readonly expected: Position;
  readonly entry: Entry & { readonly erased?: boolean };
  readonly deadlineMs: number;
  settled: boolean;
  resolve(answer: AppendAnswer): void;
}

export class PostgresAppender {
  readonly #options: PostgresAppenderOptions;
  readonly #sweeper: NodeJS.Timeout;
  #queue: Pending[] = [];
  #inFlight: readonly Pending[] = [];
  #client: pg.Client | undefined;
  #connecting = false;
  #reconnectMs = 0;
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(options: PostgresAppenderOptions) {
    this.#options = options;
    this.#sweeper = setInterval(() => this.#sweep(), SWEEP_MS);
    this.#sweeper.unref();
  }

  append(
    turn: TurnLogKey,
    expected: Position,
    entry: Entry & { readonly erased?: boolean },
  ): Promise<AppendAnswer> {
    return new Promise((resolve) => {
      if (this.#closed) {
        resolve({ kind: "unknown", cause: new Error("the log was closed") });
        return;
      }
      const deadlineMs = performance.now() + this.#options.timeoutMs;
      this.#queue.push({ turn, expected, entry, deadlineMs, settled: false, resolve });
      // Entries that other turns append in the same tick go along.
      if (this.#queue.length === 1 && this.#inFlight.length === 0) queueMicrotask(() => this.#pump());
    });
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#sweeper);
    clearTimeout(this.#timer);
    for (const pending of [...this.#queue, ...this.#inFlight]) {
      settle(pending, { kind: "unknown", cause: new Error("the log was closed") });
    }
    this.#queue = [];
    const client = this.#client;
    this.#client = undefined;
    if (client) await endClient(client);
  }

  #pump(): void {
    if (this.#inFlight.length > 0 || this.#queue.length === 0 || this.#closed) return;
    if (!this.#client) {
      this.#connectSoon();
      return;
    }
    const batch = this.#takeBatch();
    this.#inFlight = batch;
    const client = this.#client;
    client.query(statementFor(batch, this.#options.origin)).then(
      (result) => this.#onStored(batch, result.rows as { turn_id: string; entry_no: string }[]),
      (error: unknown) => this.#onFailed(batch, client, error),
    );
  }

  /** The next entries, in order; a turn's second entry waits for the next statement. */
  #takeBatch(): readonly Pending[] {
    const batch: Pending[] = [];
    const left: Pending[] = [];
    const turns = new Set<string>();
    let bytes = 0;
    for (const pending of this.#queue) {
      if (pending.settled) continue;
      const fits = batch.length < MAX_BATCH_ENTRIES && (batch.length === 0 || bytes < MAX_BATCH_TOTAL_BYTES);
      if (!fits || turns.has(pending.turn.turnId)) {
        left.push(pending);
        continue;
      }
      turns.add(pending.turn.turnId);
      bytes += pending.entry.batch.length;
      batch.push(pending);
    }
    this.#queue = left;
    return batch;
  }

  #onStored(batch: readonly Pending[], rows: readonly { turn_id: string; entry_no: string }[]): void {
    const stored = new Set(rows.map((row) => row.turn_id));
    this.#inFlight = [];
    // The next statement is on its way before anybody handles this one's outcomes.
    this.#pump();
    for (const pending of batch) {
      const appended = stored.has(pending.turn.turnId);
      const position = (pending.expected + 1) as Position;
      settle(pending, appended ? { kind: "appended", position } : { kind: "refused" });
    }
  }

  #onFailed(batch: readonly Pending[], client: pg.Client, error: unknown): void {
    this.#inFlight = [];
    const kind = isDiskFull(error) ? "full" : "unknown";
    if (isUndefinedTable(error)) this.#options.onMissing();
    for (const pending of batch) settle(pending, kind === "full" ? { kind } : { kind, cause: error });
    // A statement that failed in the server leaves a good connection; anything else does not.
    if (!(error instanceof pg.DatabaseError)) this.#drop(client);
    this.#pump();
  }

  #drop(client: pg.Client): void {
    if (this.#client !== client) return;
    this.#client = undefined;
    void endClient(client);
    if (this.#queue.length > 0) this.#connectSoon();
  }

  #connectSoon(): void {
    if (this.#connecting || this.#closed) return;
    this.#connecting = true;
    this.#timer = setTimeout(() => void this.#connect(), this.#reconnectMs);
    this.#reconnectMs = Math.min(Math.max(this.#reconnectMs * 2, RECONNECT_FIRST_MS), RECONNECT_MOST_MS);
  }

  async #connect(): Promise<void> {
    const client = new pg.Client({
      connectionString: this.#options.connectionString,
      application_name: "turnwire-log-append",
      connectionTimeoutMillis: 2_000,
      keepAlive: true,
    });
    client.on("error", (error) => {
      this.#options.logger.warn({ err: error }, "lost the connection that appends to the log");
      this.#drop(client);
    });
    try {
      await client.connect();
      await client.query("set synchronous_commit = on; set statement_timeout = 5000");
      this.#reconnectMs = 0;
      if (this.#closed) await endClient(client);
      else this.#client = client;
    } catch (error) {
      this.#options.logger.debug({ err: error }, "the log's database cannot be reached yet");
      void endClient(client);
    }
    this.#connecting = false;
    this.#pump();
  }

  #sweep(): void {
    const now = performance.now();
    const cause = new Error("the log's database gave no answer in time");
    for (const pending of this.#queue)
      if (pending.deadlineMs <= now) settle(pending, { kind: "unknown", cause });
    this.#queue = this.#queue.filter((pending) => !pending.settled);
    for (const pending of this.#inFlight)
      if (pending.deadlineMs <= now) settle(pending, { kind: "unknown", cause });
    const stuckSince = this.#inFlight[0]?.deadlineMs ?? Infinity;
    if (this.#client && now > stuckSince + this.#options.timeoutMs) destroyClient(this.#client);
  }
}

function settle(pending: Pending, answer: AppendAnswer): void {
  if (pending.settled) return;
  pending.settled = true;
  pending.resolve(answer);
}

function statementFor(batch: readonly Pending[], origin: string): pg.QueryConfig {
  let start = 0;
  const starts = batch.map(({ entry }) => {
    const at = start;
    start += entry.batch.length;
    return at;
  });
  const column = <T>(value: (pending: Pending) => T): T[] => batch.map(value);
  return {
    name: "tw_append",
    text: APPEND,
    values: [
      column(({ turn }) => turn.turnId),
      column(({ expected }) => expected),
      column(({ entry }) => entry.epoch),
      column(({ entry }) => entry.incarnation),
      column(({ entry }) => entry.firstSeq),
      column(({ entry }) => entry.lastSeq),
      column(({ entry }) => entry.terminal),
      column(({ entry }) => entry.erased ?? false),
      starts,
      column(({ entry }) => entry.batch.length),
      // One value for all batches: an array of byte strings would travel as text, twice as long.
      Buffer.concat(batch.map(({ entry }) => entry.batch)),
      origin,
    ],
  };
}

/**
 * The connections to Postgres, and how statements are run over them.
 *
 * Owns: two pools, so that clients who ask can never take the connections that running turns need to write; their
 * timeouts; the repeats after conflicts and lost connections. Not: what the statements say.
 *
 * - A statement ends within 5 s on the server, 7 s here (a frozen server answers nobody), and waits at most 2 s for a connection.
 * - Text with U+0000 is refused before it is sent: Postgres cannot hold it.
 * - What is repeated after a lost connection may have been done already: every caller is idempotent, or says `repeat: false`.
 */
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../lib/errors.js";
import type { Logger } from "../lib/log.js";
import { classifyPgError, toTurnError } from "./pg-errors.js";

/** A statement with a name is prepared once per connection: for those that run all the time. */
export interface Statement {
  readonly name?: string;
  readonly text: string;
}

export type Param =
  | string
  | number
  | bigint
  | boolean
  | Date
  | Uint8Array
  | null
  | readonly (string | null)[]
  | readonly (number | null)[];

export interface Queryable {
  query<R extends pg.QueryResultRow>(statement: Statement | string, params?: readonly Param[]): Promise<R[]>;
}

export interface RunOptions {
  /** False: not again when the connection broke after the statement may have been sent. Default true. */
  readonly repeat?: boolean;
}

const READERS = 12;
const WRITERS = 8;
export const STATEMENT_TIMEOUT_MS = 5_000;
const ANSWER_TIMEOUT_MS = 7_000;
const CONNECT_TIMEOUT_MS = 3_500;
const IDLE_IN_TRANSACTION_MS = 10_000;
const CLOSE_TIMEOUT_MS = 5_000;
/** Waits before the repeats. A restart of Postgres takes about half a second; longer outages are the caller's. */
const BACKOFF_MS = [20, 50, 100, 200, 400, 400];

export class Db {
  /** For calls that serve clients. */
  readonly readers: Channel;
  /** For the rows of running turns, beats and recovery. */
  readonly writers: Channel;

  constructor(connectionString: string, logger: Logger) {
    this.readers = new Channel(connectionString, READERS, logger);
    this.writers = new Channel(connectionString, WRITERS, logger);
  }

  async close(): Promise<void> {
    await Promise.all([this.readers.close(), this.writers.close()]);
  }
}

/** One pool with the rules above. */
export class Channel implements Queryable {
  readonly #pool: pg.Pool;

  constructor(connectionString: string, max: number, logger: Logger) {
    this.#pool = new pg.Pool({
      connectionString,
      max,
      application_name: "turnwire",
      connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
      statement_timeout: STATEMENT_TIMEOUT_MS,
      query_timeout: ANSWER_TIMEOUT_MS,
      idle_in_transaction_session_timeout: IDLE_IN_TRANSACTION_MS,
      idleTimeoutMillis: 60_000,
      keepAlive: true,
    });
    // Without a listener an idle connection's end would end the process.
    this.#pool.on("error", (error) => logger.debug({ err: error }, "an idle database connection was lost"));
  }

  /** One statement, its own transaction. */
  query<R extends pg.QueryResultRow>(
    statement: Statement | string,
    params: readonly Param[] = [],
    options: RunOptions = {},
  ): Promise<R[]> {
    refuseNul(params);
    return this.#run((client) => send<R>(client, statement, params), options);
  }

  /** `work` in a transaction; a throw undoes it (an Undo gives a result nevertheless). It may run again from the start. */
  transaction<T>(work: (tx: Queryable) => Promise<T>, options: RunOptions = {}): Promise<T> {
    return this.#run(async (client) => {
      await client.query("begin");
      try {
        const result = await work({
          query: (statement, params = []) => {
            refuseNul(params);
            return send(client, statement, params);
          },
        });
        await client.query("commit");
        return result;
      } catch (error) {
        if (leavesUsable(error)) await client.query("rollback");
        if (error instanceof Undo) return error.result as T;
        throw error;
      }
    }, options);
  }

  async close(): Promise<void> {
    await Promise.race([this.#pool.end(), sleep(CLOSE_TIMEOUT_MS, undefined, { ref: false })]);
  }

  async #run<T>(work: (client: pg.PoolClient) => Promise<T>, options: RunOptions): Promise<T> {
    for (let attempt = 0; ; attempt++) {
      const outcome = await this.#attempt(work);
      if (outcome.kind === "done") return outcome.value;
      const mayRepeat =
        outcome.failure === "conflict" ||
        (outcome.failure === "lost" && (!outcome.sent || options.repeat !== false));
      const backoffMs = BACKOFF_MS[attempt];
      if (!mayRepeat || backoffMs === undefined) throw toTurnError(outcome.error);
      await sleep(backoffMs * (0.5 + Math.random()));
    }
  }

  async #attempt<T>(work: (client: pg.PoolClient) => Promise<T>): Promise<Attempt<T>> {
    let client: pg.PoolClient;
    try {
      client = await this.#pool.connect();
    } catch (error) {
      return { kind: "failed", error: notConnected(error), failure: classifyPgError(error), sent: false };
    }
    const broke = (): void => undefined; // the statement in flight reports it
    client.on("error", broke);
    try {
      const value = await work(client);
      client.off("error", broke);
      client.release();
      return { kind: "done", value };
    } catch (error) {
      client.off("error", broke);
      client.release(!leavesUsable(error));
      return { kind: "failed", error, failure: classifyPgError(error), sent: true };
    }
  }
}

/** A connection that is refused, for whatever reason, is no fault inside: the database is not to be had. */
function notConnected(error: unknown): unknown {
  if (classifyPgError(error) !== "other") return error;
  return new TurnError(ErrorCode.UNAVAILABLE, { message: "the database refuses connections", cause: error });
}

/** Thrown in a transaction: nothing of it stays, and `result` is its result. */
export class Undo extends Error {
  constructor(readonly result: unknown) {
    super("undone on purpose");
  }
}

/** False after a break, or an answer that never came: the connection is of no use any more. */
function leavesUsable(error: unknown): boolean {
  const failure = classifyPgError(error);
  return failure !== "lost" && (failure !== "slow" || error instanceof pg.DatabaseError);
}

type Attempt<T> =
  | { readonly kind: "done"; readonly value: T }
  | {
      readonly kind: "failed";
      readonly error: unknown;
      readonly failure: ReturnType<typeof classifyPgError>;
      readonly sent: boolean;
    };

async function send<R extends pg.QueryResultRow>(
  client: pg.PoolClient,
  statement: Statement | string,
  params: readonly Param[],
): Promise<R[]> {
  const query = typeof statement === "string" ? { text: statement } : statement;
  return (await client.query<R>({ ...query, values: [...params] })).rows;
}

function refuseNul(params: readonly Param[]): void {
  for (const param of params) {
    const texts = Array.isArray(param) ? (param as readonly unknown[]) : [param];
    if (texts.some((text) => typeof text === "string" && text.includes("\0"))) {
      throw new TurnError(ErrorCode.INVALID_ARGUMENT, {
        message: "text must not hold the character U+0000 here",
      });
    }
  }
}

/** A bytea column as plain bytes. */
export function bytes(value: Buffer): Uint8Array {
  return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
}

export function optionalBytes(value: Buffer | null): Uint8Array | undefined {
  return value === null ? undefined : bytes(value);
}

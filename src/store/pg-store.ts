/** The Store over Postgres: its parts put together, the database brought to this version first. */
import pg from "pg";
import { abortable } from "../lib/signals.js";
import type { Logger } from "../lib/log.js";
import { acceptTurn, findAccepted } from "./accept-turn.js";
import { commandMethods } from "./commands.js";
import { commitTurn } from "./commit-turn.js";
import { Db } from "./db.js";
import { fileMethods } from "./files.js";
import { Listener } from "./listener.js";
import { messageMethods } from "./messages.js";
import { migrate } from "./migrate.js";
import { toTurnError } from "./pg-errors.js";
import { processMethods } from "./processes.js";
import { searchMessages } from "./search-messages.js";
import { EventWakes, sessionEventMethods } from "./session-events.js";
import { sessionMethods } from "./sessions.js";
import type { Store } from "./store.js";
import { turnMethods } from "./turns.js";
import { writerRowMethods } from "./writer-rows.js";

export interface ConnectPgStoreOptions {
  readonly connectionString: string;
  readonly logger: Logger;
}

const MIGRATE_LOCK_TIMEOUT_MS = 60_000;

/**
 * Connects, migrates, and answers the store. `close` ends its connections.
 * @throws TurnError UNAVAILABLE when the database is not there, refuses the login, or is of a newer version.
 */
export async function connectPgStore({ connectionString, logger }: ConnectPgStoreOptions): Promise<Store> {
  await migrateDatabase(connectionString, logger);
  const db = new Db(connectionString, logger);
  const listener = new Listener(connectionString, logger);
  const wakes = new EventWakes(db, listener, logger);
  return {
    ...sessionMethods(db, wakes),
    ...messageMethods(db, wakes),
    ...sessionEventMethods(db, wakes),
    ...turnMethods(db),
    ...writerRowMethods(db),
    ...fileMethods(db),
    ...commandMethods(db, listener),
    ...processMethods(db),
    searchMessages: (principal, query, page) => searchMessages(db, principal, query, page),
    acceptTurn: (input) => acceptTurn(db, wakes, input),
    findAccepted: (principal, requestId, requestHash) => findAccepted(db, principal, requestId, requestHash),
    commitTurn: (input) => commitTurn(db, wakes, input),
    ping: async (signal) => {
      await abortable(db.readers.query("select 1"), signal);
    },
    close: async () => {
      await listener.close();
      await db.close();
    },
  };
}

async function migrateDatabase(connectionString: string, logger: Logger): Promise<void> {
  const client = new pg.Client({
    connectionString,
    application_name: "turnwire-migrate",
    connectionTimeoutMillis: 5_000,
    lock_timeout: MIGRATE_LOCK_TIMEOUT_MS,
  });
  client.on("error", (error) => logger.warn({ err: error }, "the migrating connection was lost"));
  try {
    await client.connect();
    await migrate(client, logger);
  } catch (error) {
    throw toTurnError(error);
  } finally {
    await client.end().catch(() => undefined); // it may be broken
  }
}

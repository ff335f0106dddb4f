/** What a failure of Postgres means to us: gone, busy with a conflict, full, or our own fault. */
import pg from "pg";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../lib/errors.js";

export type PgFailure =
  /** Nothing was done, or nobody knows: the connection broke, or the server is starting or stopping. */
  | "lost"
  /** The transaction was undone by the server because of another one: it may be run again at once. */
  | "conflict"
  /** The server or a lock took too long, or all its connections are taken. */
  | "slow"
  | "disk_full"
  | "read_only"
  | "login"
  | "other";

const BY_STATE: Readonly<Record<string, PgFailure>> = {
  "40001": "conflict",
  "40P01": "conflict",
  "53100": "disk_full",
  "25006": "read_only",
  "53200": "slow",
  "53300": "slow",
  "55P03": "slow",
  "57014": "slow",
  "57P01": "lost",
  "57P02": "lost",
  "57P03": "lost",
  "57P05": "lost",
  "25P03": "lost",
  "58000": "lost",
  "58030": "disk_full",
  "3D000": "login",
};
const SOCKET_CODES = new Set([
  "ECONNREFUSED",
  "ECONNRESET",
  "EPIPE",
  "ETIMEDOUT",
  "ENOTFOUND",
  "EAI_AGAIN",
  "EHOSTUNREACH",
  "ENETUNREACH",
]);
/** node-postgres says these without a code. */
const LOST_MESSAGES = /^Connection terminated|not queryable|Client was closed|Connection ended/i;
const SLOW_MESSAGES = /timeout exceeded when trying to connect|Query read timeout|due to connection timeout/i;

const MESSAGES: Readonly<Record<Exclude<PgFailure, "other">, string>> = {
  lost: "the database is not available, try again",
  conflict: "the database was too busy with conflicting changes, try again",
  slow: "the database did not answer in time, try again",
  disk_full: "the database has no space left: nothing was stored",
  read_only: "the database is read-only: nothing was stored",
  login: "the database refuses the login",
};

/** Sorts whatever node-postgres threw. */
export function classifyPgError(error: unknown): PgFailure {
  if (error instanceof pg.DatabaseError) {
    const state = error.code ?? "";
    if (state.startsWith("08")) return "lost";
    if (state.startsWith("28")) return "login";
    return BY_STATE[state] ?? "other";
  }
  if (!(error instanceof Error)) return "other";
  if (SLOW_MESSAGES.test(error.message)) return "slow";
  const code = (error as NodeJS.ErrnoException).code;
  if ((code !== undefined && SOCKET_CODES.has(code)) || LOST_MESSAGES.test(error.message)) return "lost";
  return error instanceof AggregateError && error.errors.length > 0
    ? classifyPgError(error.errors[0])
    : "other";
}

/** The error that leaves the store: a TurnError stays itself; the cause is kept for the log. */
export function toTurnError(error: unknown): TurnError {
  if (error instanceof TurnError) return error;
  const failure = classifyPgError(error);
  if (failure === "other") return new TurnError(ErrorCode.INTERNAL, { cause: error });
  return new TurnError(ErrorCode.UNAVAILABLE, { message: MESSAGES[failure], cause: error });
}

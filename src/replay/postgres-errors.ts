import pg from "pg";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../lib/errors.js";

/** Classes of SQLSTATE that say "not now": connection, resources, operator intervention, and cancelled by timeout. */
const NOT_NOW = ["08", "53", "57", "58"];

/** The volume of the database has no room. */
export function isDiskFull(error: unknown): boolean {
  return error instanceof pg.DatabaseError && error.code === "53100";
}

/** The log's tables are not there. */
export function isUndefinedTable(error: unknown): boolean {
  return error instanceof pg.DatabaseError && error.code === "42P01";
}

/** A failed query as the port's error: UNAVAILABLE when a later attempt may work, else INTERNAL with the cause. */
export function queryError(error: unknown): TurnError {
  if (error instanceof TurnError) return error;
  const lasting = error instanceof pg.DatabaseError && !NOT_NOW.includes((error.code ?? "").slice(0, 2));
  return new TurnError(lasting ? ErrorCode.INTERNAL : ErrorCode.UNAVAILABLE, { cause: error });
}

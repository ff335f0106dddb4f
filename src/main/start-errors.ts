/** Failures of a start in words that name the setting to look at. No credentials: of a URL only host and path are shown. */
import pg from "pg";
import { TurnError } from "../lib/errors.js";

/** `listening`, or its failure with the settings that choose another address. */
export async function onPort<T>(variable: string, listening: Promise<T>): Promise<T> {
  try {
    return await listening;
  } catch (error) {
    if (!(error instanceof TurnError)) throw error;
    throw new TurnError(error.code, {
      message: `${error.message}: set ${variable} to a free port, or check TURNWIRE_HOST`,
      cause: error,
    });
  }
}

/** `opening`, or its failure with the setting that says where the thing is. */
export async function atUrl<T>(setting: string, url: string, opening: Promise<T>): Promise<T> {
  try {
    return await opening;
  } catch (error) {
    if (!(error instanceof TurnError)) throw error;
    const reason = reasonOf(error.cause);
    throw new TurnError(error.code, {
      message: `${setting} (${placesOf(url)}): ${error.message}${reason ? ` (${reason})` : ""}`,
      cause: error,
    });
  }
}

/** Hosts and paths of one or several URLs. */
function placesOf(urls: string): string {
  return urls
    .split(",")
    .map((url) => {
      const parsed = new URL(url.includes("://") ? url.trim() : `any://${url.trim()}`);
      return `${parsed.host}${parsed.pathname === "/" ? "" : parsed.pathname}`;
    })
    .join(", ");
}

/** The innermost cause, as far as operators may read it: a system's or a library's code, Postgres's own words. */
function reasonOf(cause: unknown): string {
  if (cause instanceof pg.DatabaseError) return cause.message;
  if (cause instanceof TurnError) return reasonOf(cause.cause) || cause.message;
  if (cause instanceof AggregateError && cause.errors.length > 0) return reasonOf(cause.errors[0]);
  const code = (cause as { code?: unknown } | undefined)?.code;
  return typeof code === "string" ? code : "";
}

/** What the commands that list things share. */
import { toJsonString, type DescMessage, type MessageShape } from "@bufbuild/protobuf";
import { timestampDate, type Timestamp } from "@bufbuild/protobuf/wkt";
import type { CliContext } from "../context.js";
import { ExitCode } from "../exit-codes.js";
import { table } from "../table.js";
import { printable } from "../terminal.js";

export const PAGE_SIZE = 50;

/** Collects pages until there are no more, or enough. */
export async function pages<P extends { readonly nextPageToken: string }, T>(
  fetchPage: (pageToken: string) => Promise<P>,
  itemsOf: (page: P) => readonly T[],
  limit = Number.POSITIVE_INFINITY,
): Promise<T[]> {
  const items: T[] = [];
  let pageToken = "";
  do {
    const page = await fetchPage(pageToken);
    items.push(...itemsOf(page));
    if (page.nextPageToken === pageToken) break; // a server that repeats its token would never end
    pageToken = page.nextPageToken;
  } while (pageToken && items.length < limit);
  return items.slice(0, Math.min(items.length, limit));
}

/** Prints items as aligned rows, or with --json as one object per line; `none` goes to standard error. */
export async function printRows<D extends DescMessage>(
  schema: D,
  items: readonly MessageShape<D>[],
  none: string,
  { terminal, json }: CliContext,
  row: (item: MessageShape<D>) => string[],
): Promise<ExitCode> {
  if (items.length === 0 && !json) await terminal.aside(none);
  const lines = json ? items.map((item) => toJsonString(schema, item)) : table(items.map(row));
  for (const line of lines) await terminal.line(line);
  return ExitCode.OK;
}

/** A time to the minute, in UTC. */
export function time(timestamp: Timestamp | undefined): string {
  return timestamp ? timestampDate(timestamp).toISOString().slice(0, 16).replace("T", " ") : "";
}

/** One line without control characters: titles and descriptions come from models and peers. */
export function oneLine(text: string): string {
  return printable(text.replace(/\s+/g, " ")).trim();
}

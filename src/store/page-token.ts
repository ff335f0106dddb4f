/**
 * Tokens that say where the next page begins. They carry the last row's sort key and a check over it and over what was
 * asked for, so a token that was changed, cut or taken to another list is refused. They grant nothing: the principal does.
 */
import { createHash } from "node:crypto";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../lib/errors.js";
import type { Page, Paged } from "./store.js";

export type SortKey = readonly (string | number)[];

const MAX_PAGE_SIZE = 200;
const DEFAULT_PAGE_SIZE = 50;
const CHECK_BYTES = 9;

/** Rows to ask for: the page's size, capped (0 = the default). */
export function pageSize(page: Page): number {
  return page.size > 0 ? Math.min(page.size, MAX_PAGE_SIZE) : DEFAULT_PAGE_SIZE;
}

/** The sort key after which the page begins; undefined = at the start. `scope`: everything else that was asked for. */
export function startAfter(page: Page, scope: SortKey): SortKey | undefined {
  if (page.token === "") return undefined;
  const key = openToken(page.token, scope);
  if (key) return key;
  throw new TurnError(ErrorCode.INVALID_ARGUMENT, {
    message: "page_token is not one of this list's",
    details: { field: "page_token" },
  });
}

/** What `sealToken` put into a token; undefined = it is not one of ours, or of another scope. */
export function openToken(token: string, scope: SortKey): SortKey | undefined {
  const raw = Buffer.from(token, "base64url");
  const payload = raw.subarray(CHECK_BYTES);
  // Decoding base64url is lenient; a token is what we made, to the letter.
  const ours =
    raw.toString("base64url") === token && raw.subarray(0, CHECK_BYTES).equals(check(scope, payload));
  return ours ? (JSON.parse(payload.toString("utf8")) as SortKey) : undefined;
}

/** Cuts `size + 1` rows to a page. */
export function toPage<R, T>(
  rows: readonly R[],
  size: number,
  scope: SortKey,
  keyOf: (row: R) => SortKey,
  map: (row: R) => T,
): Paged<T> {
  const kept = rows.slice(0, size);
  const last = kept.at(-1);
  return {
    rows: kept.map(map),
    nextToken: rows.length > size && last !== undefined ? sealToken(keyOf(last), scope) : "",
  };
}

/** A token that carries `key` and is only good for `scope`. */
export function sealToken(key: SortKey, scope: SortKey): string {
  const payload = Buffer.from(JSON.stringify(key));
  return Buffer.concat([check(scope, payload), payload]).toString("base64url");
}

function check(scope: SortKey, payload: Buffer): Buffer {
  return createHash("sha256")
    .update(JSON.stringify(scope))
    .update("\n")
    .update(payload)
    .digest()
    .subarray(0, CHECK_BYTES);
}

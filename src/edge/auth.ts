/** Who calls: bearer tokens from the configuration, or the local user on loopback. */
import { createHash, timingSafeEqual } from "node:crypto";
import { isIPv4 } from "node:net";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../lib/errors.js";
import type { Authenticate, Principal, RequestHeaders } from "../lib/rpc/service-binding.js";

/** Everybody on loopback while no tokens are configured. */
export const LOCAL_PRINCIPAL: Principal = { tenantId: "local", userId: "local", admin: true };

/** What the chat service is to an llm or tool peer; whose turn it is stands in the request. */
export const PEER_PRINCIPAL: Principal = { tenantId: "peer", userId: "peer", admin: false };

export interface AuthenticatorOptions {
  /** The value of TURNWIRE_TOKENS: `token=tenant/user[/admin][+group...],...`, each entry split at its last `=`. */
  readonly tokens?: string;
  /** Whether the port is reachable from this machine only. */
  readonly loopback: boolean;
}

/** Throws an Error that tells how to repair the configuration, and never prints a token. */
export function createAuthenticator(options: AuthenticatorOptions): Authenticate {
  const entries = parseTokens(options.tokens ?? "");
  if (entries.length > 0) return (headers) => principalOf(entries, headers);
  if (options.loopback) return () => LOCAL_PRINCIPAL;
  throw new Error(
    "TURNWIRE_HOST is not a loopback address: set TURNWIRE_TOKENS (token=tenant/user[/admin][+group...],...)",
  );
}

/** The llm and tool peers' door: one shared token, demanded off loopback and wherever it is set. */
export function createPeerAuthenticator(options: {
  readonly token?: string;
  readonly loopback: boolean;
}): Authenticate {
  if (options.token) {
    const entries = [{ digest: digestOf(options.token), principal: PEER_PRINCIPAL }];
    return (headers) => principalOf(entries, headers);
  }
  if (options.loopback) return () => PEER_PRINCIPAL;
  throw new Error("TURNWIRE_HOST is not a loopback address: set TURNWIRE_PEER_TOKEN");
}

/** Whether a listening address can be reached from this machine only. */
export function isLoopbackHost(host: string): boolean {
  const bare = host.replace(/^\[(.*)\]$/, "$1").toLowerCase();
  return bare === "localhost" || bare === "::1" || (isIPv4(bare) && bare.startsWith("127."));
}

interface TokenEntry {
  readonly digest: Buffer;
  readonly principal: Principal;
}

function parseTokens(text: string): TokenEntry[] {
  const entries: TokenEntry[] = [];
  for (const [index, raw] of text.split(",").entries()) {
    if (raw.trim() === "") continue;
    const entry = parseEntry(raw.trim());
    if (typeof entry === "string") throw new Error(`TURNWIRE_TOKENS, entry ${index + 1}: ${entry}`);
    if (entries.some((other) => other.digest.equals(entry.digest))) {
      throw new Error(`TURNWIRE_TOKENS, entry ${index + 1}: its token stands in an earlier entry too`);
    }
    entries.push(entry);
  }
  return entries;
}

const NAME = /^[A-Za-z0-9][A-Za-z0-9_.@:-]{0,127}$/;
/** Without a colon: access lists tell groups from tenants and users by it. */
const GROUP = /^[A-Za-z0-9][A-Za-z0-9_.@-]{0,127}$/;
const MAX_GROUPS = 256;

/** The entry, or what is wrong with it. */
function parseEntry(raw: string): TokenEntry | string {
  const split = raw.lastIndexOf("=");
  const token = raw.slice(0, Math.max(split, 0)).trim();
  if (token === "") return "expected token=tenant/user or token=tenant/user/admin";
  if (/[\s\u0000-\u001f\u007f-\uffff]/.test(token)) return "a token is printable ASCII without spaces";
  const [who = "", ...groups] = raw.slice(split + 1).split("+");
  const [tenantId = "", userId = "", role, ...rest] = who.split("/");
  if (!NAME.test(tenantId) || !NAME.test(userId))
    return "expected tenant/user behind the last '=', of letters, digits and _.@:-";
  if (rest.length > 0 || (role !== undefined && role !== "admin"))
    return "the only role is admin: token=tenant/user/admin";
  if (groups.length > MAX_GROUPS || !groups.every((group) => GROUP.test(group)))
    return `expected at most ${MAX_GROUPS} groups, each behind a '+', of letters, digits and _.@-`;
  const principal = { tenantId, userId, admin: role === "admin", ...(groups.length > 0 && { groups }) };
  return { digest: digestOf(token), principal };
}

function principalOf(entries: readonly TokenEntry[], headers: RequestHeaders): Principal {
  const match = /^bearer +(\S+)$/i.exec(headers.get("authorization") ?? "");
  if (!match) throw new TurnError(ErrorCode.UNAUTHENTICATED);
  const digest = digestOf(match[1]!);
  let found: Principal | undefined;
  // every entry is compared, so that the time says nothing about which one matched
  for (const entry of entries) if (timingSafeEqual(entry.digest, digest)) found = entry.principal;
  if (!found) throw new TurnError(ErrorCode.UNAUTHENTICATED);
  return found;
}

function digestOf(token: string): Buffer {
  return createHash("sha256").update(token, "utf8").digest();
}

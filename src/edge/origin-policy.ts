/**
 * Which web pages may call: the page of this server itself and the configured origins, compared exactly. On loopback
 * the Host header must name this machine, or a foreign name that resolves here (DNS rebinding) would count as ours.
 */
import { isLoopbackHost } from "./auth.js";

export interface OriginPolicyOptions {
  /** Exact origins, "https://app.example:8443". */
  readonly corsOrigins: readonly string[];
  /** Whether the port is bound to loopback. */
  readonly loopback: boolean;
}

/** The parts of a request that the policy looks at. */
export interface OriginFacts {
  readonly method: string;
  /** Host header, or :authority. */
  readonly host: string | undefined;
  readonly origin: string | undefined;
}

export type OriginVerdict =
  | { readonly kind: "refused"; readonly status: number; readonly reason: string }
  | { readonly kind: "allowed" | "preflight"; readonly headers: Readonly<Record<string, string>> };

const METHODS = "GET, HEAD, POST, PUT, OPTIONS";
const REQUEST_HEADERS = [
  "Authorization",
  "Content-Type",
  "Connect-Protocol-Version",
  "Connect-Timeout-Ms",
  "Connect-Content-Encoding",
  "Connect-Accept-Encoding",
  "Content-Encoding",
  "Accept-Encoding",
  "Range",
  "Grpc-Timeout",
  "X-Grpc-Web",
  "X-User-Agent",
  "X-Request-Id",
].join(", ");
const EXPOSED_HEADERS = [
  "Content-Disposition",
  "Content-Range",
  "ETag",
  "Content-Encoding",
  "Connect-Content-Encoding",
  "Grpc-Status",
  "Grpc-Message",
  "Grpc-Status-Details-Bin",
  "X-Request-Id",
].join(", ");

/** Throws an Error when a configured origin is none. */
export function createOriginPolicy(options: OriginPolicyOptions): (facts: OriginFacts) => OriginVerdict {
  const origins = new Set(options.corsOrigins.map(normalOrigin));
  const hosts = new Set([...origins].map((origin) => new URL(origin).host));

  return ({ method, host, origin }) => {
    const target = host === undefined ? undefined : parseHost(host);
    if (!target) return { kind: "refused", status: 400, reason: "the request names no valid host" };
    if (options.loopback && !isLoopbackHost(target.hostname) && !hosts.has(target.host)) {
      return { kind: "refused", status: 421, reason: "this server does not answer for that host name" };
    }
    if (origin === undefined) return { kind: "allowed", headers: {} };
    const listed = origins.has(origin);
    if (!listed && !isSameOrigin(origin, target.host)) {
      return { kind: "refused", status: 403, reason: "this origin is not in TURNWIRE_CORS_ORIGINS" };
    }
    const headers = {
      vary: "Origin",
      ...(listed
        ? { "access-control-allow-origin": origin, "access-control-expose-headers": EXPOSED_HEADERS }
        : {}),
    };
    if (method !== "OPTIONS") return { kind: "allowed", headers };
    const preflight = {
      "access-control-allow-methods": METHODS,
      "access-control-allow-headers": REQUEST_HEADERS,
      "access-control-max-age": "7200",
    };
    return { kind: "preflight", headers: listed ? { ...headers, ...preflight } : headers };
  };
}

/** "https://a, https://b" -> the origins. */
export function parseOrigins(text: string | undefined): string[] {
  return (text ?? "")
    .split(",")
    .map((origin) => origin.trim())
    .filter((origin) => origin !== "");
}

function normalOrigin(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (!url || !/^https?:$/.test(url.protocol) || (url.origin !== text && `${url.origin}/` !== text)) {
    throw new Error(`TURNWIRE_CORS_ORIGINS: "${text}" is not an origin such as https://app.example`);
  }
  return url.origin;
}

function parseHost(host: string): URL | undefined {
  if (!/^[A-Za-z0-9.\-_[\]:]+$/.test(host) || !URL.canParse(`http://${host}`)) return undefined;
  return new URL(`http://${host}`);
}

/** The scheme is left out: behind a proxy that ends TLS it is not known here. */
function isSameOrigin(origin: string, host: string): boolean {
  if (!/^https?:\/\//.test(origin) || !URL.canParse(origin)) return false;
  const url = new URL(origin);
  return url.origin === origin && url.host === host;
}

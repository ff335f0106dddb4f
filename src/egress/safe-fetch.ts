/**
 * The only way out of the tool peer to addresses that a model or a web page chose.
 *
 * Invariants:
 * F1 the URL is parsed once, by the WHATWG parser, and that object is what is checked and what is requested.
 * F2 a host is reached only if every address it resolves to is public; the connection goes to one of those checked
 *    addresses, whatever a resolver says later. Host header and TLS name stay the URL's.
 * F3 each redirect is a new URL and passes every check again; never from https to http.
 * F4 no credentials, cookies, referrer or proxy of the environment are sent or used.
 * F5 bounded: total time, hops, header and body bytes (before and after decompression). Aborting closes the socket.
 * Messages of failures are public: they name no address that a resolver gave.
 */
import { lookup } from "node:dns/promises";
import { isIP } from "node:net";
import type { Readable } from "node:stream";
import { rootCertificates } from "node:tls";
import { Agent, buildConnector, type Dispatcher } from "undici";
import { abortable } from "../lib/signals.js";
import { isGlobalAddress, isLocalName } from "./address.js";
import { type BodyLimits, readBody } from "./body.js";
import { FetchFailure } from "./fetch-failure.js";

/** All addresses of a host name. Rejects when there are none. */
export type Resolver = (hostname: string) => Promise<readonly string[]>;

export interface SafeFetchOptions {
  /** "host:port" pairs that are reached without the address and port checks: for tests and operators. Default none. */
  readonly allowHosts?: readonly string[];
  /** Ports allowed on public addresses. Default 80 and 443. */
  readonly ports?: readonly number[];
  /** Default: the system's resolver. */
  readonly resolve?: Resolver;
  /** For everything together, redirects included, ms. Default 15,000. */
  readonly totalTimeoutMs?: number;
  /** For one connection, ms. Default 5,000. */
  readonly connectTimeoutMs?: number;
  /** Redirects followed. Default 5. */
  readonly maxRedirects?: number;
  /** Certificates (PEM) trusted beside the public roots: for operators with their own. Default none. */
  readonly ca?: readonly string[];
  /** Sent as User-Agent. Default "Turnwire/0.1 (open_url)". */
  readonly userAgent?: string;
}

export interface FetchedPage {
  /** Where the content came from, after redirects. */
  readonly url: URL;
  /** The Content-Type header, lower case, as it came. */
  readonly contentType: string;
  /** Decompressed. */
  readonly body: Buffer;
  /** The body went on beyond the limit and was cut there. */
  readonly truncated: boolean;
}

/** Limits of a body by its content type: HTML and PDF differ. */
export type BodyLimitsFor = (contentType: string, url: URL) => BodyLimits;

export type SafeFetch = (url: string, limitsFor: BodyLimitsFor, signal: AbortSignal) => Promise<FetchedPage>;

const MAX_URL_CHARS = 4_096;
const MAX_HEADER_BYTES = 32 * 1024;
const REDIRECTS = new Set([301, 302, 303, 307, 308]);
const ACCEPT =
  "text/html,application/xhtml+xml,application/pdf,text/plain;q=0.9,application/json;q=0.9,*/*;q=0.5";

/** Makes the function that fetches. It holds no connections between calls. */
export function createSafeFetch(options: SafeFetchOptions = {}): SafeFetch {
  const settings: Settings = {
    allowHosts: new Set((options.allowHosts ?? []).map((host) => host.toLowerCase())),
    ports: new Set(options.ports ?? [80, 443]),
    resolve: options.resolve ?? systemResolver,
    connectTimeoutMs: options.connectTimeoutMs ?? 5_000,
    maxRedirects: options.maxRedirects ?? 5,
    ca: options.ca ?? [],
    userAgent: options.userAgent ?? "Turnwire/0.1 (open_url)",
  };
  const totalTimeoutMs = options.totalTimeoutMs ?? 15_000;
  return async (text, limitsFor, signal) => {
    const timeout = AbortSignal.timeout(totalTimeoutMs);
    try {
      return await fetchFollowing(settings, parseUrl(text), limitsFor, AbortSignal.any([signal, timeout]));
    } catch (error) {
      if (signal.aborted) throw new FetchFailure("cancelled", "the fetch was cancelled");
      if (timeout.aborted)
        throw new FetchFailure("timeout", `it took longer than ${totalTimeoutMs / 1000} s`);
      throw error instanceof FetchFailure ? error : unreachable(error);
    }
  };
}

interface Settings {
  readonly allowHosts: ReadonlySet<string>;
  readonly ports: ReadonlySet<number>;
  readonly resolve: Resolver;
  readonly connectTimeoutMs: number;
  readonly maxRedirects: number;
  readonly ca: readonly string[];
  readonly userAgent: string;
}

async function fetchFollowing(
  settings: Settings,
  first: URL,
  limitsFor: BodyLimitsFor,
  signal: AbortSignal,
): Promise<FetchedPage> {
  let url = first;
  for (let hop = 0; ; hop++) {
    const answer = await fetchOnce(settings, url, limitsFor, signal);
    if (answer.kind === "page") return answer.page;
    if (hop >= settings.maxRedirects)
      throw new FetchFailure("redirects", `it redirects more than ${settings.maxRedirects} times`);
    const next = parseUrl(answer.location, url);
    if (url.protocol === "https:" && next.protocol === "http:") {
      throw new FetchFailure("refused", "it redirects from https to plain http");
    }
    url = next;
  }
}

type Answer =
  | { readonly kind: "page"; readonly page: FetchedPage }
  | { readonly kind: "redirect"; readonly location: string };

async function fetchOnce(
  settings: Settings,
  url: URL,
  limitsFor: BodyLimitsFor,
  signal: AbortSignal,
): Promise<Answer> {
  const addresses = await checkedAddresses(settings, url, signal);
  signal.throwIfAborted();
  const agent = new Agent({
    connect: pinnedConnector(addresses, settings),
    connections: 1,
    pipelining: 0,
    maxHeaderSize: MAX_HEADER_BYTES,
    headersTimeout: 0, // the signal is the only timer
    bodyTimeout: 0,
  });
  // A request whose signal aborts while its body is read must not leave the socket to the agent's own clean-up.
  const onAbort = (): void => void agent.destroy(signal.reason as Error).catch(() => undefined);
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    const response = await agent.request({
      origin: url.origin,
      path: url.pathname + url.search,
      method: "GET",
      signal,
      headers: {
        "user-agent": settings.userAgent,
        accept: ACCEPT,
        "accept-encoding": "gzip, deflate, br",
        "accept-language": "*",
      },
    });
    return await readAnswer(response, url, limitsFor);
  } finally {
    signal.removeEventListener("abort", onAbort);
    void agent.destroy().catch(() => undefined); // nothing is waiting on it any more
  }
}

async function readAnswer(
  response: Dispatcher.ResponseData,
  url: URL,
  limitsFor: BodyLimitsFor,
): Promise<Answer> {
  const { statusCode, headers } = response;
  const body = response.body as Readable;
  body.on("error", () => undefined); // a body we leave unread may still fail when its socket is closed
  const location = header(headers["location"]);
  if (REDIRECTS.has(statusCode) && location) return { kind: "redirect", location };
  if (statusCode < 200 || statusCode > 299)
    throw new FetchFailure("http_status", `the server answered with HTTP status ${statusCode}`);
  const contentType = header(headers["content-type"]).toLowerCase();
  const { bytes, truncated } = await readBody(
    body,
    header(headers["content-encoding"]),
    limitsFor(contentType, url),
  );
  return { kind: "page", page: { url, contentType, body: bytes, truncated } };
}

function header(value: string | string[] | undefined): string {
  return (Array.isArray(value) ? value[0] : value) ?? "";
}

function parseUrl(text: string, base?: URL): URL {
  if (text.length > MAX_URL_CHARS)
    throw new FetchFailure("invalid_url", `the URL is longer than ${MAX_URL_CHARS} characters`);
  const url = URL.canParse(text, base?.href) ? new URL(text, base) : undefined;
  if (!url) throw new FetchFailure("invalid_url", "it is not a valid URL");
  if (url.protocol !== "https:" && url.protocol !== "http:") {
    throw new FetchFailure("refused", "only http and https URLs can be opened");
  }
  if (url.username || url.password)
    throw new FetchFailure("refused", "URLs with a user name or password are not opened");
  url.hash = "";
  return url;
}

/** One text for every host that must not be reached, so that nobody learns from it what an inner resolver knows. */
const NOT_PUBLIC = "the host does not lead to a public internet address";

async function checkedAddresses(
  settings: Settings,
  url: URL,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const hostname = url.hostname.replace(/^\[(.*)\]$/, "$1");
  const port = Number(url.port || (url.protocol === "https:" ? 443 : 80));
  const allowed = settings.allowHosts.has(`${url.hostname}:${port}`);
  if (!allowed && !settings.ports.has(port)) {
    throw new FetchFailure(
      "refused",
      `port ${port} is not allowed, only ${[...settings.ports].join(" and ")}`,
    );
  }
  if (isIP(hostname)) {
    if (allowed || isGlobalAddress(hostname)) return [hostname];
    throw new FetchFailure("refused", NOT_PUBLIC);
  }
  if (!allowed && isLocalName(hostname)) throw new FetchFailure("refused", NOT_PUBLIC);
  const addresses = await abortable(settings.resolve(hostname), signal).catch((error: unknown) => {
    throw signal.aborted ? error : new FetchFailure("refused", NOT_PUBLIC, { cause: error });
  });
  const usable =
    addresses.length > 0 &&
    addresses.every((address) => isIP(address) > 0 && (allowed || isGlobalAddress(address)));
  if (!usable) throw new FetchFailure("refused", NOT_PUBLIC);
  return addresses;
}

/** Connects to the given addresses only: names are not resolved again, and a socket that leads elsewhere is closed. */
function pinnedConnector(
  addresses: readonly string[],
  { connectTimeoutMs, ca }: Settings,
): buildConnector.connector {
  const pinned = addresses.map((address) => ({ address, family: isIP(address) }));
  const connect = buildConnector({
    timeout: connectTimeoutMs,
    ...(ca.length > 0 ? { ca: [...rootCertificates, ...ca] } : {}),
    allowH2: false,
    lookup: (_hostname: string, options: { all?: boolean }, callback: LookupCallback) => {
      if (options.all) callback(null, pinned);
      else callback(null, pinned[0]!.address, pinned[0]!.family);
    },
  } as buildConnector.BuildOptions);
  return (options, callback) => {
    connect(options, (...[error, socket]) => {
      if (!socket) {
        callback(error ?? new Error("no socket"), null);
      } else if (pinned.some(({ address }) => sameAddress(address, socket.remoteAddress))) {
        callback(null, socket);
      } else {
        socket.destroy();
        callback(new FetchFailure("refused", NOT_PUBLIC), null);
      }
    });
  };
}

type LookupCallback = (
  error: null,
  address: string | { address: string; family: number }[],
  family?: number,
) => void;

function sameAddress(a: string, b: string | undefined): boolean {
  if (!b || !isIP(b)) return false;
  const normal = (text: string): string =>
    isIP(text) === 6 ? new URL(`http://[${text.replace(/%.*$/, "")}]`).hostname : text;
  return normal(a) === normal(b);
}

const systemResolver: Resolver = async (hostname) => {
  const found = await lookup(hostname, { all: true, verbatim: true });
  return found.map(({ address }) => address);
};

/** Says what went wrong on the way, without addresses: errors of sockets carry them in their texts. */
function unreachable(error: unknown): FetchFailure {
  const code = (error as { code?: string }).code ?? "";
  if (code.startsWith("ERR_TLS") || /CERT|SSL|VERIFY/.test(code)) {
    return new FetchFailure("unreachable", "the server's certificate is not valid for it", { cause: error });
  }
  if (code === "UND_ERR_HEADERS_OVERFLOW")
    return new FetchFailure("unreadable", "the server's headers are too large", { cause: error });
  if (code.startsWith("HPE_"))
    return new FetchFailure("unreadable", "the server does not speak HTTP", { cause: error });
  return new FetchFailure("unreachable", "the server could not be reached", { cause: error });
}

/**
 * HTTP to one provider: a pool of connections, requests that die with their signal, bounded bodies of errors.
 * Owns the pool. Knows nothing of dialects. Redirects are not followed: a key must not travel to another host.
 */
import type { Socket } from "node:net";
import type { Readable } from "node:stream";
import { buildConnector, Pool, type Dispatcher } from "undici";
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../../lib/errors.js";

export interface UpstreamClientOptions {
  /** Base URL; request paths are appended to its path. */
  readonly baseUrl: string;
  readonly connectTimeoutMs: number;
  /** Connections at once; more requests wait for a free one. */
  readonly maxConnections: number;
}

export interface UpstreamRequest {
  readonly method: "GET" | "POST";
  /** Begins with a slash. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
}

export type UpstreamResponse = Dispatcher.ResponseData;

/** Bytes of a body that is read whole. */
const MAX_ERROR_BODY_BYTES = 64 * 1024;
/** How long and how far a finished answer may still be read, so that its connection can be used again. */
const DRAIN_MS = 250;
const DRAIN_BYTES = 16 * 1024;

/** A request on its way to a connection of its own. */
interface Connecting {
  socket: Socket | undefined;
}

export class UpstreamClient {
  readonly #pool: Pool;
  readonly #path: string;
  /** The request that is handed to the pool: a connection that is begun meanwhile is made for it. */
  #requesting: Connecting | undefined;

  constructor(options: UpstreamClientOptions) {
    const url = new URL(options.baseUrl);
    this.#path = url.pathname.replace(/\/+$/, "");
    this.#pool = new Pool(url.origin, {
      connections: options.maxConnections,
      connect: this.#connector(options.connectTimeoutMs),
      // The caller's own timeouts count tokens, not bytes.
      headersTimeout: 0,
      bodyTimeout: 0,
    });
  }

  /** Sends it; resolves with the headers. Throws UPSTREAM_UNAVAILABLE, or the signal's reason. */
  async request(request: UpstreamRequest, signal: AbortSignal): Promise<UpstreamResponse> {
    signal.throwIfAborted();
    const connecting: Connecting = { socket: undefined };
    const leave = (): void => void connecting.socket?.destroy(new Error("nobody waits for this connection"));
    signal.addEventListener("abort", leave, { once: true });
    try {
      return await this.#send(request, connecting, signal);
    } catch (error) {
      signal.throwIfAborted();
      throw connectionError(error);
    } finally {
      signal.removeEventListener("abort", leave);
    }
  }

  #send(request: UpstreamRequest, connecting: Connecting, signal: AbortSignal): Promise<UpstreamResponse> {
    this.#requesting = connecting;
    try {
      return this.#pool.request({
        method: request.method,
        path: `${this.#path}${request.path}`,
        body: request.body,
        headers: { "accept-encoding": "identity", "user-agent": "turnwire", ...request.headers },
        signal,
      });
    } finally {
      this.#requesting = undefined;
    }
  }

  /** undici lets a connection come about that nobody waits for any more; here it ends with the request that it is for. */
  #connector(timeout: number): buildConnector.connector {
    const connect = buildConnector({ timeout }) as (...call: Parameters<buildConnector.connector>) => Socket;
    return (options, callback) => {
      const request = this.#requesting;
      const settled = (...result: Parameters<typeof callback>): void => {
        if (request) request.socket = undefined;
        callback(...result);
      };
      const socket = connect(options, settled as typeof callback);
      if (request) request.socket = socket;
    };
  }

  /** Closes every connection at once. */
  close(): Promise<void> {
    return this.#pool.destroy();
  }
}

/** Reads a body to its end as text, at most `maxBytes` of it; what is beyond is left out and the connection closed. */
export async function readText(body: Readable, maxBytes: number = MAX_ERROR_BODY_BYTES): Promise<string> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of body as AsyncIterable<Buffer>) {
    pieces.push(piece);
    bytes += piece.length;
    if (bytes >= maxBytes) break; // leaving the loop destroys the body
  }
  return Buffer.concat(pieces).subarray(0, maxBytes).toString("utf8");
}

/** Gives a finished answer's connection back to the pool if its body really ends; closes it if not. Does not wait. */
export function drain(body: UpstreamResponse["body"], receivedBytes: number): void {
  const late = new AbortController();
  const timer = setTimeout(() => late.abort(), DRAIN_MS);
  body
    .dump({ limit: receivedBytes + DRAIN_BYTES, signal: late.signal })
    .catch(() => undefined) // the connection is closed then, and nobody waits for it
    .finally(() => clearTimeout(timer));
}

/** A failure to reach the provider, or to read on, in public words. The cause stays for the log. */
export function connectionError(error: unknown): TurnError {
  const code = codeOf(error);
  if (code.startsWith("HPE_") || code === "UND_ERR_RESPONSE" || code === "UND_ERR_HEADERS_OVERFLOW") {
    return new TurnError(ErrorCode.UPSTREAM_MALFORMED, { cause: error });
  }
  const message = REASONS.get(code);
  return new TurnError(ErrorCode.UPSTREAM_UNAVAILABLE, {
    message: message && `the model provider is not available: ${message}`,
    cause: error,
  });
}

const REASONS: ReadonlyMap<string, string> = new Map([
  ["ECONNREFUSED", "connection refused"],
  ["ECONNRESET", "connection reset"],
  ["UND_ERR_SOCKET", "connection closed"],
  ["UND_ERR_CONNECT_TIMEOUT", "connecting took too long"],
  ["ETIMEDOUT", "connecting took too long"],
  ["ENOTFOUND", "host not found"],
  ["EAI_AGAIN", "host not found"],
  ["EHOSTUNREACH", "host not reachable"],
]);

function codeOf(error: unknown): string {
  const code = (error as { readonly code?: unknown } | null)?.code;
  return typeof code === "string" ? code : "";
}

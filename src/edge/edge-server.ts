/**
 * The edge: one port with every protocol, the origin policy, health and readiness over plain HTTP, and a place for other
 * HTTP handlers. Owns: the listener and the connect server.
 */
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../lib/errors.js";
import type { Logger } from "../lib/log.js";
import type { HealthState } from "../lib/rpc/health.js";
import type { ServerLimits } from "../lib/rpc/limits.js";
import { DEFAULT_LIMITS } from "../lib/rpc/limits.js";
import type { Authenticate, ServiceBinding } from "../lib/rpc/service-binding.js";
import { abortable } from "../lib/signals.js";
import { isLoopbackHost } from "./auth.js";
import type { ConnectServer } from "./connect-server.js";
import { createConnectServer } from "./connect-server.js";
import type { EdgeHandler, EdgeRequest, EdgeResponse, ListenerLimits } from "./listener.js";
import { createListener } from "./listener.js";
import { createOriginPolicy } from "./origin-policy.js";
import { dialectOf, writeRpcError } from "./rpc-error-response.js";

export interface ServeEdgeOptions {
  readonly host: string;
  /** 0 takes a free port. */
  readonly port: number;
  readonly services: readonly ServiceBinding[];
  readonly authenticate: Authenticate;
  readonly health: HealthState;
  readonly logger: Logger;
  /** Origins whose pages may call, exactly as browsers send them. Default none. */
  readonly corsOrigins?: readonly string[];
  /** PEM; with it the port speaks TLS and ALPN, without it cleartext HTTP/1.1 and h2c. */
  readonly tls?: { readonly cert: Buffer; readonly key: Buffer };
  readonly limits?: Partial<ServerLimits>;
  readonly listenerLimits?: Partial<ListenerLimits>;
  /** Time for a request message to arrive, ms. Default 30,000. */
  readonly bodyTimeoutMs?: number;
  /** Compress streamed messages for clients that accept it. Default false. */
  readonly compressStreams?: boolean;
  /** Rejects while a dependency does not answer. GET /readyz asks it, at most once a second. */
  readonly ready?: (signal: AbortSignal) => Promise<void>;
  /** Everything below /files/. Default 404. */
  readonly files?: EdgeHandler;
  /** What is neither an RPC nor /healthz nor /readyz: the page, HTTP adapters. Default 404. */
  readonly fallback?: EdgeHandler;
}

export interface EdgeServer {
  readonly port: number;
  readonly openCalls: number;
  /** Says NOT_SERVING, takes no more, lets open calls finish for graceMs, then ends them UNAVAILABLE, then by force. */
  close(graceMs: number): Promise<void>;
}

const BODY_TIMEOUT_MS = 30_000;
const READY_TIMEOUT_MS = 2_000;
const READY_CACHE_MS = 1_000;

/** Starts the edge. Rejects with UNAVAILABLE when the port is taken. */
export async function serveEdge(options: ServeEdgeOptions): Promise<EdgeServer> {
  const limits: ServerLimits = { ...DEFAULT_LIMITS, ...options.limits };
  const rpc = createConnectServer({
    ...options,
    limits,
    bodyTimeoutMs: options.bodyTimeoutMs ?? BODY_TIMEOUT_MS,
    compressStreams: options.compressStreams ?? false,
  });
  const listener = await createListener({
    ...options,
    limits: { maxConcurrentStreams: limits.maxConcurrentStreams, ...options.listenerLimits },
    handler: createHandler(options, rpc),
  });
  return {
    port: listener.port,
    get openCalls() {
      return rpc.openCalls;
    },
    async close(graceMs) {
      options.health.set(false);
      rpc.endInfrastructure();
      const grace = setTimeout(() => rpc.endAll(), graceMs);
      await listener.close(graceMs + limits.cutGraceMs);
      clearTimeout(grace);
    },
  };
}

function createHandler(options: ServeEdgeOptions, rpc: ConnectServer): EdgeHandler {
  const policy = createOriginPolicy({
    corsOrigins: options.corsOrigins ?? [],
    loopback: isLoopbackHost(options.host),
  });
  const readiness = createReadiness(options.ready ?? (() => Promise.resolve()));

  return (request, response) => {
    response.setHeader("x-content-type-options", "nosniff");
    response.setHeader("referrer-policy", "no-referrer");
    const verdict = policy({
      method: request.method ?? "",
      host: hostOf(request),
      origin: request.headers.origin,
    });
    if (verdict.kind === "refused") {
      writeText(request, response, verdict.status, verdict.reason);
      return;
    }
    for (const [name, value] of Object.entries(verdict.headers)) response.setHeader(name, value);
    if (verdict.kind === "preflight" || request.method === "OPTIONS") {
      response.writeHead(204);
      response.end();
      return;
    }
    response.setHeader("cache-control", "no-store");
    if (rpc.handle(request, response)) return;
    route(request, response, readiness, options);
  };
}

function route(
  request: EdgeRequest,
  response: EdgeResponse,
  readiness: () => Promise<boolean>,
  { files, fallback }: Pick<ServeEdgeOptions, "files" | "fallback">,
): void {
  const path = (request.url ?? "").split("?", 1)[0]!;
  if (path === "/healthz") {
    writeText(request, response, 200, "ok");
  } else if (path === "/readyz") {
    void readiness().then((ready) =>
      writeText(request, response, ready ? 200 : 503, ready ? "ready" : "not ready"),
    );
  } else if (files && path.startsWith("/files/")) {
    files(request, response);
  } else if (dialectOf(request)?.startsWith("grpc")) {
    writeRpcError(
      request,
      response,
      new TurnError(ErrorCode.NOT_BUILT, { message: `there is no RPC ${path.slice(0, 200)}` }),
    );
  } else if (fallback) {
    response.removeHeader("cache-control");
    fallback(request, response);
  } else {
    writeText(request, response, 404, "not found");
  }
}

/** Asks in bounded time, one question at a time, and remembers the answer for a moment. */
function createReadiness(ready: (signal: AbortSignal) => Promise<void>): () => Promise<boolean> {
  let asked: { readonly atMs: number; readonly answer: Promise<boolean> } | undefined;
  return () => {
    if (asked && performance.now() - asked.atMs < READY_CACHE_MS) return asked.answer;
    const signal = AbortSignal.timeout(READY_TIMEOUT_MS);
    const answer = abortable(ready(signal), signal).then(
      () => true,
      () => false,
    );
    asked = { atMs: performance.now(), answer };
    return answer;
  };
}

function writeText(request: EdgeRequest, response: EdgeResponse, status: number, text: string): void {
  if (request.httpVersionMajor === 1 && !request.complete) response.setHeader("connection", "close");
  response.setHeader("content-type", "text/plain; charset=utf-8");
  response.setHeader("content-length", Buffer.byteLength(text) + 1);
  response.writeHead(status);
  // both kinds of response take an optional last chunk
  (response as { end(chunk: string): unknown }).end(request.method === "HEAD" ? "" : `${text}\n`);
}

function hostOf(request: EdgeRequest): string | undefined {
  return "authority" in request ? request.authority || request.headers.host : request.headers.host;
}

/**
 * One port for HTTP/1.1 and HTTP/2: cleartext connections are told apart by HTTP/2's preface, with a certificate by ALPN.
 * Owns: the listening socket and every connection on it.
 *
 * L1: a connection that says nothing, or not all of its headers, is closed in headerTimeoutMs.
 * L2: sizes, counts and idle times of a connection are bounded by ListenerLimits.
 * L3: `close` takes no more, tells HTTP/2 peers (GOAWAY) and idle HTTP/1.1 connections, and ends what is left by force.
 */
import http from "node:http";
import type { IncomingMessage, ServerResponse } from "node:http";
import http2 from "node:http2";
import type { Http2ServerRequest, Http2ServerResponse, ServerHttp2Session } from "node:http2";
import net from "node:net";
import type { Socket } from "node:net";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../lib/errors.js";

export type EdgeRequest = IncomingMessage | Http2ServerRequest;
export type EdgeResponse = ServerResponse | Http2ServerResponse;
export type EdgeHandler = (request: EdgeRequest, response: EdgeResponse) => void;

export interface ListenerLimits {
  /** Open streams per HTTP/2 connection. */
  readonly maxConcurrentStreams: number;
  /** Bytes of one request's headers. */
  readonly maxHeaderBytes: number;
  /** Time for a connection's first bytes and for each request's headers, ms. */
  readonly headerTimeoutMs: number;
  /** Time for a whole HTTP/1.1 request to arrive, ms. */
  readonly requestTimeoutMs: number;
  /** Connections at a time; more are closed at once. */
  readonly maxConnections: number;
  /** How long an HTTP/2 connection may be quiet before it is probed, and how long the answer may take, ms. */
  readonly keepaliveMs: number;
  readonly keepaliveTimeoutMs: number;
}

export const DEFAULT_LISTENER_LIMITS: ListenerLimits = {
  maxConcurrentStreams: 1000,
  maxHeaderBytes: 16 * 1024,
  headerTimeoutMs: 10_000,
  requestTimeoutMs: 60_000,
  maxConnections: 10_000,
  keepaliveMs: 60_000,
  keepaliveTimeoutMs: 20_000,
};

/** PEM. With clientCa, clients must show a certificate of that authority. */
export interface ListenerTls {
  readonly cert: Buffer;
  readonly key: Buffer;
  readonly clientCa?: Buffer;
}

export interface ListenerOptions {
  readonly host: string;
  /** 0 takes a free port. */
  readonly port: number;
  readonly handler: EdgeHandler;
  readonly tls?: ListenerTls;
  readonly limits?: Partial<ListenerLimits>;
}

export interface Listener {
  readonly port: number;
  /** Open connections. */
  readonly connections: number;
  /** Resolves when all connections are gone; those left after `forceAfterMs` are destroyed. */
  close(forceAfterMs: number): Promise<void>;
}

/** Listens. Rejects with UNAVAILABLE when the port is taken. */
export async function createListener(options: ListenerOptions): Promise<Listener> {
  const limits: ListenerLimits = { ...DEFAULT_LISTENER_LIMITS, ...options.limits };
  const connections = new Connections(limits);
  const front = options.tls
    ? tlsServer(options, limits, connections)
    : cleartextServer(options, limits, connections);
  front.server.maxConnections = limits.maxConnections;
  const port = await listen(front.server, options);
  return {
    port,
    get connections() {
      return connections.size;
    },
    async close(forceAfterMs) {
      const stopped = new Promise<void>((resolve) => front.server.close(() => resolve()));
      await connections.close(forceAfterMs, front.closeIdle);
      await stopped;
      front.end();
    },
  };
}

interface Front {
  readonly server: net.Server;
  /** Closes connections that have no request. */
  closeIdle(): void;
  /** Frees what outlives the listening socket. */
  end(): void;
}

function h2Options(
  limits: ListenerLimits,
): http2.ServerOptions & { readonly maxSessionInvalidFrames: number } {
  return {
    settings: {
      maxConcurrentStreams: limits.maxConcurrentStreams,
      maxHeaderListSize: limits.maxHeaderBytes,
      enablePush: false,
    },
    maxHeaderListPairs: 128,
    maxSessionMemory: 64,
    maxSessionInvalidFrames: 100,
    maxSettings: 32,
    maxOutstandingPings: 10,
  };
}

function h1Options(limits: ListenerLimits): http.ServerOptions {
  return {
    maxHeaderSize: limits.maxHeaderBytes,
    headersTimeout: limits.headerTimeoutMs,
    requestTimeout: Math.max(limits.requestTimeoutMs, limits.headerTimeoutMs),
    keepAliveTimeout: limits.keepaliveMs,
    connectionsCheckingInterval: Math.min(1000, limits.headerTimeoutMs),
    requireHostHeader: true,
  };
}

function tlsServer(options: ListenerOptions, limits: ListenerLimits, connections: Connections): Front {
  const server = http2.createSecureServer({
    ...h2Options(limits),
    ...h1Options(limits),
    allowHTTP1: true,
    cert: options.tls!.cert,
    key: options.tls!.key,
    minVersion: "TLSv1.2",
    ...(options.tls!.clientCa
      ? { ca: options.tls!.clientCa, requestCert: true, rejectUnauthorized: true }
      : {}),
    handshakeTimeout: limits.headerTimeoutMs,
  });
  server.on("request", connections.watched(options.handler));
  server.on("session", (session) => connections.addSession(session));
  server.on("connection", (socket) => connections.add(socket));
  server.on("unknownProtocol", (socket) => socket.destroy());
  // server.close() closes its idle HTTP/1.1 connections by itself
  return { server, closeIdle: () => undefined, end: () => undefined };
}

function cleartextServer(options: ListenerOptions, limits: ListenerLimits, connections: Connections): Front {
  const h1 = http.createServer(h1Options(limits), connections.watched(options.handler));
  const h2 = http2.createServer(h2Options(limits), connections.watched(options.handler));
  h2.on("session", (session) => connections.addSession(session));
  // h1 never listens itself, and only then does it enforce its timeouts and know its idle connections.
  h1.emit("listening");
  const undecided = new Set<Socket>();
  const server = net.createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    connections.add(socket);
    undecided.add(socket);
    routeByPreface(socket, limits.headerTimeoutMs, (isH2) => {
      undecided.delete(socket);
      if (isH2) socket.once("end", () => socket.destroy()); // there is no half-closed HTTP/2
      if (isH2 !== undefined) (isH2 ? h2 : h1).emit("connection", socket);
    });
  });
  const closeIdle = (): void => {
    h1.closeIdleConnections();
    for (const socket of undecided) socket.destroy();
  };
  return { server, closeIdle, end: () => h1.close() };
}

const PREFACE = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
/** "PRI " is no HTTP/1.1 method: four bytes decide. */
const ENOUGH = 4;

/**
 * Reads only as much as decides, puts it back and says which it is; undefined when the socket closed before. With
 * 'readable' and read(): a 'data' listener would leave the socket flowing.
 */
function routeByPreface(
  socket: Socket,
  timeoutMs: number,
  decided: (isH2: boolean | undefined) => void,
): void {
  let head: Buffer = Buffer.alloc(0);
  const onError = (): void => undefined; // 'close' follows
  const timer = setTimeout(() => socket.destroy(), timeoutMs);
  const stop = (): void => {
    clearTimeout(timer);
    socket.off("readable", onReadable).off("close", onClose).off("end", onEnd);
  };
  const onClose = (): void => {
    stop();
    decided(undefined);
  };
  const onEnd = (): void => void socket.destroy(); // said goodbye before it said anything
  const onReadable = (): void => {
    for (let chunk = socket.read() as Buffer | null; chunk !== null; chunk = socket.read() as Buffer | null) {
      head = head.length === 0 ? chunk : Buffer.concat([head, chunk]);
    }
    if (head.length === 0) return;
    const length = Math.min(head.length, PREFACE.length);
    const isH2 = head.subarray(0, length).equals(PREFACE.subarray(0, length));
    if (isH2 && length < ENOUGH) return;
    stop();
    socket.off("error", onError);
    socket.unshift(head);
    decided(isH2);
  };
  socket.on("error", onError).on("readable", onReadable).on("close", onClose).on("end", onEnd);
}

/** The open connections, and what HTTP/1.1 and HTTP/2 need in order to notice a peer that is gone and to end in time. */
class Connections {
  readonly #limits: ListenerLimits;
  readonly #sockets = new Set<Socket>();
  readonly #sessions = new Set<ServerHttp2Session>();
  #closing = false;
  #whenEmpty: (() => void) | undefined;

  constructor(limits: ListenerLimits) {
    this.#limits = limits;
  }

  get size(): number {
    return this.#sockets.size;
  }

  add(socket: Socket): void {
    this.#sockets.add(socket);
    socket.once("close", () => {
      this.#sockets.delete(socket);
      if (this.#sockets.size === 0) this.#whenEmpty?.();
    });
  }

  addSession(session: ServerHttp2Session): void {
    this.#sessions.add(session);
    const probe = setInterval(() => this.#probe(session), this.#limits.keepaliveMs);
    probe.unref();
    session.once("close", () => {
      clearInterval(probe);
      this.#sessions.delete(session);
    });
    session.on("error", () => undefined); // 'close' follows
    if (this.#closing) session.close();
  }

  /** The handler, with what a connection of HTTP/1.1 needs around each request. */
  watched(handler: EdgeHandler): EdgeHandler {
    return (request, response) => {
      request.on("error", () => undefined); // the response's 'close' tells
      response.on("error", () => undefined);
      if (request.httpVersionMajor === 1) this.#watchH1(request.socket, response as ServerResponse);
      handler(request, response);
    };
  }

  async close(forceAfterMs: number, closeIdle: () => void): Promise<void> {
    this.#closing = true;
    for (const session of this.#sessions) session.close();
    closeIdle();
    if (this.#sockets.size === 0) return;
    const empty = new Promise<void>((resolve) => (this.#whenEmpty = resolve));
    const force = setTimeout(() => {
      for (const socket of this.#sockets) socket.destroy();
    }, forceAfterMs);
    await empty;
    clearTimeout(force);
  }

  #watchH1(socket: Socket, response: ServerResponse): void {
    // Node answers a client's FIN by ending its own side behind the data that is still to be written: with a client
    // that reads no more that is never. Its goodbye while data waits is a goodbye.
    const onEnd = (): void => {
      if (socket.writableLength > 0) socket.destroy();
    };
    socket.on("end", onEnd);
    if (this.#closing) response.setHeader("connection", "close");
    response.once("close", () => {
      socket.off("end", onEnd);
      if (this.#closing) setImmediate(() => socket.destroySoon());
    });
  }

  #probe(session: ServerHttp2Session): void {
    if (session.destroyed) return;
    const timer = setTimeout(() => session.destroy(), this.#limits.keepaliveTimeoutMs);
    timer.unref();
    const sent = session.ping(() => clearTimeout(timer));
    if (!sent) clearTimeout(timer);
  }
}

function listen(server: net.Server, options: ListenerOptions): Promise<number> {
  return new Promise((resolve, reject) => {
    const onError = (cause: NodeJS.ErrnoException): void => {
      const message =
        cause.code === "EADDRINUSE"
          ? `port ${options.port} on ${options.host} is taken by another program`
          : `cannot listen on ${options.host}:${options.port} (${cause.code ?? cause.message})`;
      reject(new TurnError(ErrorCode.UNAVAILABLE, { message, cause }));
    };
    server.once("error", onError);
    server.listen({ host: options.host.replace(/^\[(.*)\]$/, "$1"), port: options.port }, () => {
      server.off("error", onError);
      server.on("error", () => undefined); // a failed accept (no file descriptors) must not end the process
      resolve((server.address() as net.AddressInfo).port);
    });
  });
}

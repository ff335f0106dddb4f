/** Edges and clients of every protocol for the edge tests. */
import type { Transport } from "@connectrpc/connect";
import {
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
} from "@connectrpc/connect-node";
import {
  createConnectTransport as createFetchConnectTransport,
  createGrpcWebTransport as createFetchGrpcWebTransport,
} from "@connectrpc/connect-web";
import { onTestFinished } from "vitest";
import { ChatService } from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import type { EdgeServer, ServeEdgeOptions } from "../../src/edge/edge-server.js";
import { serveEdge } from "../../src/edge/edge-server.js";
import { silentLogger } from "../../src/lib/log.js";
import { HealthState } from "../../src/lib/rpc/health.js";
import type { ServiceBinding } from "../../src/lib/rpc/service-binding.js";
import { makeTestCertificate } from "../support/test-certificate.js";
import { TEST_PRINCIPAL } from "./rpc-fixture.js";

export const certificate = makeTestCertificate();

export interface TestEdge extends EdgeServer {
  readonly health: HealthState;
  readonly url: string;
  readonly secure: boolean;
}

/** An edge that is gone when the test ends. */
export async function useEdge(
  services: readonly ServiceBinding[],
  options: Partial<ServeEdgeOptions> = {},
): Promise<TestEdge> {
  const health = options.health ?? new HealthState();
  health.set(true);
  const edge = await serveEdge({
    host: "127.0.0.1",
    port: 0,
    services,
    authenticate: () => TEST_PRINCIPAL,
    health,
    logger: silentLogger,
    ...options,
  });
  onTestFinished(() => edge.close(0));
  const secure = options.tls !== undefined;
  return Object.assign(edge, {
    health,
    secure,
    url: `${secure ? "https" : "http"}://127.0.0.1:${edge.port}`,
  });
}

type TransportMaker = (url: string) => Transport;

const trust = { nodeOptions: { ca: certificate.cert } };

/** Every way a client of connect-es can speak to the cleartext port. */
export const CLEARTEXT_TRANSPORTS: readonly (readonly [string, TransportMaker])[] = [
  [
    "connect, proto, HTTP/1.1",
    (baseUrl) => createConnectTransport({ baseUrl, httpVersion: "1.1", useBinaryFormat: true }),
  ],
  [
    "connect, JSON, HTTP/1.1",
    (baseUrl) => createConnectTransport({ baseUrl, httpVersion: "1.1", useBinaryFormat: false }),
  ],
  [
    "connect, proto, h2c",
    (baseUrl) => createConnectTransport({ baseUrl, httpVersion: "2", useBinaryFormat: true }),
  ],
  [
    "connect, JSON, h2c",
    (baseUrl) => createConnectTransport({ baseUrl, httpVersion: "2", useBinaryFormat: false }),
  ],
  [
    "connect, GET, HTTP/1.1",
    (baseUrl) => createConnectTransport({ baseUrl, httpVersion: "1.1", useHttpGet: true }),
  ],
  ["grpc, h2c", (baseUrl) => createGrpcTransport({ baseUrl })],
  ["grpc, JSON, h2c", (baseUrl) => createGrpcTransport({ baseUrl, useBinaryFormat: false })],
  ["grpc-web, HTTP/1.1", (baseUrl) => createGrpcWebTransport({ baseUrl, httpVersion: "1.1" })],
  ["grpc-web, h2c", (baseUrl) => createGrpcWebTransport({ baseUrl, httpVersion: "2" })],
  ["connect, fetch", (baseUrl) => createFetchConnectTransport({ baseUrl })],
  [
    "connect, fetch, proto, GET",
    (baseUrl) => createFetchConnectTransport({ baseUrl, useBinaryFormat: true, useHttpGet: true }),
  ],
  ["grpc-web, fetch", (baseUrl) => createFetchGrpcWebTransport({ baseUrl })],
];

/** The same for the TLS port. */
export const TLS_TRANSPORTS: readonly (readonly [string, TransportMaker])[] = [
  ["connect, TLS, HTTP/1.1", (baseUrl) => createConnectTransport({ baseUrl, httpVersion: "1.1", ...trust })],
  ["connect, TLS, h2", (baseUrl) => createConnectTransport({ baseUrl, httpVersion: "2", ...trust })],
  ["grpc, TLS, h2", (baseUrl) => createGrpcTransport({ baseUrl, ...trust })],
  ["grpc-web, TLS, HTTP/1.1", (baseUrl) => createGrpcWebTransport({ baseUrl, httpVersion: "1.1", ...trust })],
  ["grpc-web, TLS, h2", (baseUrl) => createGrpcWebTransport({ baseUrl, httpVersion: "2", ...trust })],
];

export const CHAT_PATH = `/${ChatService.typeName}`;

/** The envelopes of a stream's body: flags and payload. */
export function splitEnvelopes(body: Buffer): { readonly flags: number; readonly data: Buffer }[] {
  const envelopes: { flags: number; data: Buffer }[] = [];
  for (let at = 0; at + 5 <= body.length;) {
    const length = body.readUInt32BE(at + 1);
    envelopes.push({ flags: body[at]!, data: body.subarray(at + 5, at + 5 + length) });
    at += 5 + length;
  }
  return envelopes;
}

export function envelope(data: Uint8Array, flags = 0): Buffer {
  const head = Buffer.alloc(5);
  head.writeUInt8(flags, 0);
  head.writeUInt32BE(data.length, 1);
  return Buffer.concat([head, data]);
}

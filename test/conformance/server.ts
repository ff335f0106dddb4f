/**
 * A server under test for the Connect conformance runner: reads one ServerCompatRequest from standard input, serves,
 * writes one ServerCompatResponse to standard output. `server.mjs stock` is connect-node's adapter on Node's servers,
 * `server.mjs ours` is the edge's own listener and door with all guards on.
 */
import type { DescMessage } from "@bufbuild/protobuf";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { createConnectRouter } from "@connectrpc/connect";
import { compressionBrotli, compressionGzip, connectNodeAdapter } from "@connectrpc/connect-node";
import http from "node:http";
import http2 from "node:http2";
import https from "node:https";
import type { AddressInfo, Server } from "node:net";
import type { Route } from "../../src/edge/call-door.js";
import { COMPRESSIONS, CallDoor } from "../../src/edge/call-door.js";
import { createListener } from "../../src/edge/listener.js";
import { silentLogger } from "../../src/lib/log.js";
import { DEFAULT_LIMITS } from "../../src/lib/rpc/limits.js";
import type { Conformance } from "./service.js";
import { addConformanceRoutes, loadConformance } from "./service.js";

interface CompatRequest {
  readonly httpVersion: number;
  readonly useTls: boolean;
  readonly clientTlsCert: Uint8Array;
  readonly messageReceiveLimit: number;
  readonly serverCreds?: { readonly cert: Uint8Array; readonly key: Uint8Array };
}

interface Tls {
  readonly cert: Buffer;
  readonly key: Buffer;
  readonly clientCa?: Buffer;
}

const HTTP_VERSION_1 = 1;

const [kind = "", image = ""] = process.argv.slice(2);
const conformance = loadConformance(image);
const compat = (await readMessage(
  conformance.registry.getMessage("connectrpc.conformance.v1.ServerCompatRequest")!,
)) as unknown as CompatRequest;
const tls = compat.useTls ? tlsOf(compat) : undefined;
const port =
  kind === "ours" ? await serveOurs(conformance, compat, tls) : await serveStock(conformance, compat, tls);
writeMessage(conformance.registry.getMessage("connectrpc.conformance.v1.ServerCompatResponse")!, {
  host: "127.0.0.1",
  port,
  ...(tls ? { pemCert: tls.cert } : {}),
});
process.on("SIGTERM", () => process.exit(0));

async function serveOurs(
  { registry, ...rest }: Conformance,
  request: CompatRequest,
  tlsFiles: Tls | undefined,
): Promise<number> {
  const limits = {
    ...DEFAULT_LIMITS,
    ...(request.messageReceiveLimit > 0 ? { maxReceiveBytes: request.messageReceiveLimit } : {}),
  };
  // The edge's own settings; the registry is there for the Any fields of the conformance messages.
  const jsonOptions = { registry };
  const router = createConnectRouter({
    readMaxBytes: limits.maxReceiveBytes,
    maxTimeoutMs: limits.maxTimeoutMs,
    acceptCompression: COMPRESSIONS,
    jsonOptions: { ...jsonOptions, ignoreUnknownFields: false },
  });
  addConformanceRoutes(router, { registry, ...rest });
  const principal = { tenantId: "t", userId: "u", admin: false };
  const rules = { authenticate: () => principal, infrastructure: false };
  const routes = new Map<string, Route>(
    router.handlers.map((handler) => [handler.requestPath, { method: handler.method, handler, rules }]),
  );
  const door = new CallDoor({ logger: silentLogger, limits, bodyTimeoutMs: 30_000, jsonOptions });
  const listener = await createListener({
    host: "127.0.0.1",
    port: 0,
    ...(tlsFiles ? { tls: tlsFiles } : {}),
    handler(req, res) {
      const route = routes.get((req.url ?? "").split("?", 1)[0]!);
      if (route) {
        void door.admit(route, req, res);
        return;
      }
      res.writeHead(404);
      res.end();
    },
  });
  return listener.port;
}

async function serveStock(
  loaded: Conformance,
  request: CompatRequest,
  tlsFiles: Tls | undefined,
): Promise<number> {
  const handler = connectNodeAdapter({
    routes: (router) => addConformanceRoutes(router, loaded),
    acceptCompression: [compressionGzip, compressionBrotli],
    jsonOptions: { registry: loaded.registry },
    ...(request.messageReceiveLimit > 0 ? { readMaxBytes: request.messageReceiveLimit } : {}),
  });
  const server = stockServer(handler, request, tlsFiles);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return (server.address() as AddressInfo).port;
}

function stockServer(
  handler: ReturnType<typeof connectNodeAdapter>,
  request: CompatRequest,
  tlsFiles: Tls | undefined,
): Server {
  const h1 = request.httpVersion === HTTP_VERSION_1;
  if (!tlsFiles) return h1 ? http.createServer(handler) : http2.createServer(handler);
  const { cert, key, clientCa } = tlsFiles;
  const options = {
    cert,
    key,
    ...(clientCa ? { ca: clientCa, requestCert: true, rejectUnauthorized: true } : {}),
  };
  return h1 ? https.createServer(options, handler) : http2.createSecureServer(options, handler);
}

function tlsOf(request: CompatRequest): Tls {
  const { cert, key } = request.serverCreds!;
  const clientCa = request.clientTlsCert.length > 0 ? { clientCa: Buffer.from(request.clientTlsCert) } : {};
  return { cert: Buffer.from(cert), key: Buffer.from(key), ...clientCa };
}

async function readMessage(schema: DescMessage): Promise<unknown> {
  let bytes = Buffer.alloc(0);
  for await (const chunk of process.stdin) {
    bytes = Buffer.concat([bytes, chunk as Buffer]);
    if (bytes.length >= 4 && bytes.length >= 4 + bytes.readUInt32BE(0)) break;
  }
  return fromBinary(schema, bytes.subarray(4, 4 + bytes.readUInt32BE(0)));
}

function writeMessage(schema: DescMessage, value: object): void {
  const bytes = toBinary(schema, create(schema, value as never));
  const head = Buffer.alloc(4);
  head.writeUInt32BE(bytes.length, 0);
  process.stdout.write(Buffer.concat([head, bytes]));
}

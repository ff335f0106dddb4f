/** The server as it stands in a network: off loopback, with tokens, TLS and a page of another origin. */
import { writeFileSync } from "node:fs";
import https from "node:https";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { Code, ConnectError, createClient, type Interceptor, type Transport } from "@connectrpc/connect";
import {
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
} from "@connectrpc/connect-node";
import { Client, credentials, Metadata } from "@grpc/grpc-js";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  ChatService,
  GetTurnRequestSchema,
  GetTurnResponseSchema,
} from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import { LlmProxyService } from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { silentLogger } from "../../src/lib/log.js";
import { createGrpcClient } from "../../src/lib/rpc/grpc-client.js";
import { MODEL, plainAnswer, readWhole, startWith } from "../support/e2e-fixture.js";
import { usePostgres } from "../support/postgres.js";
import { startScriptedUpstream, type ScriptedUpstream } from "../support/scripted-upstream.js";
import { makeTestCertificate } from "../support/test-certificate.js";
import { makeDataDir, removeDataDir, type TurnwireProcess } from "../support/turnwire-process.js";

const postgres = usePostgres();
const TOKEN = "doors-secret-c0de";
const PEER_TOKEN = "doors-peer-secret";
const ORIGIN = "https://app.example";
const models = [{ modelId: MODEL }];
/** An address of this machine that is not loopback; undefined in a container without a network. */
const outside = Object.values(os.networkInterfaces())
  .flat()
  .find((address) => address && !address.internal && address.family === "IPv4")?.address;

describe("off loopback, with tokens, TLS and CORS", () => {
  const certificate = makeTestCertificate();
  const dataDir = makeDataDir();
  let upstream: ScriptedUpstream;
  let server: TurnwireProcess;
  let httpPort: number;
  let grpcPort: number;

  beforeAll(async () => {
    const files = { cert: path.join(dataDir, "cert.pem"), key: path.join(dataDir, "key.pem") };
    writeFileSync(files.cert, certificate.cert);
    writeFileSync(files.key, certificate.key);
    upstream = await startScriptedUpstream();
    upstream.replyWith(() => plainAnswer("over the wire"));
    server = await startWith(upstream, {
      dataDir,
      databaseUrl: postgres.url,
      env: {
        TURNWIRE_HOST: "0.0.0.0",
        TURNWIRE_TOKENS: `${TOKEN}=acme/ada`,
        TURNWIRE_PEER_TOKEN: PEER_TOKEN,
        TURNWIRE_TLS_CERT: files.cert,
        TURNWIRE_TLS_KEY: files.key,
        TURNWIRE_CORS_ORIGINS: ORIGIN,
      },
    });
    httpPort = Number(server.facts["httpPort"]);
    grpcPort = Number(server.facts["grpcPort"]);
  });
  afterAll(async () => {
    await server?.stop();
    await upstream?.close();
    removeDataDir(dataDir);
  });

  const withToken =
    (token: string | undefined): Interceptor =>
    (next) =>
    (request) => {
      if (token) request.header.set("authorization", `Bearer ${token}`);
      return next(request);
    };

  /** Every protocol over every HTTP version that TLS offers, told apart by ALPN. */
  function transports(token: string | undefined): [string, Transport][] {
    const common = {
      baseUrl: `https://127.0.0.1:${httpPort}`,
      interceptors: [withToken(token)],
      nodeOptions: { ca: certificate.cert },
    };
    return [
      ["Connect, HTTP/1.1", createConnectTransport({ ...common, httpVersion: "1.1" })],
      [
        "Connect JSON, HTTP/1.1",
        createConnectTransport({ ...common, httpVersion: "1.1", useBinaryFormat: false }),
      ],
      ["Connect, h2", createConnectTransport({ ...common, httpVersion: "2" })],
      ["gRPC, h2", createGrpcTransport(common)],
      ["gRPC-Web, HTTP/1.1", createGrpcWebTransport({ ...common, httpVersion: "1.1" })],
      ["gRPC-Web, h2", createGrpcWebTransport({ ...common, httpVersion: "2" })],
      ["gRPC, native port", createGrpcTransport({ ...common, baseUrl: `https://127.0.0.1:${grpcPort}` })],
    ];
  }

  test("a turn over every protocol, with the token and not without", async () => {
    let whole: unknown;
    let turnId = "";
    for (const [name, transport] of transports(TOKEN)) {
      const client = createClient(ChatService, transport);
      if (turnId === "") turnId = (await client.sendMessageAndWait({ text: "hello", models })).turnId;
      const packets = await readWhole(client, turnId);
      whole ??= packets;
      expect(packets, name).toEqual(whole);
    }
    for (const token of [undefined, "wrong"]) {
      for (const [name, transport] of transports(token)) {
        const client = createClient(ChatService, transport);
        const failure = await client.getTurn({ turnId }).then(
          () => undefined,
          (error: unknown) => ConnectError.from(error),
        );
        expect(failure?.code, name).toBe(Code.Unauthenticated);
      }
    }
    const native = new Client(`localhost:${grpcPort}`, credentials.createSsl(certificate.cert));
    const metadata = new Metadata();
    metadata.set("authorization", `Bearer ${TOKEN}`);
    const reply = await new Promise<Buffer>((resolve, reject) => {
      native.makeUnaryRequest(
        `/${ChatService.typeName}/GetTurn`,
        (bytes: Buffer) => bytes,
        (bytes: Buffer) => bytes,
        Buffer.from(toBinary(GetTurnRequestSchema, create(GetTurnRequestSchema, { turnId }))),
        metadata,
        (error, bytes) => (error ? reject(error) : resolve(bytes!)),
      );
    });
    expect(fromBinary(GetTurnResponseSchema, reply).state!.lanes[0]!.text).toBe("over the wire");
    native.close();
  }, 60_000);

  test("cleartext is not answered on a port that speaks TLS", async () => {
    for (const port of [httpPort, grpcPort]) {
      const socket = net.connect(port, "127.0.0.1");
      socket.write("GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n");
      let answer = "";
      socket.on("data", (chunk: Buffer) => (answer += chunk.toString("latin1")));
      await new Promise((resolve) => socket.once("close", resolve).once("error", () => undefined));
      expect(answer).not.toContain("HTTP/1.1 200");
    }
  });

  test.skipIf(!outside)("the ports are open to the network", async () => {
    const signal = AbortSignal.timeout(10_000);
    const options = { addresses: `${outside}:${String(server.facts["llmPort"])}`, logger: silentLogger };
    const stranger = createGrpcClient(LlmProxyService, options);
    const friend = createGrpcClient(LlmProxyService, { ...options, token: PEER_TOKEN });
    await expect(stranger.unary("listModels", {}, { signal })).rejects.toMatchObject({
      code: ErrorCode.UNAUTHENTICATED,
    });
    const { models: known } = await friend.unary("listModels", {}, { signal });
    expect(known.map((model) => model.modelId)).toContain(MODEL);
    stranger.close();
    friend.close();
    const health = await request({ host: outside, path: "/healthz", method: "GET" });
    expect(health.status).toBe(200);
  });

  test("a page of a listed origin may call, with its token; others may not", async () => {
    const rpc = `/${ChatService.typeName}/ListModels`;
    const asks = {
      "access-control-request-method": "POST",
      "access-control-request-headers": "authorization,connect-protocol-version,content-type",
    };
    const preflight = await request({ path: rpc, method: "OPTIONS", headers: { origin: ORIGIN, ...asks } });
    expect(preflight.status).toBe(204);
    expect(preflight.headers["access-control-allow-origin"]).toBe(ORIGIN);
    expect(preflight.headers["access-control-allow-methods"]).toContain("POST");
    for (const header of ["authorization", "content-type", "connect-protocol-version"])
      expect(String(preflight.headers["access-control-allow-headers"]).toLowerCase()).toContain(header);

    const json = { "content-type": "application/json", authorization: `Bearer ${TOKEN}` };
    const called = await request({
      path: rpc,
      method: "POST",
      headers: { origin: ORIGIN, ...json },
      body: "{}",
    });
    expect(called.status).toBe(200);
    expect(called.headers["access-control-allow-origin"]).toBe(ORIGIN);
    expect(called.body).toContain(MODEL);
    const refused = await request({
      path: rpc,
      method: "POST",
      headers: { origin: ORIGIN, "content-type": "application/json" },
      body: "{}",
    });
    expect(refused.status).toBe(401);
    expect(refused.headers["access-control-allow-origin"]).toBe(ORIGIN); // so that the page can read why

    for (const origin of ["https://evil.example", "http://app.example", `${ORIGIN}.evil.example`, "null"]) {
      for (const method of ["OPTIONS", "POST"]) {
        const answer = await request({
          path: rpc,
          method,
          headers: { origin, ...asks, ...json },
          body: "{}",
        });
        expect(answer.headers["access-control-allow-origin"], origin).toBeUndefined();
        expect(answer.status, origin).toBe(403);
      }
    }
  });

  test("no token and no key is in the log", () => {
    for (const secret of [TOKEN, PEER_TOKEN, "sk-test-canary", "PRIVATE KEY"])
      expect(server.output()).not.toContain(secret);
  });

  function request(options: {
    readonly host?: string;
    readonly path: string;
    readonly method: string;
    readonly headers?: Record<string, string>;
    readonly body?: string;
  }): Promise<{ status: number; headers: Record<string, unknown>; body: string }> {
    return new Promise((resolve, reject) => {
      const { body, ...rest } = options;
      const sent = https.request(
        {
          host: "127.0.0.1",
          port: httpPort,
          ca: certificate.cert,
          checkServerIdentity: () => undefined, // the certificate does not name every address of the machine
          ...rest,
        },
        (response) => {
          let text = "";
          response.on("data", (chunk: Buffer) => (text += chunk.toString()));
          response.on("end", () =>
            resolve({ status: response.statusCode ?? 0, headers: response.headers, body: text }),
          );
        },
      );
      sent.on("error", reject);
      sent.end(options.method === "POST" ? body : undefined);
    });
  }
});

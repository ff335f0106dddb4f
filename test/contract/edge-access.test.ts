import { create } from "@bufbuild/protobuf";
import { createClient } from "@connectrpc/connect";
import {
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
} from "@connectrpc/connect-node";
import http from "node:http";
import { describe, expect, test } from "vitest";
import { ChatService, ListModelsResponseSchema } from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { createAuthenticator } from "../../src/edge/auth.js";
import { fromConnectError } from "../../src/lib/rpc/status.js";
import { deferred } from "../../src/lib/signals.js";
import type { TestEdge } from "./edge-fixture.js";
import { CHAT_PATH, useEdge } from "./edge-fixture.js";
import { chatBinding, headFrame } from "./rpc-fixture.js";

const models = (): ReturnType<typeof chatBinding> =>
  chatBinding({
    listModels: async (_, { principal }) =>
      create(ListModelsResponseSchema, { nextPageToken: `${principal.tenantId}/${principal.userId}` }),
  });

interface Answer {
  readonly status: number;
  readonly headers: http.IncomingHttpHeaders;
  readonly text: string;
}

/** A raw request: unlike fetch it sends any Host and Origin. */
function send(
  edge: TestEdge,
  method: string,
  path: string,
  headers: Record<string, string>,
  body?: string,
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const request = http.request(
      { port: edge.port, host: "127.0.0.1", method, path, headers, agent: false },
      (response) => {
        let text = "";
        response.setEncoding("utf8").on("data", (chunk: string) => (text += chunk));
        response.on("end", () =>
          resolve({ status: response.statusCode ?? 0, headers: response.headers, text }),
        );
      },
    );
    request.on("error", reject);
    request.end(body);
  });
}

const LIST_MODELS = `${CHAT_PATH}/ListModels`;
const JSON_TYPE = { "content-type": "application/json" };

describe("edge access - CORS", () => {
  const corsOrigins = ["https://app.example", "http://localhost:5173"];

  test.each([
    ["a listed origin", "https://app.example", 200, "https://app.example"],
    ["another listed origin", "http://localhost:5173", 200, "http://localhost:5173"],
    ["no origin", undefined, 200, undefined],
    ["the null origin", "null", 403, undefined],
    ["a subdomain", "https://evil.app.example", 403, undefined],
    ["a suffix", "https://app.example.evil", 403, undefined],
    ["a prefix", "https://evilapp.example", 403, undefined],
    ["another port", "https://app.example:8443", 403, undefined],
    ["another scheme", "http://app.example", 403, undefined],
    ["another loopback port", "http://127.0.0.1:1", 403, undefined],
  ])("%s", async (_, origin, status, allowed) => {
    const edge = await useEdge([models()], { corsOrigins });
    const headers: Record<string, string> = origin === undefined ? {} : { origin };
    const answer = await send(edge, "POST", LIST_MODELS, { ...JSON_TYPE, ...headers }, "{}");
    expect(answer.status).toBe(status);
    expect(answer.headers["access-control-allow-origin"]).toBe(allowed);
    expect(answer.headers["access-control-allow-credentials"]).toBeUndefined();
    if (allowed) {
      expect(answer.headers.vary).toBe("Origin");
      expect(answer.headers["access-control-expose-headers"]).toMatch(/Grpc-Status, Grpc-Message/);
    }
    const preflight = await send(edge, "OPTIONS", LIST_MODELS, {
      ...headers,
      "access-control-request-method": "POST",
    });
    expect(preflight.status).toBe(status === 200 ? 204 : 403);
    expect(preflight.headers["access-control-allow-headers"] !== undefined).toBe(allowed !== undefined);
  });

  test("the page of this server itself needs no list", async () => {
    const edge = await useEdge([models()]);
    const answer = await send(edge, "POST", LIST_MODELS, { ...JSON_TYPE, origin: edge.url }, "{}");
    expect([answer.status, answer.headers["cache-control"]]).toEqual([200, "no-store"]);
  });

  test.each(["https://app.example/path", "app.example", "*", "null", "ftp://app.example"])(
    "%s is no origin to list",
    async (origin) => {
      await expect(useEdge([models()], { corsOrigins: [origin] })).rejects.toThrow(/TURNWIRE_CORS_ORIGINS/);
    },
  );
});

test.each([
  ["localhost:1", 200],
  ["127.0.0.1", 200],
  ["[::1]:8080", 200],
  ["app.example", 200],
  ["rebound.evil", 421],
  ["127.0.0.1.evil", 421],
  ["a b", 400],
])("edge access - on loopback the host %s is answered %i", async (host, status) => {
  const edge = await useEdge([models()], { corsOrigins: ["https://app.example"] });
  expect((await send(edge, "POST", LIST_MODELS, { ...JSON_TYPE, host }, "{}")).status).toBe(status);
});

test.each([
  [
    "GET of an RPC with side effects",
    "GET",
    `${CHAT_PATH}/StopTurn?connect=v1&encoding=json&message={}`,
    {},
    405,
  ],
  ["a form", "POST", LIST_MODELS, { "content-type": "application/x-www-form-urlencoded" }, 415],
  ["text", "POST", LIST_MODELS, { "content-type": "text/plain" }, 415],
  ["GET of a read", "GET", `${LIST_MODELS}?connect=v1&encoding=json&message={}`, {}, 200],
  ["another path", "GET", "/nope", {}, 404],
  ["an unknown RPC over gRPC", "POST", `${CHAT_PATH}/Nope`, { "content-type": "application/grpc-web" }, 200],
])("edge access - %s", async (_, method, path, headers, status) => {
  const edge = await useEdge([models()]);
  const answer = await send(edge, method, path, headers, method === "GET" ? undefined : "{}");
  expect(answer.status).toBe(status);
  if (path.endsWith("Nope")) expect(answer.headers["grpc-status"]).toBe("12");
});

test("edge access - tokens decide who calls, in every protocol", async () => {
  const authenticate = createAuthenticator({ tokens: "alpha=t1/u1,be=ta==t2/u2/admin", loopback: true });
  const edge = await useEdge([models()], { authenticate });
  for (const transport of [
    createConnectTransport({ baseUrl: edge.url, httpVersion: "1.1" }),
    createGrpcTransport({ baseUrl: edge.url }),
    createGrpcWebTransport({ baseUrl: edge.url, httpVersion: "2" }),
  ]) {
    const client = createClient(ChatService, transport);
    const as = (token: string) => ({ headers: { authorization: `Bearer ${token}` } });
    expect((await client.listModels({}, as("alpha"))).nextPageToken).toBe("t1/u1");
    expect((await client.listModels({}, as("be=ta="))).nextPageToken).toBe("t2/u2");
    for (const options of [{}, as("alph"), as("alpha2"), { headers: { authorization: "Basic alpha" } }]) {
      const error = fromConnectError(await client.listModels({}, options).catch((thrown: unknown) => thrown));
      expect(error.code).toBe(ErrorCode.UNAUTHENTICATED);
    }
  }
});

describe("edge access - health over HTTP", () => {
  test("healthz needs no token and readyz follows the dependencies", async () => {
    let failing = true;
    const edge = await useEdge([models()], {
      authenticate: createAuthenticator({ tokens: "x=t/u", loopback: true }),
      ready: () =>
        failing ? Promise.reject(new Error("postgres at db.internal is down")) : Promise.resolve(),
    });
    expect(await send(edge, "GET", "/healthz", {})).toMatchObject({ status: 200, text: "ok\n" });
    expect(await send(edge, "GET", "/readyz", {})).toMatchObject({ status: 503, text: "not ready\n" });
    failing = false;
    await expect
      .poll(async () => (await send(edge, "GET", "/readyz", {})).status, { timeout: 15_000 })
      .toBe(200);
  });

  test("other handlers get the rest", async () => {
    const edge = await useEdge([models()], {
      fallback: (_, response) => {
        response.writeHead(200, { "content-type": "text/html" });
        (response as http.ServerResponse).end("<p>page");
      },
    });
    const answer = await send(edge, "GET", "/", {});
    expect(answer).toMatchObject({ status: 200, text: "<p>page" });
    expect(answer.headers["x-content-type-options"]).toBe("nosniff");
  });
});

test.each([
  ["connect, HTTP/1.1", (baseUrl: string) => createConnectTransport({ baseUrl, httpVersion: "1.1" })],
  ["connect, h2c", (baseUrl: string) => createConnectTransport({ baseUrl, httpVersion: "2" })],
  ["grpc, h2c", (baseUrl: string) => createGrpcTransport({ baseUrl })],
])("edge access - a client that leaves a quiet stream aborts it, %s", async (_, transport) => {
  const left = deferred<unknown>();
  const edge = await useEdge([
    chatBinding({
      resumeTurn: async function* (_request, { signal }) {
        signal.addEventListener("abort", () => left.resolve(signal.reason));
        yield headFrame(1);
        await new Promise(() => undefined);
      },
    }),
  ]);
  const controller = new AbortController();
  const stream = createClient(ChatService, transport(edge.url))
    .resumeTurn({ turnId: "t" }, { signal: controller.signal })
    [Symbol.asyncIterator]();
  await stream.next();
  controller.abort();
  await expect(stream.next()).rejects.toThrow();
  expect(await left.promise).toMatchObject({ code: ErrorCode.CANCELLED });
  await expect.poll(() => edge.openCalls).toBe(0);
});

import { create } from "@bufbuild/protobuf";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { randomBytes } from "node:crypto";
import http from "node:http";
import { connect as connectH2 } from "node:http2";
import type { ClientHttp2Session, ClientHttp2Stream, Settings } from "node:http2";
import { connect as connectTcp } from "node:net";
import type { Socket } from "node:net";
import { gzipSync } from "node:zlib";
import { describe, expect, onTestFinished, test } from "vitest";
import { ChatService, ListModelsResponseSchema } from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import { ReaderStalledSchema } from "../../gen/turnwire/chat/v1/errors_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../../src/lib/errors.js";
import type { CallContext } from "../../src/lib/rpc/service-binding.js";
import { findDetail } from "../../src/lib/rpc/status.js";
import { deferred } from "../../src/lib/signals.js";
import type { TestEdge } from "./edge-fixture.js";
import { CHAT_PATH, envelope, splitEnvelopes, useEdge } from "./edge-fixture.js";
import {
  RESUME_REQUEST,
  TEST_PRINCIPAL,
  batchBytes,
  bytesFrame,
  chatBinding,
  headFrame,
} from "./rpc-fixture.js";

const RESUME = `${CHAT_PATH}/ResumeTurn`;
const LIST_MODELS = `${CHAT_PATH}/ListModels`;

/** A stream without end, and what became of it. */
function endless(frameBytes = 16_000): {
  readonly binding: ReturnType<typeof chatBinding>;
  produced(): number;
  readonly finished: Promise<unknown>;
} {
  const finished = deferred<unknown>();
  const bytes = batchBytes(1, frameBytes);
  let produced = 0;
  async function* run(context: CallContext): AsyncGenerator<ReturnType<typeof bytesFrame>> {
    try {
      for (;;) {
        produced++;
        yield bytesFrame(bytes);
      }
    } finally {
      finished.resolve(context.signal.reason);
    }
  }
  return {
    binding: chatBinding({ resumeTurn: (_, context) => run(context) }),
    produced: () => produced,
    finished: finished.promise,
  };
}

/** Resolves when nothing more is produced: the reader's windows and our buffer are full. */
async function untilBlocked(produced: () => number): Promise<void> {
  let last = -1;
  await expect
    .poll(
      () => {
        const same = produced() === last && last > 1;
        last = produced();
        return same;
      },
      { interval: 100, timeout: 10_000 },
    )
    .toBe(true);
}

function useTcp(edge: TestEdge): Socket {
  const socket = connectTcp(edge.port, "127.0.0.1");
  socket.on("error", () => undefined);
  onTestFinished(() => void socket.destroy());
  return socket;
}

function useH2(edge: TestEdge): ClientHttp2Session {
  const session = connectH2(edge.url);
  session.on("error", () => undefined);
  onTestFinished(() => session.destroy());
  return session;
}

/** An HTTP/1.1 stream whose response nobody reads. */
function stallH1(edge: TestEdge): Socket {
  const socket = useTcp(edge);
  socket.pause();
  const body = envelope(RESUME_REQUEST);
  socket.write(
    `POST ${RESUME} HTTP/1.1\r\nhost: 127.0.0.1:${edge.port}\r\ncontent-type: application/connect+proto\r\ncontent-length: ${body.length}\r\n\r\n`,
  );
  socket.write(body);
  return socket;
}

/** An HTTP/2 stream whose response nobody reads. */
function stallH2(
  edge: TestEdge,
  contentType = "application/grpc",
  headers: Record<string, string> = {},
): ClientHttp2Stream {
  const stream = useH2(edge).request({
    ":method": "POST",
    ":path": RESUME,
    "content-type": contentType,
    te: "trailers",
    ...headers,
  });
  stream.on("error", () => undefined);
  stream.end(envelope(RESUME_REQUEST));
  return stream;
}

describe("edge guards - a client that vanishes while the handler is blocked ends the handler", () => {
  test.each<[string, (edge: TestEdge) => () => void]>([
    [
      "HTTP/1.1, socket destroyed",
      (edge) =>
        (
          (socket) => () =>
            socket.resetAndDestroy()
        )(stallH1(edge)),
    ],
    [
      "HTTP/1.1, client says goodbye",
      (edge) =>
        (
          (socket) => () =>
            socket.end()
        )(stallH1(edge)),
    ],
    [
      "h2c, grpc, stream reset",
      (edge) =>
        (
          (stream) => () =>
            stream.close(8)
        )(stallH2(edge)),
    ],
    [
      "h2c, connect, stream reset",
      (edge) =>
        (
          (stream) => () =>
            stream.close(8)
        )(stallH2(edge, "application/connect+proto")),
    ],
    [
      "h2c, grpc-web, connection destroyed",
      (edge) =>
        (
          (stream) => () =>
            stream.session!.destroy()
        )(stallH2(edge, "application/grpc-web")),
    ],
  ])("%s", async (_, stall) => {
    const source = endless();
    const edge = await useEdge([source.binding]);
    const vanish = stall(edge);
    await untilBlocked(source.produced);
    vanish();
    expect(await source.finished).toMatchObject({ code: ErrorCode.CANCELLED });
    await expect.poll(() => edge.openCalls).toBe(0);
  });
});

describe("edge guards - a stalled reader is cut and holds below 1 MiB here", () => {
  test.each<[string, number, (edge: TestEdge) => Promise<void>]>([
    ["HTTP/1.1", 16_000, (edge) => new Promise((resolve) => stallH1(edge).once("close", () => resolve()))],
    ["h2c", 16_000, (edge) => new Promise((resolve) => stallH2(edge).once("close", () => resolve()))],
    [
      "h2c, tiny frames",
      20,
      (edge) => new Promise((resolve) => stallH2(edge).once("close", () => resolve())),
    ],
  ])("%s", async (name, frameBytes, stall) => {
    const source = endless(frameBytes);
    const edge = await useEdge([source.binding], { limits: { stallMs: 300, cutGraceMs: 100 } });
    void stall(edge);
    const reason = (await source.finished) as TurnError;
    expect(reason).toMatchObject({ code: ErrorCode.READER_STALLED });
    expect(findDetail(reason, ReaderStalledSchema)).toBeDefined();
    // an HTTP/1.1 socket's kernel buffers take some MiB before anything waits in the process
    if (name !== "HTTP/1.1") expect(source.produced() * frameBytes).toBeLessThan(1024 * 1024);
    await expect.poll(() => edge.openCalls).toBe(0);
  });

  test("one that reads again in time gets the resumable status behind its data", async () => {
    const source = endless();
    const edge = await useEdge([source.binding], { limits: { stallMs: 200, cutGraceMs: 10_000 } });
    const stream = stallH2(edge, "application/connect+proto");
    await source.finished;
    const chunks: Buffer[] = [];
    for await (const chunk of stream) chunks.push(chunk as Buffer);
    const last = splitEnvelopes(Buffer.concat(chunks)).at(-1)!;
    expect(last.flags).toBe(2);
    expect(JSON.parse(last.data.toString())).toMatchObject({ error: { code: "resource_exhausted" } });
  });

  test("others on the same connection go on", async () => {
    const source = endless();
    const edge = await useEdge([source.binding]);
    const stalled = stallH2(edge);
    await untilBlocked(source.produced);
    const health = (stalled.session as ClientHttp2Session).request({ ":method": "GET", ":path": "/healthz" });
    expect((await once(health, "response"))[":status"]).toBe(200);
  });
});

async function once(stream: ClientHttp2Stream, event: string): Promise<Record<string, unknown>> {
  return new Promise((resolve, reject) => {
    stream.once(event, resolve);
    stream.once("error", reject);
  });
}

test("edge guards - a deadline ends a call that is blocked on its reader", async () => {
  const source = endless();
  const edge = await useEdge([source.binding], { limits: { cutGraceMs: 100 } });
  const stream = stallH2(edge, "application/grpc", { "grpc-timeout": "400m" });
  expect(await source.finished).toMatchObject({ code: ErrorCode.DEADLINE_EXCEEDED });
  await expect.poll(() => edge.openCalls).toBe(0);
  stream.resume();
  await new Promise((resolve) => (stream.closed ? resolve(undefined) : stream.once("close", resolve)));
});

test("edge guards - a deadline ends a call whose handler does not listen", async () => {
  const edge = await useEdge([chatBinding({ listModels: () => new Promise(() => undefined) })]);
  const client = createClient(ChatService, createGrpcTransport({ baseUrl: edge.url }));
  await expect(client.listModels({}, { timeoutMs: 150 })).rejects.toMatchObject({
    code: Code.DeadlineExceeded,
  });
  await expect.poll(() => edge.openCalls).toBe(0);
});

/** What a raw HTTP/1.1 request is answered. */
function post(
  edge: TestEdge,
  path: string,
  contentType: string,
  body: Uint8Array,
  headers: Record<string, string> = {},
): Promise<{ status: number; text: string }> {
  return new Promise((resolve, reject) => {
    const request = http.request(
      {
        port: edge.port,
        host: "127.0.0.1",
        path,
        method: "POST",
        headers: { "content-type": contentType, "content-length": body.length, ...headers },
      },
      (response) => {
        const chunks: Buffer[] = [];
        response.on("data", (chunk: Buffer) => chunks.push(chunk));
        response.on("end", () =>
          resolve({ status: response.statusCode ?? 0, text: Buffer.concat(chunks).toString() }),
        );
      },
    );
    request.on("error", reject);
    request.end(body);
  });
}

const models = (): ReturnType<typeof chatBinding> =>
  chatBinding({
    listModels: async () => create(ListModelsResponseSchema),
    resumeTurn: async function* () {},
  });

describe("edge guards - bad requests are answered by type and reach no handler", () => {
  const nested = `{"pageToken":${"[".repeat(10_000)}${"]".repeat(10_000)}}`;
  test.each<[string, string, Uint8Array, RegExp, Record<string, string>?]>([
    ["malformed JSON", "application/json", Buffer.from('{"pageToken":'), /not valid JSON/],
    ["an empty JSON body", "application/json", Buffer.from(""), /not valid JSON/],
    ["an unknown JSON field", "application/json", Buffer.from('{"pageTokn":"x"}'), /pageTokn: no such field/],
    [
      "a JSON value of the wrong type",
      "application/json",
      Buffer.from('{"pageSize":"many"}'),
      /page_size: its JSON value/,
    ],
    ["deeply nested JSON", "application/json", Buffer.from(nested), /./],
    [
      "broken UTF-8 in JSON",
      "application/json",
      Buffer.from([0x7b, 0x22, 0xc3, 0x28, 0x22, 0x3a, 0x31, 0x7d]),
      /not UTF-8/,
    ],
    ["broken UTF-8", "application/proto", new Uint8Array([0x12, 0x02, 0xc3, 0x28]), /not UTF-8/],
    ["cut bytes", "application/proto", new Uint8Array([0x12, 0x09, 0x41]), /malformed/],
    [
      "cut bytes, gzip",
      "application/proto",
      gzipSync(new Uint8Array([0x12, 0x09, 0x41])),
      /malformed/,
      { "content-encoding": "gzip" },
    ],
    ["a broken rule", "application/json", Buffer.from('{"pageSize":5000}'), /^page_size: /],
  ])("%s", async (_, contentType, body, message, headers) => {
    const edge = await useEdge([models()]);
    const answer = await post(edge, LIST_MODELS, contentType, body, headers);
    expect(answer.status).toBe(400);
    const error = JSON.parse(answer.text) as {
      code: string;
      message: string;
      details: { debug: { reason?: string } }[];
    };
    expect(error.code).toBe("invalid_argument");
    expect(error.message).toMatch(message);
    expect(error.details[0]!.debug.reason).toBe("INVALID_ARGUMENT");
  });

  test("the same in a stream's envelope", async () => {
    const edge = await useEdge([models()]);
    const proto = await post(
      edge,
      RESUME,
      "application/connect+proto",
      envelope(new Uint8Array([0x0a, 0x02, 0xc3, 0x28])),
    );
    expect(splitEnvelopes(Buffer.from(proto.text))[0]!.data.toString()).toMatch(
      /invalid_argument.*not UTF-8/,
    );
    const json = await post(
      edge,
      RESUME,
      "application/connect+json",
      envelope(Buffer.from('{"turnID":"t"}')),
    );
    expect(splitEnvelopes(Buffer.from(json.text))[0]!.data.toString()).toMatch(/turnID: no such field/);
  });

  test("a GET with a bad message", async () => {
    const edge = await useEdge([models()]);
    const response = await fetch(
      `${edge.url}${LIST_MODELS}?connect=v1&encoding=json&message=${encodeURIComponent('{"x":1}')}`,
    );
    expect(response.status).toBe(400);
    expect(await response.text()).toMatch(/x: no such field/);
  });

  test.each(["application/proto", "application/json"])("5 MiB as %s", async (contentType) => {
    const edge = await useEdge([models()]);
    const answer = await post(edge, LIST_MODELS, contentType, Buffer.alloc(5 * 1024 * 1024, 0x20));
    expect(answer).toMatchObject({
      status: 429,
      text: expect.stringContaining("resource_exhausted") as string,
    });
  });

  test("a compressed bomb", async () => {
    const edge = await useEdge([models()]);
    const answer = await post(
      edge,
      LIST_MODELS,
      "application/proto",
      gzipSync(Buffer.alloc(64 * 1024 * 1024)),
      { "content-encoding": "gzip" },
    );
    expect(answer.status).toBe(429);
  });

  test.each(["application/grpc", "application/connect+proto", "application/grpc-web"])(
    "an envelope of 4 GiB as %s, refused by its prefix",
    async (contentType) => {
      const edge = await useEdge([models()]);
      const stream = useH2(edge).request({
        ":method": "POST",
        ":path": RESUME,
        "content-type": contentType,
        te: "trailers",
      });
      stream.on("error", () => undefined);
      stream.write(Buffer.from([0, 0xff, 0xff, 0xff, 0xff, 1, 2, 3]));
      const head = await once(stream, "response");
      const chunks: Buffer[] = [];
      stream.on("data", (chunk: Buffer) => chunks.push(chunk));
      const trailers = new Promise<Record<string, unknown>>((resolve) => stream.once("trailers", resolve));
      const text = await Promise.race([
        trailers.then((fields) => String(fields["grpc-status"])),
        new Promise<string>((resolve) =>
          stream.once("close", () => resolve(Buffer.concat(chunks).toString())),
        ),
        head["grpc-status"] === undefined ? new Promise<never>(() => undefined) : String(head["grpc-status"]),
      ]);
      expect(text).toMatch(/^8$|resource_exhausted|grpc-status: 8/);
    },
  );

  test("garbage on the wire ends its own connection only", async () => {
    const edge = await useEdge([models()]);
    for (let round = 0; round < 40; round++) {
      const socket = useTcp(edge);
      const preface = round % 2 === 0 ? Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") : Buffer.alloc(0);
      socket.write(Buffer.concat([preface, randomBytes(200)]));
      socket.end();
    }
    const answer = await post(edge, LIST_MODELS, "application/json", Buffer.from("{}"));
    expect(answer.status).toBe(200);
  });
});

test.each([
  "application/grpc",
  "application/connect+proto",
  "application/grpc-web+proto",
  "application/proto",
])(
  "edge guards - more calls than allowed are OVERLOADED as %s, before their body is read",
  async (contentType) => {
    const edge = await useEdge([models()], { limits: { maxCalls: 0 } });
    const stream = useH2(edge).request({
      ":method": "POST",
      ":path": contentType === "application/proto" ? LIST_MODELS : RESUME,
      "content-type": contentType,
    });
    stream.on("error", () => undefined);
    let status: unknown;
    stream.on("trailers", (fields) => (status = fields["grpc-status"]));
    const head = await once(stream, "response"); // nothing was sent but headers
    const chunks: Buffer[] = [];
    for await (const chunk of stream) chunks.push(chunk as Buffer);
    // A status in headers is one for gRPC-Web only: gRPC's stand in trailers, or in headers that end the stream.
    if (contentType === "application/grpc-web+proto") status = head["grpc-status"];
    expect(String(status ?? Buffer.concat(chunks).toString())).toMatch(/^8$|resource_exhausted/);
  },
);

test("edge guards - a caller without a token is answered before its body is read", async () => {
  const edge = await useEdge([models()], {
    authenticate: () => {
      throw new TurnError(ErrorCode.UNAUTHENTICATED);
    },
  });
  const socket = useTcp(edge);
  socket.write(
    `POST ${LIST_MODELS} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n`,
  );
  const text = await readAll(socket);
  expect(text).toMatch(/^HTTP\/1\.1 401 /);
  expect(text).toMatch(/www-authenticate: Bearer/i);
});

function readAll(socket: Socket): Promise<string> {
  const chunks: Buffer[] = [];
  socket.on("data", (chunk: Buffer) => chunks.push(chunk));
  return new Promise((resolve) => socket.once("close", () => resolve(Buffer.concat(chunks).toString())));
}

describe("edge guards - connections that dawdle are closed", () => {
  test.each([
    ["that say nothing", ""],
    ["that stop inside the HTTP/2 preface", "PRI"],
    ["that do not finish their headers", `POST ${LIST_MODELS} HTTP/1.1\r\nhost: localhost\r\nx-`],
  ])("%s", async (_, bytes) => {
    const edge = await useEdge([models()], { listenerLimits: { headerTimeoutMs: 200 } });
    const socket = useTcp(edge);
    socket.write(bytes);
    await readAll(socket);
    await expect.poll(() => edge.openCalls).toBe(0);
  });

  test("a body that does not come, HTTP/1.1 and h2c", async () => {
    const edge = await useEdge([models()], { bodyTimeoutMs: 150 });
    const socket = useTcp(edge);
    socket.write(
      `POST ${LIST_MODELS} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 10\r\n\r\n{`,
    );
    expect(await readAll(socket)).toMatch(/504 .*deadline_exceeded/s);
    const stream = useH2(edge).request({
      ":method": "POST",
      ":path": LIST_MODELS,
      "content-type": "application/json",
    });
    stream.write("{");
    expect((await once(stream, "response"))[":status"]).toBe(504);
    await expect.poll(() => edge.openCalls).toBe(0);
  });

  test("headers beyond the limit, HTTP/1.1", async () => {
    const edge = await useEdge([models()]);
    const socket = useTcp(edge);
    socket.write(`GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-long: ${"x".repeat(20_000)}\r\n\r\n`);
    expect(await readAll(socket)).toMatch(/^HTTP\/1\.1 431 /);
  });

  test("the settings of HTTP/2 are the configured ones", async () => {
    const edge = await useEdge([models()], { limits: { maxConcurrentStreams: 128 } });
    const session = useH2(edge);
    const settings = await new Promise<Settings>((resolve) => session.once("remoteSettings", resolve));
    expect(settings).toMatchObject({ maxConcurrentStreams: 128, maxHeaderListSize: 16 * 1024 });
  });
});

describe("edge guards - close", () => {
  const gated = (): { binding: ReturnType<typeof chatBinding>; gate: ReturnType<typeof deferred<void>> } => {
    const gate = deferred();
    const binding = chatBinding({
      resumeTurn: async function* (_, { signal }) {
        yield headFrame(1);
        await Promise.race([
          gate.promise,
          new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason))),
        ]);
        yield headFrame(2);
      },
    });
    return { binding, gate };
  };

  async function openStreams(edge: TestEdge): Promise<Promise<string>[]> {
    const h1 = fetch(edge.url + RESUME, {
      method: "POST",
      headers: { "content-type": "application/connect+proto" },
      body: new Uint8Array(envelope(RESUME_REQUEST)),
    }).then((response) => response.text());
    const stream = stallH2(edge, "application/connect+proto");
    const h2 = (async () => {
      const chunks: Buffer[] = [];
      for await (const chunk of stream) chunks.push(chunk as Buffer);
      return Buffer.concat(chunks).toString();
    })();
    await expect.poll(() => edge.openCalls).toBe(2);
    return [h1, h2];
  }

  test("lets open streams finish", async () => {
    const { binding, gate } = gated();
    const edge = await useEdge([binding]);
    const streams = await openStreams(edge);
    const closed = edge.close(10_000);
    expect(edge.health.serving).toBe(false);
    gate.resolve();
    for (const text of await Promise.all(streams)) expect(text).toMatch(/\{\}$/);
    await closed;
    await expect(fetch(`${edge.url}/healthz`)).rejects.toThrow();
  });

  test("tells those that are still open after the grace", async () => {
    const { binding } = gated();
    const edge = await useEdge([binding]);
    const streams = await openStreams(edge);
    const closed = edge.close(100);
    for (const text of await Promise.all(streams)) expect(text).toMatch(/unavailable.*shutting down/s);
    await closed;
  });

  test("ends by force what takes no notice", async () => {
    const source = endless();
    const edge = await useEdge([source.binding], { limits: { cutGraceMs: 100 } });
    stallH1(edge);
    stallH2(edge);
    await untilBlocked(source.produced);
    await edge.close(50);
    expect(edge.openCalls).toBe(0);
  });
});

test("edge guards - the principal reaches the handler, and a closed call was never aborted", async () => {
  const contexts: CallContext[] = [];
  const edge = await useEdge([
    chatBinding({
      listModels: async (_, context) => {
        contexts.push(context);
        return create(ListModelsResponseSchema);
      },
    }),
  ]);
  await post(edge, LIST_MODELS, "application/json", Buffer.from("{}"), { "connect-timeout-ms": "5000" });
  await expect.poll(() => edge.openCalls).toBe(0);
  expect(contexts[0]).toMatchObject({ principal: TEST_PRINCIPAL, protocol: "connect" });
  expect(contexts[0]!.timeoutMs).toBeGreaterThan(3000);
  expect(contexts[0]!.signal.aborted).toBe(false);
});

test("edge guards - an error of connect's own is no leak either", async () => {
  const edge = await useEdge([models()]);
  const client = createClient(ChatService, createGrpcTransport({ baseUrl: edge.url }));
  const error = await client
    .listModels({}, { headers: { "grpc-timeout": "nonsense" } })
    .catch((thrown: unknown) => ConnectError.from(thrown));
  expect(error).toMatchObject({ code: Code.InvalidArgument });
});

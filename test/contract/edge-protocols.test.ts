import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { credentials } from "@grpc/grpc-js";
import { connect } from "node:http2";
import { describe, expect, onTestFinished, test } from "vitest";
import {
  ChatService,
  ListModelsResponseSchema,
  ResumeTurnResponseSchema,
} from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import { SessionBusySchema } from "../../gen/turnwire/chat/v1/errors_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { encodedMessage } from "../../src/edge/connect-server.js";
import { TurnError } from "../../src/lib/errors.js";
import { silentLogger } from "../../src/lib/log.js";
import { createGrpcClient } from "../../src/lib/rpc/grpc-client.js";
import type { ServiceBinding } from "../../src/lib/rpc/service-binding.js";
import { findDetail, fromConnectError } from "../../src/lib/rpc/status.js";
import {
  CHAT_PATH,
  CLEARTEXT_TRANSPORTS,
  TLS_TRANSPORTS,
  certificate,
  envelope,
  splitEnvelopes,
  useEdge,
} from "./edge-fixture.js";
import {
  RESUME_REQUEST,
  batchBytes,
  bytesFrame,
  bytesThrough,
  chatBinding,
  headFrame,
  useRawClient,
} from "./rpc-fixture.js";

const BATCHES = [batchBytes(1), batchBytes(2, 70_000), batchBytes(3)];

function binding(): ServiceBinding {
  return chatBinding({
    listModels: async ({ pageToken }) =>
      create(ListModelsResponseSchema, { nextPageToken: `after ${pageToken}` }),
    resumeTurn: async function* () {
      for (const batch of BATCHES) yield bytesFrame(batch);
      yield headFrame(3);
    },
    stopTurn: async () => {
      throw new TurnError(ErrorCode.SESSION_BUSY, {
        retryAfterMs: 1500,
        details: { session_id: "s1" },
        typed: [{ desc: SessionBusySchema, value: { turnId: "t1" } }],
        cause: new Error("secret-host"),
      });
    },
    watch: async function* () {
      yield { kind: "message", message: { headSeq: 1 } as never };
      throw new Error("password hunter2 at db.internal");
    },
  });
}

describe.each([...CLEARTEXT_TRANSPORTS, ...TLS_TRANSPORTS])("edge - %s", (name, makeTransport) => {
  const use = async (): Promise<ReturnType<typeof createClient<typeof ChatService>>> => {
    const edge = await useEdge([binding()], name.includes("TLS") ? { tls: certificate } : {});
    return createClient(ChatService, makeTransport(edge.url));
  };

  test("a unary call and a stream", async () => {
    const client = await use();
    expect((await client.listModels({ pageToken: "p" })).nextPageToken).toBe("after p");
    const received = [];
    for await (const response of client.resumeTurn({ turnId: "t" })) received.push(response);
    expect(received.map((response) => toBinary(ResumeTurnResponseSchema, response))).toEqual([
      ...BATCHES,
      toBinary(ResumeTurnResponseSchema, create(ResumeTurnResponseSchema, { headSeq: 3 })),
    ]);
  });

  test("errors carry their code, facts and typed details, and nothing of their cause", async () => {
    const client = await use();
    const busy = fromConnectError(
      await client.stopTurn({ target: { case: "turnId", value: "t" } }).catch((e: unknown) => e),
    );
    expect([busy.code, busy.retryAfterMs, busy.details]).toEqual([
      ErrorCode.SESSION_BUSY,
      1500,
      { session_id: "s1" },
    ]);
    expect(findDetail(busy, SessionBusySchema)).toMatchObject({ turnId: "t1" });
    const heads: number[] = [];
    const failed = await (async () => {
      for await (const response of client.watch({ allSessionEvents: true })) heads.push(response.headSeq);
    })().catch((thrown: unknown) => ConnectError.from(thrown));
    expect(failed).toMatchObject({ code: Code.Internal, rawMessage: "something went wrong inside Turnwire" });
    expect(JSON.stringify((failed as ConnectError).details)).not.toMatch(/hunter2|db\.internal/);
  });

  test("a request against the rules names its field; a method that is not built names itself", async () => {
    const client = await use();
    const broken = fromConnectError(await client.listModels({ pageSize: 5000 }).catch((e: unknown) => e));
    expect(broken).toMatchObject({ code: ErrorCode.INVALID_ARGUMENT, details: { field: "page_size" } });
    const noTurn = await (async () => {
      for await (const _ of client.resumeTurn({})) void _;
    })().catch(fromConnectError);
    expect(noTurn).toMatchObject({ code: ErrorCode.INVALID_ARGUMENT, details: { field: "turn_id" } });
    const missing = fromConnectError(await client.createSession({}).catch((e: unknown) => e));
    expect(missing.code).toBe(ErrorCode.NOT_BUILT);
    expect(missing.message).toContain("ChatService.CreateSession");
  });
});

test("edge - grpc-js speaks to the same port, in cleartext and with TLS", async () => {
  const edge = await useEdge([binding()]);
  const client = createGrpcClient(ChatService, { addresses: `127.0.0.1:${edge.port}`, logger: silentLogger });
  onTestFinished(() => client.close());
  const signal = AbortSignal.timeout(10_000);
  await client.ready(signal);
  const seqs: number[] = [];
  for await (const response of client.serverStream("resumeTurn", { turnId: "t" }, { signal })) {
    seqs.push(response.packets[0]?.seq ?? 0);
  }
  expect(seqs).toEqual([1, 2, 3, 0]);

  const secure = await useEdge([binding()], { tls: certificate });
  const raw = useRawClient(`localhost:${secure.port}`, {}, credentials.createSsl(certificate.cert));
  const call = raw.makeServerStreamRequest(
    `${CHAT_PATH}/ResumeTurn`,
    bytesThrough,
    bytesThrough,
    RESUME_REQUEST,
  );
  const received: Buffer[] = [];
  for await (const bytes of call) received.push(bytes as Buffer);
  expect(received.slice(0, 3)).toEqual(BATCHES.map((bytes) => Buffer.from(bytes)));
});

test.each([
  ["application/connect+proto", 1],
  ["application/grpc-web+proto", 1],
  ["application/grpc+proto", 2],
  ["application/connect+proto", 2],
])("edge - logged bytes arrive byte for byte as %s over HTTP/%i", async (contentType, version) => {
  const edge = await useEdge([binding()]);
  const path = `${CHAT_PATH}/ResumeTurn`;
  let body: Buffer;
  if (version === 1) {
    const response = await fetch(edge.url + path, {
      method: "POST",
      headers: { "content-type": contentType },
      body: new Uint8Array(envelope(RESUME_REQUEST)),
    });
    body = Buffer.from(await response.arrayBuffer());
  } else {
    const session = connect(edge.url);
    onTestFinished(() => session.destroy());
    const stream = session.request({
      ":method": "POST",
      ":path": path,
      "content-type": contentType,
      te: "trailers",
    });
    stream.end(envelope(RESUME_REQUEST));
    const chunks: Buffer[] = [];
    for await (const chunk of stream) chunks.push(chunk as Buffer);
    body = Buffer.concat(chunks);
  }
  const envelopes = splitEnvelopes(body);
  expect(envelopes.slice(0, 3).map((part) => part.flags)).toEqual([0, 0, 0]);
  expect(envelopes.slice(0, 3).map((part) => part.data)).toEqual(BATCHES.map((bytes) => Buffer.from(bytes)));
});

test.each([
  ["one packet", batchBytes(1)],
  ["many packets", Buffer.concat([batchBytes(1), batchBytes(2, 300), batchBytes(3)])],
  ["an empty message", new Uint8Array()],
  [
    "another first field",
    toBinary(ResumeTurnResponseSchema, create(ResumeTurnResponseSchema, { headSeq: 300, logId: "x" })),
  ],
  ["a field nobody knows", new Uint8Array([0xfa, 0xff, 0x3f, 0x02, 0x41, 0x42, 0x0a, 0x00])],
])("encoded message - %s encodes to the same bytes", (_, bytes) => {
  expect(
    Buffer.from(toBinary(ResumeTurnResponseSchema, encodedMessage(ResumeTurnResponseSchema, bytes) as never)),
  ).toEqual(Buffer.from(bytes));
  expect(() => fromBinary(ResumeTurnResponseSchema, bytes)).not.toThrow();
});

test.each([[new Uint8Array([0x80])], [new Uint8Array([0xff, 0xff, 0xff, 0xff, 0xff, 0x01])]])(
  "encoded message - bytes without a whole tag are refused",
  (bytes) => {
    expect(() => encodedMessage(ResumeTurnResponseSchema, bytes)).toThrow(/not the encoding/);
  },
);

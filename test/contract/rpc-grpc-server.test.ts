import { create, createFileRegistry, fromBinary, toBinary } from "@bufbuild/protobuf";
import type { FileDescriptorProto } from "@bufbuild/protobuf/wkt";
import { FileDescriptorProtoSchema, FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import type { ServiceError } from "@grpc/grpc-js";
import { Metadata, status } from "@grpc/grpc-js";
import type { ClientHttp2Stream } from "node:http2";
import { connect } from "node:http2";
import { expect, onTestFinished, test } from "vitest";
import {
  ChatService,
  ListModelsRequestSchema,
  ListModelsResponseSchema,
  ResumeTurnRequestSchema,
} from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import { ReaderStalledSchema, SessionBusySchema } from "../../gen/turnwire/chat/v1/errors_pb.js";
import { BadRequestSchema } from "../../gen/google/rpc/error_details_pb.js";
import { FilterService } from "../../gen/turnwire/filter/v1/filter_service_pb.js";
import { ServerReflection } from "../../gen/grpc/reflection/v1/reflection_pb.js";
import { ServerReflection as ServerReflectionAlpha } from "../../gen/grpc/reflection/v1alpha/reflection_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../../src/lib/errors.js";
import { silentLogger } from "../../src/lib/log.js";
import type { GrpcClient } from "../../src/lib/rpc/grpc-client.js";
import { createGrpcClient } from "../../src/lib/rpc/grpc-client.js";
import { fromGrpcError } from "../../src/lib/rpc/grpc-status.js";
import { Health } from "../../gen/grpc/health/v1/health_pb.js";
import { bindService } from "../../src/lib/rpc/service-binding.js";
import { findDetail } from "../../src/lib/rpc/status.js";
import { deferred } from "../../src/lib/signals.js";
import type { CallContext } from "../../src/lib/rpc/service-binding.js";
import {
  LIST_MODELS_PATH,
  RESUME_PATH,
  RESUME_REQUEST,
  TEST_PRINCIPAL,
  batchBytes,
  bytesFrame,
  bytesThrough,
  chatBinding,
  headFrame,
  unaryStatus,
  useGrpcServer,
  useRawClient,
} from "./rpc-fixture.js";

const NOTHING = new Uint8Array();

test("grpc server - a unary call knows its caller and its deadline", async () => {
  const seen = deferred<CallContext>();
  const server = await useGrpcServer([
    chatBinding({
      listModels: async (request, context) => {
        seen.resolve(context);
        return create(ListModelsResponseSchema, { nextPageToken: `after ${request.pageToken}` });
      },
    }),
  ]);
  const client = useRawClient(server.address);
  const request = toBinary(ListModelsRequestSchema, create(ListModelsRequestSchema, { pageToken: "p" }));
  const response = await new Promise<Buffer>((resolve, reject) => {
    client.makeUnaryRequest(
      LIST_MODELS_PATH,
      bytesThrough,
      bytesThrough,
      request,
      new Metadata(),
      { deadline: Date.now() + 5000 },
      (error, value) => (error ? reject(error) : resolve(value!)),
    );
  });
  expect(fromBinary(ListModelsResponseSchema, response).nextPageToken).toBe("after p");
  const context = await seen.promise;
  expect(context.principal).toEqual(TEST_PRINCIPAL);
  expect(context.protocol).toBe("native-grpc");
  expect(context.timeoutMs).toBeGreaterThan(3000);
  expect(context.signal.aborted).toBe(false);
});

test("grpc server - logged bytes go out untouched, between messages", async () => {
  const batches = [batchBytes(1), batchBytes(2, 70_000), new Uint8Array([0x0a, 0x00])];
  const server = await useGrpcServer([
    chatBinding({
      resumeTurn: async function* () {
        for (const batch of batches) yield bytesFrame(batch);
        yield headFrame(7);
      },
    }),
  ]);
  const call = useRawClient(server.address).makeServerStreamRequest(
    RESUME_PATH,
    bytesThrough,
    bytesThrough,
    RESUME_REQUEST,
  );
  const received: Buffer[] = [];
  for await (const bytes of call) received.push(bytes as Buffer);
  expect(received.map((bytes) => bytes.toString("hex"))).toEqual([
    ...batches.map((bytes) => Buffer.from(bytes).toString("hex")),
    "1807",
  ]);
});

test("grpc server - a bidi stream answers while requests still come", async () => {
  const server = await useGrpcServer([
    bindService(FilterService, {
      filterStream: async function* (requests) {
        for await (const request of requests) yield { kind: "bytes", bytes: batchBytes(request.packet!.seq) };
      },
    }),
  ]);
  const client = createGrpcClient(FilterService, { addresses: server.address, logger: silentLogger });
  onTestFinished(() => client.close());
  const gates = [deferred(), deferred()];
  const responses = client.bidiStream(
    "filterStream",
    (async function* () {
      yield { packet: { seq: 1 } };
      await gates[0]!.promise;
      yield { packet: { seq: 2 } };
      await gates[1]!.promise;
    })(),
    { signal: new AbortController().signal },
  );
  expect((await responses.next()).value.packets[0].seq).toBe(1);
  gates[0]!.resolve();
  expect((await responses.next()).value.packets[0].seq).toBe(2);
  gates[1]!.resolve();
  expect(await responses.next()).toEqual({ done: true, value: undefined });
});

test("grpc server - an error travels with its code, facts and typed details; its cause stays", async () => {
  const server = await useGrpcServer([
    chatBinding({
      listModels: async () => {
        throw new TurnError(ErrorCode.SESSION_BUSY, {
          retryAfterMs: 1500,
          details: { session_id: "s1" },
          typed: [{ desc: SessionBusySchema, value: { turnId: "t1" } }],
          cause: new Error("secret-host"),
        });
      },
      resumeTurn: async function* () {
        yield headFrame(1);
        throw new Error("password hunter2 at db.internal");
      },
    }),
  ]);
  const client = useRawClient(server.address);
  const busy = fromGrpcError(await unaryStatus(client, LIST_MODELS_PATH, NOTHING));
  expect([busy.code, busy.retryAfterMs, busy.details]).toEqual([
    ErrorCode.SESSION_BUSY,
    1500,
    { session_id: "s1" },
  ]);
  expect(findDetail(busy, SessionBusySchema)).toMatchObject({ turnId: "t1" });

  const call = client.makeServerStreamRequest(RESUME_PATH, bytesThrough, bytesThrough, RESUME_REQUEST);
  const received: unknown[] = [];
  call.on("data", (bytes) => received.push(bytes));
  const error = await new Promise<ServiceError>((resolve) => call.on("error", (e) => resolve(e as never)));
  expect(received).toHaveLength(1);
  expect(error.code).toBe(status.INTERNAL);
  const wire = JSON.stringify(error.metadata.getMap(), (_, value) =>
    value?.type === "Buffer" ? Buffer.from(value.data).toString() : value,
  );
  expect(error.details + wire).not.toMatch(/hunter2|db\.internal|secret-host/);
});

test.each([
  ["cut off", new Uint8Array([0x12, 0x09, 0x41]), /malformed/],
  ["broken UTF-8", new Uint8Array([0x12, 0x02, 0xc3, 0x28]), /not UTF-8/],
  ["no wire type", new Uint8Array([0x0f]), /malformed/],
])("grpc server - a request that is %s is INVALID_ARGUMENT", async (_, bytes, message) => {
  const server = await useGrpcServer([
    chatBinding({
      listModels: async () => create(ListModelsResponseSchema),
      resumeTurn: async function* () {},
    }),
  ]);
  const client = useRawClient(server.address);
  const error = await unaryStatus(client, LIST_MODELS_PATH, bytes);
  expect(error?.code).toBe(status.INVALID_ARGUMENT);
  expect(error?.details).toMatch(message);
  const call = client.makeServerStreamRequest(RESUME_PATH, bytesThrough, bytesThrough, bytes);
  call.resume();
  const streamError = await new Promise<{ code: number }>((resolve) =>
    call.on("error", (e) => resolve(e as never)),
  );
  expect(streamError.code).toBe(status.INVALID_ARGUMENT);
});

test("grpc server - a request against the rules is INVALID_ARGUMENT naming its fields, before the implementation", async () => {
  const called: string[] = [];
  const server = await useGrpcServer([
    chatBinding({
      listModels: async () => {
        called.push("listModels");
        return create(ListModelsResponseSchema);
      },
      resumeTurn: async function* () {
        called.push("resumeTurn");
      },
    }),
  ]);
  const client = useRawClient(server.address);
  const request = toBinary(ListModelsRequestSchema, create(ListModelsRequestSchema, { pageSize: 5000 }));
  const unary = fromGrpcError(await unaryStatus(client, LIST_MODELS_PATH, request));
  expect(unary).toMatchObject({ code: ErrorCode.INVALID_ARGUMENT, details: { field: "page_size" } });
  expect(unary.message).toMatch(/^page_size: /);
  expect(findDetail(unary, BadRequestSchema)).toMatchObject({ fieldViolations: [{ field: "page_size" }] });
  const call = client.makeServerStreamRequest(RESUME_PATH, bytesThrough, bytesThrough, NOTHING);
  call.resume();
  const stream = fromGrpcError(await new Promise((resolve) => call.on("error", resolve)));
  expect(stream.message).toMatch(/^turn_id: /);
  expect(called).toEqual([]);
});

test("grpc server - a method without implementation is UNIMPLEMENTED by name, and so is an unknown one", async () => {
  const server = await useGrpcServer([chatBinding({})]);
  const client = useRawClient(server.address);
  const known = await unaryStatus(client, LIST_MODELS_PATH, NOTHING);
  expect(known?.code).toBe(status.UNIMPLEMENTED);
  expect(known?.details).toContain("turnwire.chat.v1.ChatService.ListModels");
  const unknown = await unaryStatus(client, "/turnwire.chat.v1.ChatService/Nope", NOTHING);
  expect(unknown?.code).toBe(status.UNIMPLEMENTED);
});

test("grpc server - what is larger than the limit is refused by its declared length", async () => {
  const server = await useGrpcServer([
    chatBinding({ listModels: async () => create(ListModelsResponseSchema) }),
  ]);
  const error = await unaryStatus(
    useRawClient(server.address),
    LIST_MODELS_PATH,
    new Uint8Array(5 * 1024 * 1024),
  );
  expect(error?.code).toBe(status.RESOURCE_EXHAUSTED);

  const session = connect(`http://${server.address}`);
  onTestFinished(() => session.destroy());
  const stream = session.request({
    ":method": "POST",
    ":path": LIST_MODELS_PATH,
    "content-type": "application/grpc",
    te: "trailers",
  });
  const headers = new Promise<Record<string, unknown>>((resolve) => stream.on("response", resolve));
  stream.on("error", () => undefined);
  stream.write(Buffer.from([0, 0xff, 0xff, 0xff, 0xff, 1]));
  expect((await headers)["grpc-status"]).toBe(String(status.RESOURCE_EXHAUSTED));
});

test("grpc server - without a valid token nothing but health answers", async () => {
  const server = await useGrpcServer(
    [chatBinding({ listModels: async () => create(ListModelsResponseSchema) })],
    {
      authenticate: (headers) => {
        if (headers.get("authorization") === "Bearer right") return TEST_PRINCIPAL;
        throw new TurnError(ErrorCode.UNAUTHENTICATED);
      },
    },
  );
  const signal = AbortSignal.timeout(10_000);
  const use = (token?: string): GrpcClient<typeof ChatService> => {
    const client = createGrpcClient(ChatService, { addresses: server.address, token, logger: silentLogger });
    onTestFinished(() => client.close());
    return client;
  };
  await expect(use().unary("listModels", {}, { signal })).rejects.toMatchObject({
    code: ErrorCode.UNAUTHENTICATED,
  });
  await expect(use("wrong").unary("listModels", {}, { signal })).rejects.toMatchObject({
    code: ErrorCode.UNAUTHENTICATED,
  });
  await expect(use("right").unary("listModels", {}, { signal })).resolves.toBeDefined();
  await use().ready(signal);
});

test("grpc server - the deadline ends a call whose handler does not listen", async () => {
  const contexts: CallContext[] = [];
  const server = await useGrpcServer([
    chatBinding({
      listModels: (_, context) => {
        contexts.push(context);
        return new Promise(() => undefined);
      },
      resumeTurn: (_, context) => {
        contexts.push(context);
        return { [Symbol.asyncIterator]: () => ({ next: () => new Promise(() => undefined) }) };
      },
    }),
  ]);
  const client = useRawClient(server.address);
  const options = { deadline: Date.now() + 150 };
  const unary = new Promise<number | undefined>((resolve) =>
    client.makeUnaryRequest(
      LIST_MODELS_PATH,
      bytesThrough,
      bytesThrough,
      NOTHING,
      new Metadata(),
      options,
      (e) => resolve(e?.code),
    ),
  );
  const call = client.makeServerStreamRequest(
    RESUME_PATH,
    bytesThrough,
    bytesThrough,
    RESUME_REQUEST,
    new Metadata(),
    options,
  );
  call.resume();
  const stream = new Promise<number>((resolve) =>
    call.on("error", (e) => resolve((e as unknown as { code: number }).code)),
  );
  expect([await unary, await stream]).toEqual([status.DEADLINE_EXCEEDED, status.DEADLINE_EXCEEDED]);
  await expect.poll(() => server.openCalls).toBe(0);
  expect(contexts.map((context) => context.signal.aborted)).toEqual([true, true]);
});

/** Frames without end; resolves `finished` with the number produced when the generator is closed. */
function endless(frameBytes: number): {
  produced(): number;
  readonly finished: Promise<unknown>;
  run(context: CallContext): AsyncGenerator<ReturnType<typeof bytesFrame>>;
} {
  const finished = deferred<unknown>();
  const bytes = batchBytes(1, frameBytes);
  let produced = 0;
  return {
    produced: () => produced,
    finished: finished.promise,
    async *run(context) {
      try {
        for (;;) {
          produced++;
          yield bytesFrame(bytes);
        }
      } finally {
        finished.resolve(context.signal.reason);
      }
    },
  };
}

/** A stream over raw HTTP/2 whose data nobody reads. */
async function stalledReader(address: string): Promise<ClientHttp2Stream> {
  const session = connect(`http://${address}`);
  onTestFinished(() => session.destroy());
  const stream = session.request({
    ":method": "POST",
    ":path": RESUME_PATH,
    "content-type": "application/grpc",
    te: "trailers",
  });
  stream.on("error", () => undefined);
  stream.end(Buffer.concat([Buffer.from([0, 0, 0, 0, RESUME_REQUEST.length]), RESUME_REQUEST]));
  await new Promise((resolve) => stream.on("response", resolve));
  return stream;
}

test("grpc server - a reader that leaves while its handler is blocked ends the handler", async () => {
  const source = endless(16_000);
  const server = await useGrpcServer([chatBinding({ resumeTurn: (_, context) => source.run(context) })]);
  const stream = await stalledReader(server.address);
  stream.close(8);
  expect(await source.finished).toMatchObject({ code: ErrorCode.CANCELLED });
  await expect.poll(() => server.openCalls).toBe(0);
});

test.each([20, 16_000])(
  "grpc server - a stalled reader holds below 1 MiB of %i byte frames and is cut",
  async (frameBytes) => {
    const source = endless(frameBytes);
    const server = await useGrpcServer([chatBinding({ resumeTurn: (_, context) => source.run(context) })], {
      limits: { stallMs: 300, cutGraceMs: 100 },
    });
    const stream = await stalledReader(server.address);
    const reason = (await source.finished) as TurnError;
    expect(reason).toMatchObject({ code: ErrorCode.READER_STALLED });
    expect(findDetail(reason, ReaderStalledSchema)).toBeDefined();
    expect(source.produced() * (frameBytes + 20)).toBeLessThan(1024 * 1024);
    await new Promise((resolve) =>
      stream.closed ? resolve(undefined) : stream.on("close", resolve).resume(),
    );
    await expect.poll(() => server.openCalls).toBe(0);
  },
);

test("grpc server - a stalled reader that reads again in time gets the resumable status behind its data", async () => {
  const server = await useGrpcServer(
    [chatBinding({ resumeTurn: (_, context) => endless(16_000).run(context) })],
    {
      limits: { stallMs: 200, cutGraceMs: 10_000 },
    },
  );
  const stream = await stalledReader(server.address);
  const trailers = new Promise<Record<string, unknown>>((resolve) => stream.on("trailers", resolve));
  await expect.poll(() => server.openCalls).toBe(0); // cut
  stream.resume();
  expect((await trailers)["grpc-status"]).toBe(String(status.RESOURCE_EXHAUSTED));
});

test("grpc server - more calls than allowed are OVERLOADED, and places come back", async () => {
  const gate = deferred();
  const server = await useGrpcServer(
    [
      chatBinding({
        listModels: async () => {
          await gate.promise;
          return create(ListModelsResponseSchema);
        },
      }),
    ],
    { limits: { maxCallsPerPrincipal: 2 } },
  );
  const client = useRawClient(server.address);
  const held = [
    unaryStatus(client, LIST_MODELS_PATH, NOTHING),
    unaryStatus(client, LIST_MODELS_PATH, NOTHING),
  ];
  await expect.poll(() => server.openCalls).toBe(2);
  const refused = fromGrpcError(await unaryStatus(client, LIST_MODELS_PATH, NOTHING));
  expect([refused.code, refused.retryAfterMs]).toEqual([ErrorCode.OVERLOADED, 1000]);
  gate.resolve();
  expect(await Promise.all(held)).toEqual([undefined, undefined]);
  expect(await unaryStatus(client, LIST_MODELS_PATH, NOTHING)).toBeUndefined();
});

test("grpc server - close lets streams finish within the grace, then tells them", async () => {
  const gate = deferred();
  const server = await useGrpcServer([
    chatBinding({
      resumeTurn: async function* (request, { signal }) {
        yield headFrame(1);
        await (request.afterSeq === 1
          ? gate.promise
          : new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason))));
        yield headFrame(2);
      },
    }),
  ]);
  const client = useRawClient(server.address);
  const open = (afterSeq: number): Promise<number> => {
    const bytes = toBinary(
      ResumeTurnRequestSchema,
      create(ResumeTurnRequestSchema, { turnId: "t", afterSeq }),
    );
    const call = client.makeServerStreamRequest(RESUME_PATH, bytesThrough, bytesThrough, bytes);
    call.on("error", () => undefined).resume();
    return new Promise((resolve) => call.on("status", (end) => resolve(end.code)));
  };
  const finishing = open(1);
  const staying = open(0);
  await expect.poll(() => server.openCalls).toBe(2);
  const closed = server.close(500);
  expect(server.health.serving).toBe(false);
  gate.resolve();
  expect(await finishing).toBe(status.OK);
  expect(await staying).toBe(status.UNAVAILABLE);
  await closed;
});

test("grpc server - health is watched under each name and ends with the server", async () => {
  const server = await useGrpcServer([chatBinding({})]);
  const client = createGrpcClient(Health, { addresses: server.address, logger: silentLogger });
  onTestFinished(() => client.close());
  const signal = AbortSignal.timeout(10_000);
  const watch = client.serverStream("watch", { service: "turnwire.chat.v1.ChatService" }, { signal });
  expect((await watch.next()).value.status).toBe(1);
  server.health.set(false);
  expect((await watch.next()).value.status).toBe(2);
  await expect(client.unary("check", { service: "nope" }, { signal })).rejects.toMatchObject({
    code: ErrorCode.NOT_FOUND,
  });
  await server.close(5_000);
  await expect(watch.next()).rejects.toMatchObject({ code: ErrorCode.UNAVAILABLE });
});

function dependenciesFirst(files: readonly FileDescriptorProto[]): FileDescriptorProto[] {
  const sorted: FileDescriptorProto[] = [];
  const visit = (name: string): void => {
    const file = files.find((candidate) => candidate.name === name);
    if (!file) throw new Error(`${name} was not sent`);
    file.dependency.forEach(visit);
    if (!sorted.includes(file)) sorted.push(file);
  };
  files.forEach((file) => visit(file.name));
  return sorted;
}

test.each([
  ["v1", ServerReflection],
  ["v1alpha", ServerReflectionAlpha as unknown as typeof ServerReflection],
] as const)("grpc server - reflection %s is enough to build every type", async (_, service) => {
  const server = await useGrpcServer([chatBinding({})]);
  const client = createGrpcClient(service, { addresses: server.address, logger: silentLogger });
  onTestFinished(() => client.close());
  const signal = AbortSignal.timeout(10_000);
  const ask = async function* () {
    yield { messageRequest: { case: "listServices" as const, value: "" } };
    yield {
      messageRequest: {
        case: "fileContainingSymbol" as const,
        value: "turnwire.chat.v1.ChatService.SendMessage",
      },
    };
    yield { messageRequest: { case: "fileContainingSymbol" as const, value: "turnwire.chat.v1.Nope" } };
  };
  const responses = client.bidiStream("serverReflectionInfo", ask(), { signal });
  const list = (await responses.next()).value.messageResponse;
  expect(list.value.service.map((s: { name: string }) => s.name)).toContain("turnwire.chat.v1.ChatService");
  const files = (await responses.next()).value.messageResponse.value.fileDescriptorProto as Uint8Array[];
  const protos = files.map((bytes): FileDescriptorProto => fromBinary(FileDescriptorProtoSchema, bytes));
  const registry = createFileRegistry(create(FileDescriptorSetSchema, { file: dependenciesFirst(protos) }));
  const described = registry.getService("turnwire.chat.v1.ChatService");
  expect(described?.method.listModels?.idempotency).toBe(1); // options kept
  expect((await responses.next()).value.messageResponse).toMatchObject({
    case: "errorResponse",
    value: { errorCode: 5 },
  });
});

test("grpc server - a taken port is a clear error", async () => {
  const server = await useGrpcServer([]);
  await expect(useGrpcServer([], { port: server.port })).rejects.toThrow(/is the port taken/);
});

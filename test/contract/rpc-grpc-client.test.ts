import { create } from "@bufbuild/protobuf";
import { createServer, connect } from "node:net";
import type { AddressInfo, Socket } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { ChatService, ListModelsResponseSchema } from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../../src/lib/errors.js";
import { silentLogger } from "../../src/lib/log.js";
import type { GrpcClient, GrpcClientOptions } from "../../src/lib/rpc/grpc-client.js";
import { createGrpcClient, targetsOf } from "../../src/lib/rpc/grpc-client.js";
import { deferred } from "../../src/lib/signals.js";
import { batchBytes, bytesFrame, chatBinding, headFrame, useGrpcServer } from "./rpc-fixture.js";

function useClient(
  addresses: string,
  options: Partial<GrpcClientOptions> = {},
): GrpcClient<typeof ChatService> {
  const client = createGrpcClient(ChatService, { addresses, logger: silentLogger, ...options });
  onTestFinished(() => client.close());
  return client;
}

const open = (): AbortSignal => new AbortController().signal;

/** A stream that never ends by itself; `left` resolves with the reason its signal aborts. */
function waitingStream(before: number): { binding: ReturnType<typeof chatBinding>; left: Promise<unknown> } {
  const left = deferred<unknown>();
  const binding = chatBinding({
    resumeTurn: async function* (_, { signal }) {
      signal.addEventListener("abort", () => left.resolve(signal.reason));
      for (let seq = 1; seq <= before; seq++) yield bytesFrame(batchBytes(seq));
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
    },
  });
  return { binding, left: left.promise };
}

test("grpc client - break cancels the RPC", async () => {
  const { binding, left } = waitingStream(3);
  const server = await useGrpcServer([binding]);
  for await (const response of useClient(server.address).serverStream(
    "resumeTurn",
    { turnId: "t" },
    { signal: open() },
  )) {
    expect(response.packets[0]?.seq).toBe(1);
    break;
  }
  expect(await left).toMatchObject({ code: ErrorCode.CANCELLED });
});

test("grpc client - return cancels at once while a next is pending, and that next is done", async () => {
  const { binding, left } = waitingStream(1);
  const server = await useGrpcServer([binding]);
  const stream = useClient(server.address).serverStream("resumeTurn", { turnId: "t" }, { signal: open() });
  await stream.next();
  const pending = stream.next();
  await stream.return?.();
  expect(await pending).toEqual({ done: true, value: undefined });
  expect(await left).toMatchObject({ code: ErrorCode.CANCELLED });
});

test("grpc client - an abort rejects with its reason and delivers nothing more", async () => {
  const { binding, left } = waitingStream(3);
  const server = await useGrpcServer([binding]);
  const controller = new AbortController();
  const stream = useClient(server.address).serverStream(
    "resumeTurn",
    { turnId: "t" },
    { signal: controller.signal },
  );
  await stream.next();
  const reason = new TurnError(ErrorCode.CANCELLED, { message: "stopped" });
  controller.abort(reason);
  await expect(stream.next()).rejects.toBe(reason);
  expect(await stream.next()).toEqual({ done: true, value: undefined });
  await left;
});

test("grpc client - 1,500 cancelled calls leave the others alone, and those that follow", async () => {
  const more = deferred<void>();
  const server = await useGrpcServer([
    chatBinding({
      resumeTurn: async function* ({ turnId }, { signal }) {
        yield bytesFrame(batchBytes(1));
        await Promise.race([
          more.promise,
          new Promise((resolve) => signal.addEventListener("abort", resolve)),
        ]);
        if (turnId === "kept") yield bytesFrame(batchBytes(2));
      },
    }),
  ]);
  const client = useClient(server.address);
  const kept = client.serverStream("resumeTurn", { turnId: "kept" }, { signal: open() });
  await kept.next();
  const cancelSome = async (): Promise<void> => {
    for (let call = 0; call < 300; call++) {
      const leaving = new AbortController();
      const stream = client.serverStream("resumeTurn", { turnId: "t" }, { signal: leaving.signal });
      expect((await stream.next()).done).toBe(false);
      leaving.abort();
    }
  };
  await Promise.all(Array.from({ length: 5 }, cancelSome));
  more.resolve();
  expect((await kept.next()).value).toMatchObject({ packets: [{ seq: 2 }] });
  expect((await kept.next()).done).toBe(true);
});

test("grpc client - what came before a failure is delivered before it", async () => {
  const server = await useGrpcServer([
    chatBinding({
      resumeTurn: async function* () {
        for (let seq = 1; seq <= 40; seq++) yield headFrame(seq);
        throw new TurnError(ErrorCode.OWNER_LOST);
      },
    }),
  ]);
  const stream = useClient(server.address).serverStream("resumeTurn", { turnId: "t" }, { signal: open() });
  const heads: number[] = [];
  const reading = (async () => {
    for await (const response of stream) heads.push(response.headSeq);
  })();
  await expect(reading).rejects.toMatchObject({ code: ErrorCode.OWNER_LOST });
  expect(heads).toEqual(Array.from({ length: 40 }, (_, index) => index + 1));
});

test("grpc client - a reader that pauses holds its peer back", async () => {
  let produced = 0;
  const server = await useGrpcServer([
    chatBinding({
      resumeTurn: async function* () {
        for (;;) {
          produced++;
          yield bytesFrame(batchBytes(1, 60_000));
        }
      },
    }),
  ]);
  const stream = useClient(server.address).serverStream("resumeTurn", { turnId: "t" }, { signal: open() });
  await stream.next();
  // The peer fills the windows and stops: the count stays the same over many turns of the event loop.
  let last = -1;
  await expect
    .poll(
      () => {
        const same = produced === last;
        last = produced;
        return same;
      },
      { interval: 100 },
    )
    .toBe(true);
  expect(produced * 60_000).toBeLessThan(4 * 1024 * 1024);
  await stream.return?.();
});

test("grpc client - calls go round the addresses", async () => {
  const names = ["a", "b"];
  const servers = await Promise.all(
    names.map((name) =>
      useGrpcServer([
        chatBinding({ listModels: async () => create(ListModelsResponseSchema, { nextPageToken: name }) }),
      ]),
    ),
  );
  for (const addresses of [
    servers.map((server) => server.address).join(","),
    servers.map((server) => `localhost:${server.port}`).join(","),
  ]) {
    const client = useClient(addresses);
    const seen = new Set<string>();
    await expect
      .poll(async () => {
        const { nextPageToken } = await client.unary("listModels", {}, { signal: open() });
        return seen.add(nextPageToken).size;
      })
      .toBe(2);
  }
});

test("grpc client - UNAVAILABLE is tried again for unary calls, other errors are not", async () => {
  const calls: string[] = [];
  const server = await useGrpcServer([
    chatBinding({
      listModels: async ({ pageToken }) => {
        calls.push(pageToken);
        if (pageToken === "busy" && calls.length < 3) throw new TurnError(ErrorCode.UNAVAILABLE);
        if (pageToken === "bad")
          throw new TurnError(ErrorCode.INVALID_ARGUMENT, { message: "page_token: unknown" });
        return create(ListModelsResponseSchema);
      },
    }),
  ]);
  const client = useClient(server.address);
  await client.unary("listModels", { pageToken: "busy" }, { signal: open() });
  expect(calls).toEqual(["busy", "busy", "busy"]);
  await expect(client.unary("listModels", { pageToken: "bad" }, { signal: open() })).rejects.toMatchObject({
    code: ErrorCode.INVALID_ARGUMENT,
    message: "page_token: unknown",
  });
  expect(calls).toHaveLength(4);
});

test("grpc client - a peer that is not there is UNAVAILABLE in bounded time and names no address", async () => {
  const server = await useGrpcServer([]);
  await server.close(0);
  const client = useClient(server.address, { connectWaitMs: 200 });
  const error = await client.unary("listModels", {}, { signal: open() }).catch((thrown: TurnError) => thrown);
  expect(error).toMatchObject({ code: ErrorCode.UNAVAILABLE });
  expect((error as TurnError).message).not.toContain("127.0.0.1");
});

test("grpc client - a call waits for a peer that starts a moment later", async () => {
  const reserved = createServer();
  await new Promise<void>((resolve) => reserved.listen(0, "127.0.0.1", resolve));
  const { port } = reserved.address() as AddressInfo;
  await new Promise((resolve) => reserved.close(resolve));
  const client = useClient(`127.0.0.1:${port}`);
  const answer = client.unary("listModels", {}, { signal: open() });
  await useGrpcServer([chatBinding({ listModels: async () => create(ListModelsResponseSchema) })], { port });
  await expect(answer).resolves.toBeDefined();
});

test("grpc client - an aborted unary call ends at once on both sides", async () => {
  const left = deferred<unknown>();
  const started = deferred();
  const server = await useGrpcServer([
    chatBinding({
      listModels: (_, { signal }) => {
        started.resolve();
        signal.addEventListener("abort", () => left.resolve(signal.reason));
        return new Promise(() => undefined);
      },
    }),
  ]);
  const controller = new AbortController();
  const call = useClient(server.address).unary("listModels", {}, { signal: controller.signal });
  await started.promise;
  controller.abort(new Error("enough"));
  await expect(call).rejects.toThrow("enough");
  expect(await left.promise).toMatchObject({ code: ErrorCode.CANCELLED });
});

test("grpc client - ready follows the peer's health", async () => {
  const server = await useGrpcServer([chatBinding({})]);
  const client = useClient(server.address);
  await client.ready(open());
  server.health.set(false);
  await expect(client.ready(open())).rejects.toMatchObject({ code: ErrorCode.UNAVAILABLE });
});

test("grpc client - a stream whose connection breaks is UNAVAILABLE, not an end", async () => {
  const { binding } = waitingStream(1);
  const server = await useGrpcServer([binding]);
  const sockets: Socket[] = [];
  const proxy = createServer((client) => {
    const upstream = connect(server.port, "127.0.0.1");
    sockets.push(client, upstream);
    for (const socket of [client, upstream]) socket.on("error", () => undefined);
    client.pipe(upstream).pipe(client);
  });
  await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void proxy.close());
  const stream = useClient(`127.0.0.1:${(proxy.address() as AddressInfo).port}`).serverStream(
    "resumeTurn",
    { turnId: "t" },
    { signal: open() },
  );
  await stream.next();
  for (const socket of sockets) socket.destroy();
  await expect(stream.next()).rejects.toMatchObject({ code: ErrorCode.UNAVAILABLE });
});

test.each([
  ["127.0.0.1:1,127.0.0.2:2", ["ipv4:127.0.0.1:1,127.0.0.2:2"]],
  ["llm:9091", ["dns:///llm:9091"]],
  ["llm-a:1, 10.0.0.1:2 ,llm-b:3", ["ipv4:10.0.0.1:2", "dns:///llm-a:1", "dns:///llm-b:3"]],
  ["dns:///llm.internal:9091", ["dns:///llm.internal:9091"]],
])("grpc client - the addresses %s", (addresses, targets) => {
  expect(targetsOf(addresses)).toEqual(targets);
});

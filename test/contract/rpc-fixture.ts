/** Servers and raw clients for the RPC tests. The implementations are the tests' own; the transports are the real ones. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import { create, toBinary } from "@bufbuild/protobuf";
import { Client, credentials } from "@grpc/grpc-js";
import type { ChannelCredentials, ServiceError } from "@grpc/grpc-js";
import { onTestFinished } from "vitest";
import { ChatService, ResumeTurnResponseSchema } from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import type { ResumeTurnResponse } from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import { PacketBatchSchema } from "../../gen/turnwire/log/v1/log_pb.js";
import { silentLogger } from "../../src/lib/log.js";
import type { GrpcServer, ServeGrpcOptions } from "../../src/lib/rpc/grpc-server.js";
import { serveGrpc } from "../../src/lib/rpc/grpc-server.js";
import { HealthState } from "../../src/lib/rpc/health.js";
import type {
  Principal,
  ServiceBinding,
  ServiceImpl,
  StreamFrame,
} from "../../src/lib/rpc/service-binding.js";
import { bindService } from "../../src/lib/rpc/service-binding.js";

export const TEST_PRINCIPAL: Principal = { tenantId: "t", userId: "u", admin: false };

/** A ChatService of which the test implements what it needs. */
export function chatBinding(impl: ServiceImpl<typeof ChatService>): ServiceBinding {
  return bindService(ChatService, impl);
}

/** A native gRPC server that is gone when the test ends. */
export async function useGrpcServer(
  services: readonly ServiceBinding[],
  options: Partial<ServeGrpcOptions> = {},
): Promise<GrpcServer & { readonly health: HealthState; readonly address: string }> {
  const health = options.health ?? new HealthState();
  health.set(true);
  const server = await serveGrpc({
    host: "127.0.0.1",
    port: 0,
    services,
    authenticate: () => TEST_PRINCIPAL,
    health,
    logger: silentLogger,
    ...options,
  });
  onTestFinished(() => server.close(0));
  return Object.assign(server, { health, address: `127.0.0.1:${server.port}` });
}

/** An untyped grpc-js client: bytes in, bytes out. */
export function useRawClient(
  address: string,
  options: Record<string, unknown> = {},
  channel: ChannelCredentials = credentials.createInsecure(),
): Client {
  const client = new Client(address, channel, {
    "grpc.max_send_message_length": -1,
    "grpc.use_local_subchannel_pool": 1,
    ...options,
  });
  onTestFinished(() => client.close());
  return client;
}

export const bytesThrough = (bytes: Uint8Array): Buffer => Buffer.from(bytes);

/** The status with which a unary call of raw bytes ends. */
export function unaryStatus(
  client: Client,
  path: string,
  bytes: Uint8Array,
): Promise<ServiceError | undefined> {
  return new Promise((resolve) => {
    client.makeUnaryRequest(path, bytesThrough, bytesThrough, bytes, (error) => resolve(error ?? undefined));
  });
}

/** The encoding of a batch with one packet of about `textBytes`, as the log would hold it. */
export function batchBytes(seq: number, textBytes = 5): Uint8Array {
  const packet: MessageInitShape<typeof PacketBatchSchema> = {
    packets: [{ seq, payload: { case: "agentResponseDelta", value: { content: "x".repeat(textBytes) } } }],
  };
  return toBinary(PacketBatchSchema, create(PacketBatchSchema, packet));
}

export function bytesFrame(bytes: Uint8Array): StreamFrame<ResumeTurnResponse> {
  return { kind: "bytes", bytes };
}

export function headFrame(headSeq: number): StreamFrame<ResumeTurnResponse> {
  return { kind: "message", message: create(ResumeTurnResponseSchema, { headSeq }) };
}

export const RESUME_PATH = `/${ChatService.typeName}/ResumeTurn`;
export const LIST_MODELS_PATH = `/${ChatService.typeName}/ListModels`;

/** A valid ResumeTurnRequest: turn_id "t", from the beginning. */
export const RESUME_REQUEST = new Uint8Array([0x0a, 0x01, 0x74]);

/** An llm peer over real gRPC, for suites of its service. */
import { create } from "@bufbuild/protobuf";
import {
  LlmProxyService,
  Role,
  StreamCompletionRequestSchema,
  type CompletionDelta,
  type StreamCompletionRequest,
} from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { systemClock, type Clock } from "../../src/lib/clock.js";
import { silentLogger, type Logger } from "../../src/lib/log.js";
import { createGrpcClient, type GrpcClient } from "../../src/lib/rpc/grpc-client.js";
import { serveGrpc } from "../../src/lib/rpc/grpc-server.js";
import { HealthState } from "../../src/lib/rpc/health.js";
import type { LlmConfig } from "../../src/llm/config.js";
import { loadLlmConfig } from "../../src/llm/load-config.js";
import { createLlmService, type LlmService } from "../../src/llm/service.js";

export interface LlmPeer {
  readonly port: number;
  readonly service: LlmService;
  /** What its health service says; serving at first. */
  readonly health: HealthState;
  readonly client: GrpcClient<typeof LlmProxyService>;
  close(): Promise<void>;
}

export interface LlmPeerOptions {
  readonly clock?: Clock;
  readonly logger?: Logger;
  /** Default: a free one. */
  readonly port?: number;
}

/** Serves a configuration on a free port. Waits are as long as they can be: nothing is left to chance. */
export async function startLlmPeer(config: LlmConfig, options: LlmPeerOptions = {}): Promise<LlmPeer> {
  const { clock = systemClock, logger = silentLogger } = options;
  const service = createLlmService({ config, clock, logger, random: () => 0 });
  const health = new HealthState();
  health.set(true);
  const server = await serveGrpc({
    host: "127.0.0.1",
    port: options.port ?? 0,
    services: [service],
    authenticate: () => ({ tenantId: "local", userId: "local", admin: true }),
    health,
    logger: silentLogger,
    maxReceiveBytes: 32 * 1024 * 1024,
  });
  const client = createGrpcClient(LlmProxyService, {
    addresses: `127.0.0.1:${server.port}`,
    logger: silentLogger,
  });
  return {
    port: server.port,
    service,
    health,
    client,
    async close() {
      client.close();
      await server.close(0);
      await service.close();
    },
  };
}

/** The configuration in this YAML. */
export function llmConfig(yaml: string, env: Readonly<Record<string, string>> = {}): LlmConfig {
  return loadLlmConfig({ ...env, TURNWIRE_CONFIG: "/etc/turnwire.yaml" }, () => yaml);
}

type Init = Parameters<typeof create<typeof StreamCompletionRequestSchema>>[1] & object;

/** A request of the user "local" for one short question. */
export function completionRequest(modelId: string, rest: object = {}): StreamCompletionRequest {
  const init = {
    caller: { tenantId: "local", userId: "local" },
    input: { modelId, messages: [{ role: Role.USER, parts: [{ part: { case: "text", value: "hello" } }] }] },
    ...rest,
  };
  return create(StreamCompletionRequestSchema, init as Init);
}

/** All deltas of a call. */
export async function collectDeltas(
  peer: LlmPeer,
  request: StreamCompletionRequest,
  signal = new AbortController().signal,
): Promise<CompletionDelta[]> {
  const deltas: CompletionDelta[] = [];
  for await (const response of peer.client.serverStream("streamCompletion", request, { signal }))
    deltas.push(...response.deltas);
  return deltas;
}

/** The kinds of deltas in order, repeated ones once. */
export function kindsOf(deltas: readonly CompletionDelta[]): string[] {
  return deltas.map(({ delta }) => delta.case ?? "").filter((kind, at, all) => kind !== all[at - 1]);
}

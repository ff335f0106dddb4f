/** Both doors of the chat service: the shared port and the native gRPC port, over the same services. */
import { createAuthenticator } from "../edge/auth.js";
import { serveEdge } from "../edge/edge-server.js";
import type { Logger } from "../lib/log.js";
import { serveGrpc } from "../lib/rpc/grpc-server.js";
import { HealthState } from "../lib/rpc/health.js";
import type { Authenticate, ServiceBinding } from "../lib/rpc/service-binding.js";
import { ConfigError, isLoopback, type Config } from "./config.js";
import { readTlsFiles } from "./tls.js";

export interface ServeChatOptions {
  readonly config: Config;
  readonly logger: Logger;
  readonly services: readonly ServiceBinding[];
  /** Rejects while a dependency does not answer. */
  readonly ready: (signal: AbortSignal) => Promise<void>;
}

export interface ChatServers {
  readonly httpPort: number;
  readonly grpcPort: number;
  close(graceMs: number): Promise<void>;
}

/** The dependencies must answer within this time before the service says that it is ready, ms. */
const READY_MS = 10_000;

export async function serveChat(options: ServeChatOptions): Promise<ChatServers> {
  const { config, logger, services } = options;
  await options.ready(AbortSignal.timeout(READY_MS));
  const health = new HealthState();
  const common = {
    host: config.host,
    services,
    authenticate: authenticator(config),
    health,
    logger,
    tls: await readTlsFiles(config),
  };
  const edge = await serveEdge({
    ...common,
    port: config.httpPort,
    corsOrigins: config.corsOrigins,
    ready: options.ready,
  });
  const native = await serveGrpc({ ...common, port: config.grpcPort }).catch(async (error: unknown) => {
    await edge.close(0);
    throw error;
  });
  health.set(true);
  return {
    httpPort: edge.port,
    grpcPort: native.port,
    async close(graceMs) {
      await Promise.all([edge.close(graceMs), native.close(graceMs)]);
    },
  };
}

function authenticator(config: Config): Authenticate {
  try {
    return createAuthenticator({ tokens: config.tokens, loopback: isLoopback(config.host) });
  } catch (error) {
    throw new ConfigError((error as Error).message);
  }
}

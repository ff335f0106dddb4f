import { systemClock } from "../lib/clock.js";
import type { Logger } from "../lib/log.js";
import { serveGrpc } from "../lib/rpc/grpc-server.js";
import { HealthState } from "../lib/rpc/health.js";
import { loadLlmConfig } from "../llm/load-config.js";
import { createLlmService } from "../llm/service.js";
import type { Config } from "./config.js";
import { onPort } from "./start-errors.js";
import { peerAuthenticator } from "./peer-authenticator.js";

export interface RunningPeer {
  readonly port: number;
  close(graceMs: number): Promise<void>;
}

/** Requests carry whole conversations (contract.md 2: below 32 MiB). */
const MAX_REQUEST_BYTES = 32 * 1024 * 1024;

/** Serves LlmProxyService on `port` (0 = a free one). */
export async function startLlm(
  config: Config,
  port: number,
  env: NodeJS.ProcessEnv,
  logger: Logger,
): Promise<RunningPeer> {
  const service = createLlmService({ config: loadLlmConfig(env), clock: systemClock, logger });
  const health = new HealthState();
  const server = await onPort(
    "TURNWIRE_LLM_PORT",
    serveGrpc({
      host: config.host,
      port,
      services: [service],
      authenticate: peerAuthenticator(config),
      health,
      logger,
      maxReceiveBytes: MAX_REQUEST_BYTES,
    }),
  );
  health.set(true);
  return {
    port: server.port,
    async close(graceMs) {
      await server.close(graceMs);
      await service.close();
    },
  };
}

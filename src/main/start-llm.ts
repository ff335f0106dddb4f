import { systemClock } from "../lib/clock.js";
import type { Logger } from "../lib/log.js";
import { serveGrpc } from "../lib/rpc/grpc-server.js";
import { HealthState } from "../lib/rpc/health.js";
import { loadLlmConfig } from "../llm/load-config.js";
import { createLlmService, type LlmService } from "../llm/service.js";
import { watchConfig } from "../llm/watch-config.js";
import type { LlmConfig } from "../llm/config.js";
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
  const load = (): LlmConfig => loadLlmConfig(env);
  const llmConfig = load();
  const service = createLlmService({ config: llmConfig, clock: systemClock, logger });
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
  const stopReloading = reloadOnChange({ load, service, files: llmConfig.files, health, logger });
  return {
    port: server.port,
    async close(graceMs) {
      stopReloading();
      await server.close(graceMs);
      await service.close();
    },
  };
}

/** Under this name health checks can ask whether what stands in the configuration file is in use. */
const CONFIG_HEALTH = "turnwire.llm.config";

interface Reloading {
  readonly load: () => LlmConfig;
  readonly service: LlmService;
  readonly files: readonly string[];
  readonly health: HealthState;
  readonly logger: Logger;
}

/** Reads the configuration again on SIGHUP and when its files change. Returns what stops that. */
function reloadOnChange({ load, service, files, health, logger }: Reloading): () => void {
  if (files.length === 0) return () => undefined;
  health.setPart(CONFIG_HEALTH, true);
  const watch = watchConfig({
    ...{ load, files, logger, clock: systemClock },
    apply: (config) => service.reload(config),
    said: (inUse) => health.setPart(CONFIG_HEALTH, inUse),
  });
  // In a terminal SIGHUP says that the terminal is gone, and ends the process as always.
  const signalled = !process.stdout.isTTY;
  if (signalled) process.on("SIGHUP", watch.reload);
  return () => {
    watch.close();
    process.off("SIGHUP", watch.reload);
  };
}

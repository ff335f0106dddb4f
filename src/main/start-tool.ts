import { systemClock } from "../lib/clock.js";
import type { Logger } from "../lib/log.js";
import { serveGrpc } from "../lib/rpc/grpc-server.js";
import { HealthState } from "../lib/rpc/health.js";
import { createBuiltinTools } from "../tool/builtin/builtin-tools.js";
import type { DocumentIndex } from "../tool/builtin/document-index.js";
import { createToolRegistry } from "../tool/registry.js";
import { createToolService } from "../tool/service.js";
import type { Config } from "./config.js";
import { openDocumentIndex } from "./document-index.js";
import { onPort } from "./start-errors.js";
import { peerAuthenticator } from "./peer-authenticator.js";
import type { RunningPeer } from "./start-llm.js";
import { readToolConfig } from "./tool-config.js";

/**
 * Serves ToolService with the built-in tools on `port` (0 = a free one). `documents`: what `search` looks into; without it
 * that is DATABASE_URL, and without one there is no `search`.
 */
export async function startTool(
  config: Config,
  port: number,
  env: NodeJS.ProcessEnv,
  logger: Logger,
  documents?: DocumentIndex,
): Promise<RunningPeer> {
  const own = documents || !config.databaseUrl ? undefined : openDocumentIndex(config.databaseUrl, logger);
  const registry = createToolRegistry(
    createBuiltinTools({
      clock: systemClock,
      openUrl: readToolConfig(env).openUrl,
      documents: documents ?? own,
    }),
  );
  const health = new HealthState();
  const server = await onPort(
    "TURNWIRE_TOOL_PORT",
    serveGrpc({
      host: config.host,
      port,
      services: [createToolService({ registry, clock: systemClock, logger })],
      authenticate: peerAuthenticator(config),
      health,
      logger,
    }),
  );
  health.set(true);
  return {
    port: server.port,
    async close(graceMs) {
      await server.close(graceMs);
      await registry.close();
      await own?.close();
    },
  };
}

/** Both doors of the chat service: the shared port and the native gRPC port, over the same services. */
import { fileURLToPath } from "node:url";
import { createAuthenticator } from "../edge/auth.js";
import { serveEdge } from "../edge/edge-server.js";
import { createFilesHandler, type FilesHandlerOptions } from "../edge/files-handler.js";
import { createOriginPolicy } from "../edge/origin-policy.js";
import { loadPage } from "../edge/page.js";
import { systemClock } from "../lib/clock.js";
import type { Logger } from "../lib/log.js";
import { serveGrpc } from "../lib/rpc/grpc-server.js";
import { HealthState } from "../lib/rpc/health.js";
import type { Authenticate, ServiceBinding } from "../lib/rpc/service-binding.js";
import { ConfigError, isLoopback, type Config } from "./config.js";
import { Readiness } from "./readiness.js";
import { onPort } from "./start-errors.js";
import { readTlsFiles } from "./tls.js";

export interface ServeChatOptions {
  readonly config: Config;
  readonly logger: Logger;
  readonly services: readonly ServiceBinding[];
  readonly files: Pick<FilesHandlerOptions, "uploads" | "reads">;
  /** What the page tells people about the stores. */
  readonly labels: { readonly log: string; readonly store: string };
  /** Rejects while a dependency does not answer. */
  readonly ready: (signal: AbortSignal) => Promise<void>;
  /** Ends the wait for the dependencies. */
  readonly signal: AbortSignal;
}

export interface ChatServers {
  readonly httpPort: number;
  readonly grpcPort: number;
  close(graceMs: number): Promise<void>;
}

/** The built page stands beside the built server: dist/page. */
const PAGE_FOLDER = fileURLToPath(new URL("../../page", import.meta.url));

/** Streams whose turn has just ended may still be told so after the grace of a shutdown, ms. */
const LAST_WORDS_MS = 1_000;

/** Listens at once, as not serving; resolves when the dependencies answer. */
export async function serveChat(options: ServeChatOptions): Promise<ChatServers> {
  const { config, logger, services, ready } = options;
  checkOrigins(config);
  const health = new HealthState();
  const common = {
    host: config.host,
    services,
    authenticate: authenticator(config),
    health,
    logger,
    tls: await readTlsFiles(config),
  };
  const { corsOrigins } = config;
  const files = createFilesHandler({ ...common, ...options.files });
  const auth = config.tokens ? "token" : "none";
  const page = await loadPage({ folder: PAGE_FOLDER, config: { ...options.labels, auth } });
  const edge = await onPort(
    "TURNWIRE_HTTP_PORT",
    serveEdge({ ...common, port: config.httpPort, corsOrigins, ready, files, fallback: page }),
  );
  const native = await onPort("TURNWIRE_GRPC_PORT", serveGrpc({ ...common, port: config.grpcPort })).catch(
    async (error: unknown) => {
      await edge.close(0);
      throw error;
    },
  );
  const readiness = new Readiness({ health, ready, clock: systemClock, logger });
  const close = async (graceMs: number): Promise<void> => {
    readiness.close();
    await Promise.all([edge.close(graceMs + LAST_WORDS_MS), native.close(graceMs + LAST_WORDS_MS)]);
  };
  await readiness.untilReady(options.signal).catch(async (error: unknown) => {
    await close(0);
    throw error;
  });
  return { httpPort: edge.port, grpcPort: native.port, close };
}

function checkOrigins({ corsOrigins }: Config): void {
  try {
    createOriginPolicy({ corsOrigins, loopback: true });
  } catch (error) {
    throw new ConfigError((error as Error).message);
  }
}

function authenticator(config: Config): Authenticate {
  try {
    return createAuthenticator({ tokens: config.tokens, loopback: isLoopback(config.host) });
  } catch (error) {
    throw new ConfigError((error as Error).message);
  }
}

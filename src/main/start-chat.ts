/**
 * The chat service: its stores (embedded where none is configured), the orchestrator over them, and both listeners. The
 * order matters at the end too: no new calls, then the turns, then what they use.
 */
import { createChatService } from "../chat/service.js";
import { ActiveTurns } from "../chat/active-turns.js";
import { Ownership } from "../chat/ownership.js";
import { defaultChatLimits, type ChatDeps } from "../chat/ports.js";
import { listenForCommands } from "../chat/stop-turn.js";
import { systemClock } from "../lib/clock.js";
import { newId } from "../lib/ids.js";
import { LoopTick } from "../lib/loop-tick.js";
import type { Logger } from "../lib/log.js";
import type { ReplayLog } from "../replay/replay-log.js";
import { connectNatsReplayLog } from "../replay/nats-replay-log.js";
import { connectPostgresReplayLog } from "../replay/postgres-replay-log.js";
import { connectPgStore } from "../store/pg-store.js";
import type { Store } from "../store/store.js";
import type { DocumentIndex } from "../tool/builtin/document-index.js";
import { ConfigError, type Config } from "./config.js";
import { openDataDir } from "./embedded/data-dir.js";
import { findNatsServer, startNatsServer, type NatsServerBinary } from "./embedded/nats-server.js";
import { startPostgres } from "./embedded/postgres.js";
import { bothOpened, Closers } from "./closers.js";
import { connectModels, connectTools } from "./peers.js";
import { serveChat } from "./serve-chat.js";
import { startDocuments } from "./start-documents.js";
import { atUrl } from "./start-errors.js";
import { readToolConfig } from "./tool-config.js";

export interface RunningChat {
  readonly httpPort: number;
  readonly grpcPort: number;
  /** Which log is in use, for people: "NATS JetStream (NATS_URL)", "Postgres (embedded)". */
  readonly log: string;
  readonly store: string;
  /** What there is of documents, for a `search` tool in this process. */
  readonly documentIndex: DocumentIndex;
  close(): Promise<void>;
}

export interface StartChatOptions {
  readonly config: Config;
  readonly logger: Logger;
  readonly env: NodeJS.ProcessEnv;
  readonly llmAddresses: string;
  readonly toolAddresses: string;
  /** Aborts when the process is told to stop before it is ready. Default: never. */
  readonly signal?: AbortSignal;
  /** Puts something between the orchestrator and its stores; for tests that fail at a chosen point. */
  readonly wrapLog?: (log: ReplayLog) => ReplayLog;
  readonly wrapStore?: (store: Store) => Store;
}

export async function startChat(options: StartChatOptions): Promise<RunningChat> {
  const { config, logger } = options;
  const closers = new Closers(logger);
  try {
    const dataDir = await openDataDir(config.dataDir);
    closers.add("data directory", () => dataDir.release());
    const [postgres, nats] = await bothOpened(
      openPostgres(options, dataDir.path, closers),
      openNats(options, dataDir.path, closers),
    );
    const [store, log] = await bothOpened(
      openStore(options, postgres.url, closers),
      openLog(options, postgres.url, nats, closers),
    );
    const peer = { token: config.peerToken, clock: systemClock, logger };
    const models = connectModels({ ...peer, addresses: options.llmAddresses });
    closers.add("llm client", () => models.close());
    const tools = connectTools({ ...peer, addresses: options.toolAddresses });
    closers.add("tool client", () => tools.close());
    const deps: ChatDeps = {
      log,
      store,
      models: models.port,
      tools: tools.port,
      clock: systemClock,
      tick: new LoopTick(),
      logger,
      limits: {
        ...defaultChatLimits,
        maxCycles: config.maxCycles,
        turnDeadlineMs: config.turnDeadlineMs,
        heartbeatMs: config.heartbeatMs,
      },
      incarnation: newId(),
      newId,
    };
    const turns = new ActiveTurns(deps);
    const commands = listenForCommands(deps, turns);
    closers.add("commands", () => commands.close());
    const ownership = new Ownership(deps, turns, commands, dataDir.id);
    await ownership.start();
    closers.add("ownership", () => ownership.close());
    const labels = {
      log: nats?.label ?? `Postgres (${postgres.label})`,
      store: `Postgres (${postgres.label})`,
    };
    const documents = startDocuments({
      databaseUrl: postgres.url,
      store,
      logger,
      incarnation: deps.incarnation,
      allowHosts: readToolConfig(options.env).openUrl.allowHosts,
    });
    closers.add("documents", () => documents.close());
    const servers = await serveChat({
      labels,
      config,
      logger,
      services: [createChatService(deps, turns), ...documents.services],
      files: { uploads: documents.uploads, reads: store },
      ready: async (signal) => {
        await Promise.all([store.ping(signal), log.ping(signal), models.ready(signal), tools.ready(signal)]);
      },
      signal: options.signal ?? new AbortController().signal,
    });
    closers.add("turns and listeners", async () => {
      await Promise.all([turns.drain(config.drainMs), servers.close(config.drainMs)]);
    });
    return {
      httpPort: servers.httpPort,
      grpcPort: servers.grpcPort,
      log: labels.log,
      store: postgres.label,
      documentIndex: documents.index,
      close: () => closers.closeAll(),
    };
  } catch (error) {
    await closers.closeAll();
    throw error;
  }
}

interface Located {
  readonly url: string;
  readonly label: string;
}

async function openPostgres(
  { config, logger }: StartChatOptions,
  dataDir: string,
  closers: Closers,
): Promise<Located> {
  if (config.databaseUrl) return { url: config.databaseUrl, label: "DATABASE_URL" };
  const postgres = await startPostgres({ dataDir, logger });
  closers.add("Postgres", () => postgres.stop());
  return { url: postgres.url, label: "embedded" };
}

/** JetStream whenever there is one to be had: NATS_URL, or a nats-server on PATH. NATS_URL=none says no. */
async function openNats(
  { config, logger, env }: StartChatOptions,
  dataDir: string,
  closers: Closers,
): Promise<Located | undefined> {
  if (config.natsUrl === "none") return undefined;
  if (config.natsUrl) return { url: config.natsUrl, label: "NATS JetStream (NATS_URL)" };
  const binary = findServer(env);
  if (!binary) return undefined;
  const nats = await startNatsServer({ binary, dataDir: `${dataDir}/nats`, logger });
  closers.add("nats-server", () => nats.stop());
  return { url: nats.url, label: `NATS JetStream (private nats-server ${binary.version})` };
}

function findServer(env: NodeJS.ProcessEnv): NatsServerBinary | undefined {
  try {
    return findNatsServer({ env, cacheDir: "" });
  } catch (error) {
    throw new ConfigError((error as Error).message);
  }
}

async function openStore(options: StartChatOptions, url: string, closers: Closers): Promise<Store> {
  const opening = connectPgStore({ connectionString: url, logger: options.logger });
  const store = await atUrl(databaseSetting(options.config), url, opening);
  closers.add("store", () => store.close());
  return options.wrapStore?.(store) ?? store;
}

async function openLog(
  options: StartChatOptions,
  databaseUrl: string,
  nats: Located | undefined,
  closers: Closers,
): Promise<ReplayLog> {
  const { config, logger } = options;
  const log = nats
    ? await atUrl(natsSetting(config), nats.url, connectNatsReplayLog({ url: nats.url, logger }))
    : await atUrl(
        databaseSetting(config),
        databaseUrl,
        connectPostgresReplayLog({ connectionString: databaseUrl, logger }),
      );
  closers.add("log", () => log.close());
  return options.wrapLog?.(log) ?? log;
}

function databaseSetting(config: Config): string {
  return config.databaseUrl ? "DATABASE_URL" : "the embedded Postgres";
}

function natsSetting(config: Config): string {
  return config.natsUrl ? "NATS_URL" : "the private nats-server";
}

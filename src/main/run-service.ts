/** What every service's process does the same: read the environment, start, say that it is ready, stop on a signal. */
import { createLogger, type Logger } from "../lib/log.js";
import { TurnError } from "../lib/errors.js";
import { ConfigError, readConfig, type Config } from "./config.js";

/** A started service. */
export interface Running {
  /** Lines for people: where it listens, what it uses. */
  readonly banner: readonly string[];
  /** The same for programs, one log line with `msg: "ready"`. */
  readonly facts: Readonly<Record<string, string | number>>;
  /** Drains, closes what it opened, in order. */
  close(): Promise<void>;
}

/** Longest time a shutdown may take beyond its drain, ms. */
const CLOSE_MS = 10_000;

export async function runService(
  name: string,
  start: (config: Config, logger: Logger) => Promise<Running>,
): Promise<void> {
  let config: Config;
  try {
    config = readConfig(process.env, process.getuid?.() === 0);
  } catch (error) {
    fail(error);
  }
  const logger = createLogger({ service: name, level: config.logLevel });
  const startMs = performance.now();
  try {
    const running = await start(config, logger);
    logger.info({ ...running.facts, startMs: Math.round(performance.now() - startMs) }, "ready");
    for (const line of running.banner) console.log(line);
    stopOnSignal(running, config, logger);
  } catch (error) {
    logger.debug({ err: error }, "start failed");
    fail(error);
  }
}

/** One line that says what to do; the whole error only for faults of our own. */
function fail(error: unknown): never {
  if (error instanceof ConfigError || error instanceof TurnError) console.error(`turnwire: ${error.message}`);
  else console.error("turnwire: could not start:", error);
  process.exit(1);
}

function stopOnSignal(running: Running, config: Config, logger: Logger): void {
  let stopping = false;
  const stop = (signal: string): void => {
    if (stopping) {
      logger.warn({ signal }, "stopping at once");
      process.exit(1);
    }
    stopping = true;
    logger.info({ signal }, "stopping: open turns and streams may finish");
    const limit = setTimeout(() => process.exit(1), config.drainMs + CLOSE_MS);
    limit.unref();
    running.close().then(
      () => process.exit(0),
      (error: unknown) => {
        logger.error({ err: error }, "the shutdown failed");
        process.exit(1);
      },
    );
  };
  process.on("SIGTERM", () => stop("SIGTERM"));
  process.on("SIGINT", () => stop("SIGINT"));
}

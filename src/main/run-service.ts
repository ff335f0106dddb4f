/** What every service's process does the same: read the environment, start, say that it is ready, stop on a signal. */
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { createLogger, type Logger } from "../lib/log.js";
import { TurnError } from "../lib/errors.js";
import { aborted } from "../lib/signals.js";
import { readConfigFile } from "./config-file.js";
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

/** @param start its signal aborts when the process is told to stop before it has started. */
export async function runService(
  name: string,
  start: (config: Config, logger: Logger, signal: AbortSignal) => Promise<Running>,
): Promise<void> {
  let config: Config;
  try {
    config = readConfig(process.env, process.getuid?.() === 0);
    if (process.env["TURNWIRE_CONFIG"]) readConfigFile(process.env["TURNWIRE_CONFIG"]);
  } catch (error) {
    fail(error);
  }
  const logger = createLogger({ service: name, level: config.logLevel });
  const startMs = performance.now();
  const told = new AbortController();
  onStopSignal(told, config, logger);
  try {
    const running = await start(config, logger, told.signal);
    logger.info({ ...running.facts, startMs: Math.round(performance.now() - startMs) }, "ready");
    for (const line of running.banner) console.log(line);
    void aborted(told.signal).then(() => close(running, logger));
  } catch (error) {
    if (told.signal.aborted) process.exit(0);
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

/** The first signal asks, the second one insists. */
function onStopSignal(told: AbortController, config: Config, logger: Logger): void {
  const stop = (signal: string): void => {
    if (told.signal.aborted) {
      logger.warn({ signal }, "stopping at once");
      process.exit(1);
    }
    logger.info({ signal }, "stopping: open turns and streams may finish");
    const limit = setTimeout(() => process.exit(1), config.drainMs + CLOSE_MS);
    limit.unref();
    told.abort(new TurnError(ErrorCode.UNAVAILABLE, { message: "the process was told to stop" }));
  };
  process.on("SIGTERM", () => stop("SIGTERM"));
  process.on("SIGINT", () => stop("SIGINT"));
}

function close(running: Running, logger: Logger): void {
  running.close().then(
    () => process.exit(0),
    (error: unknown) => {
      logger.error({ err: error }, "the shutdown failed");
      process.exit(1);
    },
  );
}

/**
 * Reads the configuration again when it changes. Owns what was seen of its files last.
 * W1 a configuration that cannot be used changes nothing: the one before stays, and it is said. W2 a change is seen however the
 * file was replaced, keys in files of their own included. W3 each state of the files is read once, `reload` apart.
 */
import { statSync } from "node:fs";
import type { Clock } from "../lib/clock.js";
import { TurnError } from "../lib/errors.js";
import type { Logger } from "../lib/log.js";
import type { LlmConfig } from "./config.js";

export interface WatchConfigOptions {
  readonly load: () => LlmConfig;
  /** Takes a configuration into use. */
  readonly apply: (config: LlmConfig) => void;
  /** Told after each reading whether what stands in the files is in use. */
  readonly said: (inUse: boolean) => void;
  /** The files of the configuration in use. */
  readonly files: readonly string[];
  readonly clock: Clock;
  readonly logger: Logger;
  /** Between two looks. Default 1,000. */
  readonly intervalMs?: number;
}

export interface ConfigWatch {
  /** Reads now, whether something changed or not. */
  reload(): void;
  close(): void;
}

export function watchConfig(options: WatchConfigOptions): ConfigWatch {
  const { clock, logger, intervalMs = 1_000 } = options;
  const closed = new AbortController();
  let { files } = options;
  let seen = stampOf(files);

  function reload(): void {
    seen = stampOf(files);
    try {
      const config = options.load();
      options.apply(config);
      files = config.files;
      seen = stampOf(files);
      logger.info(
        { providers: config.providers.length, models: config.models.length },
        "configuration reloaded",
      );
      options.said(true);
    } catch (error) {
      const { message, details } = TurnError.from(error);
      logger.error(
        { ...details, failure: message },
        "the new configuration is not used: the one before stays",
      );
      options.said(false);
    }
  }

  async function watch(): Promise<void> {
    for (;;) {
      await clock.sleep(intervalMs, closed.signal);
      if (stampOf(files) !== seen) reload();
    }
  }

  watch().catch(() => undefined); // closed
  return { reload, close: () => closed.abort() };
}

/** Changes whenever one of the files does. */
function stampOf(files: readonly string[]): string {
  return files
    .map((file) => {
      const stats = statSync(file, { bigint: true, throwIfNoEntry: false });
      return stats ? `${stats.ino}:${stats.size}:${stats.mtimeNs}:${stats.ctimeNs}` : "-";
    })
    .join("\n");
}

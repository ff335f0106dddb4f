/**
 * Reads the configuration again when it changes. Owns what was seen of its files last.
 * W1 a configuration that cannot be used changes nothing: the one before stays, and it is said. W2 a change is seen however the
 * file was replaced, keys in files of their own included, and however it got out of reach and back. W3 each state of the files is read once, `reload` apart.
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

  watch().catch((error: unknown) => {
    if (closed.signal.aborted) return;
    logger.error({ err: error }, "the configuration is watched no more: SIGHUP still reads it again");
    options.said(false);
  });
  return { reload, close: () => closed.abort() };
}

/** Changes whenever one of the files does. */
function stampOf(files: readonly string[]): string {
  return files
    .map((file) => {
      try {
        const stats = statSync(file, { bigint: true });
        return `${stats.ino}:${stats.size}:${stats.mtimeNs}:${stats.ctimeNs}`;
      } catch (error) {
        return codeOf(error); // gone or out of reach: a state like any other
      }
    })
    .join("\n");
}

function codeOf(error: unknown): string {
  const code = (error as { readonly code?: unknown } | null)?.code;
  return typeof code === "string" ? code : "unknown";
}

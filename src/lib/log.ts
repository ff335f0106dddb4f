import { pino, type Logger } from "pino";

export type { Logger };

/** Keys whose values never reach a log line, whatever object carries them. */
const SECRET_KEYS = ["authorization", "apiKey", "token", "password", "secret", "cookie", "databaseUrl"];

/**
 * The process's logger: JSON lines on standard error. `TURNWIRE_LOG` sets the level (default info); field values longer
 * than 2 KiB are cut. Pass it in, bind fields with `child`; the pure core does not log.
 */
export function createLogger(options: { readonly level?: string; readonly service: string }): Logger {
  return pino(
    {
      level: options.level ?? "info",
      base: { service: options.service, pid: process.pid },
      redact: { paths: SECRET_KEYS.flatMap((key) => [key, `*.${key}`]), censor: "[redacted]" },
    },
    pino.destination({ fd: 2, sync: true }),
  );
}

/** A logger that says nothing: for tests and libraries. */
export const silentLogger: Logger = pino({ level: "silent" });

import { readFile } from "node:fs/promises";
import { ConfigError, type Config } from "./config.js";

/** The certificate and key as PEM, or undefined when TLS is off. */
export async function readTlsFiles(
  config: Config,
): Promise<{ readonly cert: Buffer; readonly key: Buffer } | undefined> {
  if (!config.tls) return undefined;
  const read = (name: string, file: string): Promise<Buffer> =>
    readFile(file).catch((error: NodeJS.ErrnoException) => {
      throw new ConfigError(`${name}: the file cannot be read (${error.code ?? "unknown error"})`);
    });
  return {
    cert: await read("TURNWIRE_TLS_CERT", config.tls.certFile),
    key: await read("TURNWIRE_TLS_KEY", config.tls.keyFile),
  };
}

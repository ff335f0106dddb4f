import { readFile } from "node:fs/promises";
import { createSecureContext } from "node:tls";
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
  const cert = await read("TURNWIRE_TLS_CERT", config.tls.certFile);
  const key = await read("TURNWIRE_TLS_KEY", config.tls.keyFile);
  try {
    createSecureContext({ cert, key });
  } catch {
    // What OpenSSL says of a key is nobody's business.
    throw new ConfigError(
      "TURNWIRE_TLS_CERT and TURNWIRE_TLS_KEY must be a certificate and its key, both PEM without a passphrase",
    );
  }
  return { cert, key };
}

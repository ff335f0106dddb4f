/** The file of TURNWIRE_CONFIG as a whole; its parts are read by the services that they are for. */
import { readFileSync } from "node:fs";
import type { Document } from "yaml";
import { parseConfigDocument } from "../lib/config-document.js";
import { ConfigError } from "./config.js";

/** The parsed file. Throws a ConfigError when it cannot be read, is no YAML, or has a part that nobody reads. */
export function readConfigFile(file: string): Document {
  // Not the words themselves: a key may stand where it does not belong.
  const fail = (line: number, what: string): ConfigError =>
    new ConfigError(`${file}:${line}: ${what.replace(/"[^"]*"?/g, '"..."')}`);
  return parseConfigDocument(readText(file), fail).document;
}

function readText(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    throw new ConfigError(
      `TURNWIRE_CONFIG: ${file} cannot be read (${(error as NodeJS.ErrnoException).code ?? "unknown error"})`,
    );
  }
}

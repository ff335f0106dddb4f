/** The file of TURNWIRE_CONFIG as a whole; its parts are read by the services that they are for. */
import { readFileSync } from "node:fs";
import { isMap, isScalar, LineCounter, parseDocument, type Document } from "yaml";
import { ConfigError } from "./config.js";

const PARTS = ["providers", "models", "routes", "tags", "prices", "tools", "limits"];

/** The parsed file. Throws a ConfigError when it cannot be read, is no YAML, or has a part that nobody reads. */
export function readConfigFile(file: string): Document {
  const lines = new LineCounter();
  const document = parseDocument(readText(file), { lineCounter: lines, prettyErrors: false });
  const lineOf = (offset: number): number => lines.linePos(offset).line;
  const broken = document.errors[0];
  if (broken) throw new ConfigError(`${file}:${lineOf(broken.pos[0])}: ${broken.message.split("\n", 1)[0]}`);
  const { contents } = document;
  if (contents === null) return document; // an empty file says nothing
  if (!isMap(contents)) throw new ConfigError(`${file}:1: must be a mapping of ${PARTS.join(", ")}`);
  for (const { key } of contents.items) {
    const name = isScalar(key) ? String(key.value) : "";
    if (PARTS.includes(name)) continue;
    const line = lineOf((isScalar(key) && key.range?.[0]) || 0);
    throw new ConfigError(`${file}:${line}: ${name} is not known here (known: ${PARTS.join(", ")})`);
  }
  return document;
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

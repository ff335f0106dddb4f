/** A YAML file read member by member, so that every mistake can say its file, line and key. */
import path from "node:path";
import { isAlias, isMap, isScalar, isSeq, type Document, type LineCounter, type Node } from "yaml";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { parseConfigDocument } from "../lib/config-document.js";
import { TurnError } from "../lib/errors.js";
import { withoutKeys } from "./http/mask-secrets.js";

const MAX_FILE_CHARS = 1024 * 1024;

/** What a file's nodes share. */
interface Source {
  readonly path: string;
  readonly document: Document;
  readonly lines: LineCounter;
}

/** Parses the file. Throws when it cannot be read, is no YAML or no mapping, or has a part that nobody reads. */
export function parseConfigFile(path: string, readFile: (path: string) => string): ConfigNode {
  const text = readText(path, readFile);
  const fail = (line: number, what: string): TurnError => configError(path, line, "", what);
  const { document, lines } = parseConfigDocument(text, fail);
  const root = new ConfigNode({ path, document, lines }, document.contents as Node | null, "", 1);
  if (!root.isMap()) throw root.error("must be a mapping");
  return root;
}

function readText(path: string, readFile: (path: string) => string): string {
  let text: string;
  try {
    text = readFile(path);
  } catch (cause) {
    throw new TurnError(ErrorCode.INVALID_ARGUMENT, {
      message: `TURNWIRE_CONFIG names ${path}, which cannot be read`,
      details: { file: path, key: "TURNWIRE_CONFIG" },
      cause,
    });
  }
  if (text.length > MAX_FILE_CHARS) throw configError(path, 1, "", "is larger than 1 MiB");
  return text;
}

/** One value of the file, with the place where it stands. The readers throw when it is of another kind. */
export class ConfigNode {
  readonly #source: Source;
  readonly #node: Node | null | undefined;
  readonly #key: string;
  readonly #line: number;

  constructor(source: Source, node: Node | null | undefined, key: string, parentLine: number) {
    this.#source = source;
    this.#node = isAlias(node) ? node.resolve(source.document) : node;
    this.#key = key;
    this.#line = node?.range ? source.lines.linePos(node.range[0]).line : parentLine;
  }

  isMap(): boolean {
    return isMap(this.#node);
  }

  isText(): boolean {
    return isScalar(this.#node) && typeof this.#node.value === "string";
  }

  isList(): boolean {
    return isSeq(this.#node);
  }

  /** A member that must be there. */
  get(name: string): ConfigNode {
    const member = this.optional(name);
    if (!member) throw this.error(`lacks ${name}`);
    return member;
  }

  /** A member; undefined when it is missing or empty. */
  optional(name: string): ConfigNode | undefined {
    if (!isMap(this.#node)) throw this.error("must be a mapping");
    const value = this.#node.get(name, true) as Node | undefined;
    if (value === undefined || (isScalar(value) && value.value === null)) return undefined;
    return new ConfigNode(this.#source, value, this.#path(name), this.#line);
  }

  /** Refuses members that nobody knows: a misspelt key must not be a default. */
  onlyKeys(names: readonly string[]): void {
    if (!isMap(this.#node)) throw this.error("must be a mapping");
    for (const { key } of this.#node.items) {
      const name = isScalar(key) ? String(key.value) : String(key);
      if (!names.includes(name)) {
        const place = new ConfigNode(this.#source, key as Node, this.#path(name), this.#line);
        throw place.error(`is not known here (known: ${names.join(", ")})`);
      }
    }
  }

  list(): ConfigNode[] {
    if (!isSeq(this.#node)) throw this.error("must be a list");
    return this.#node.items.map(
      (item, at) => new ConfigNode(this.#source, item as Node, `${this.#key}[${at}]`, this.#line),
    );
  }

  /** A text that is not empty. */
  text(): string {
    const text = this.anyText();
    if (text === "") throw this.error("must not be empty");
    return text;
  }

  anyText(): string {
    if (!isScalar(this.#node) || typeof this.#node.value !== "string") throw this.error("must be a text");
    return this.#node.value;
  }

  integer(min: number, max: number): number {
    const value = isScalar(this.#node) ? this.#node.value : undefined;
    if (typeof value !== "number" || !Number.isInteger(value) || value < min || value > max) {
      throw this.error(`must be a whole number from ${min} to ${max}`);
    }
    return value;
  }

  /** A number, whole or not. */
  decimal(min: number, max: number): number {
    const value = isScalar(this.#node) ? this.#node.value : undefined;
    if (typeof value !== "number" || !(value >= min && value <= max))
      throw this.error(`must be a number from ${min} to ${max}`);
    return value;
  }

  flag(): boolean {
    const value = isScalar(this.#node) ? this.#node.value : undefined;
    if (typeof value !== "boolean") throw this.error("must be true or false");
    return value;
  }

  oneOf<T extends string>(names: readonly T[]): T {
    const text = this.anyText();
    const found = names.find((name) => name === text);
    if (found === undefined) throw this.error(`must be one of ${names.join(", ")}`);
    return found;
  }

  /** One text, or a list of them. */
  texts(): string[] {
    return isSeq(this.#node) ? this.list().map((item) => item.text()) : [this.text()];
  }

  /** A mapping of anything, as plain values. */
  plain(): Readonly<Record<string, unknown>> {
    if (!isMap(this.#node)) throw this.error("must be a mapping");
    return this.#node.toJS(this.#source.document, { maxAliasCount: 100 }) as Record<string, unknown>;
  }

  /** The path that a text of the file means: relative ones are relative to the file. */
  pathOf(text: string): string {
    return path.resolve(path.dirname(this.#source.path), text);
  }

  /** A mapping of texts. */
  textMap(): Readonly<Record<string, string>> {
    if (!isMap(this.#node)) throw this.error("must be a mapping");
    const names = this.#node.items.map(({ key }) => (isScalar(key) ? String(key.value) : String(key)));
    return Object.fromEntries(names.map((name) => [name, this.get(name).text()]));
  }

  /** The error for this value. */
  error(what: string): TurnError {
    return configError(this.#source.path, this.#line, this.#key, what);
  }

  #path(name: string): string {
    return this.#key === "" ? name : `${this.#key}.${name}`;
  }
}

function configError(path: string, line: number, memberName: string, said: string): TurnError {
  const [key, what] = [withoutKeys(memberName), withoutKeys(said)];
  return new TurnError(ErrorCode.INVALID_ARGUMENT, {
    message: key === "" ? `${path}:${line}: ${what}` : `${path}:${line}: ${key} ${what}`,
    details: { file: path, line: String(line), key },
  });
}

/** The configuration file, member by member. It is shared with other services: members of the root that are not ours are theirs. */
import { TurnError } from "../lib/errors.js";
import { isSendable, trimSlash, urlProblem, type Environment } from "./config-environment.js";
import type { ConfigNode } from "./config-file.js";
import { checkFallbacks, Names, readModel, readPrices, readRoutes } from "./config-read-models.js";
import {
  DEFAULT_DEMO_DELAY_MS,
  DEFAULT_LLM_LIMITS,
  DEFAULT_PROVIDER_LIMITS,
  type HttpProviderConfig,
  type LlmConfig,
  type LlmLimits,
  type ModelConfig,
  type ProviderConfig,
} from "./config.js";
import { awsKeyOf } from "./providers/bedrock-converse/sign.js";
import { createDialect, DIALECT_NAMES } from "./providers/dialects.js";

export type ReadFile = (path: string) => string;

export interface FileConfig extends LlmConfig {
  /** The variables that hold keys. */
  readonly keyNames: readonly string[];
}

/** Where the file's keys come from. */
interface Sources {
  readonly env: Environment;
  readonly readFile: ReadFile;
  readonly path: string;
}

/** What was used of the sources. */
interface Used extends Sources {
  readonly keyNames: string[];
  readonly files: string[];
}

/** Reads the whole file. Throws INVALID_ARGUMENT for the first mistake. */
export function readConfigRoot(root: ConfigNode, sources: Sources): FileConfig {
  const used: Used = { ...sources, keyNames: [], files: [sources.path] };
  const providers: ProviderConfig[] = [];
  const models: ModelConfig[] = [];
  const modelNodes: ConfigNode[] = [];
  const names = new Names();
  const tags = root.optional("tags")?.texts();
  const take = (node: ConfigNode, provider: ProviderConfig): void => {
    models.push(readModel(node, provider, names, tags));
    modelNodes.push(node);
  };
  for (const node of root.optional("providers")?.list() ?? []) {
    const provider = readProvider(node, used);
    if (providers.some(({ name }) => name === provider.name))
      throw node.get("name").error("names a provider twice");
    providers.push(provider);
    for (const model of node.optional("models")?.list() ?? []) take(model, provider);
  }
  for (const node of root.optional("models")?.list() ?? []) {
    const name = node.get("provider");
    const provider = providers.find((each) => each.name === name.text());
    if (!provider) throw name.error("names no provider of this file");
    take(node, provider);
  }
  const routes = readRoutes(root, names, models, providers);
  checkFallbacks(modelNodes, names, models, providers);
  const prices = readPrices(root);
  const limits = readLimits(root);
  return { providers, models, routes, prices, limits, files: used.files, keyNames: used.keyNames };
}

const APIS = [...DIALECT_NAMES, "pipe", "demo"];
const COMMON_KEYS = ["name", "api", "models", "limits"];
const HTTP_KEYS = [
  ...[...COMMON_KEYS, "baseUrl", "apiKeyEnv", "apiKeyFile", "headers", "headersEnv", "headersFile", "quirks"],
];
const PIPE_KEYS = [...COMMON_KEYS, "address", "apiKeyEnv", "apiKeyFile", "prefix"];

function readProvider(node: ConfigNode, used: Used): ProviderConfig {
  const name = node.get("name").text();
  const api = node.get("api").oneOf(APIS);
  switch (api) {
    case "demo":
      node.onlyKeys(["name", "api", "deltaDelayMs"]);
      return {
        ...{ kind: "demo", api, name },
        deltaDelayMs: node.optional("deltaDelayMs")?.integer(0, 60_000) ?? DEFAULT_DEMO_DELAY_MS,
      };
    case "pipe": {
      node.onlyKeys(PIPE_KEYS);
      const keys = readKeys(node, used);
      if (keys.length > 1) throw node.error("takes one key: a pipe has one token");
      return {
        ...{ kind: "pipe", api, name, keys },
        address: readAddress(node.get("address")),
        prefix: node.optional("prefix")?.anyText() ?? `${name}/`,
        limits: readProviderLimits(node.optional("limits")),
      };
    }
    default: {
      node.onlyKeys(HTTP_KEYS);
      const keys = readKeys(node, used);
      const ambient = api === "bedrock-converse" && keys.length === 0 ? awsKeyOf(used.env) : undefined;
      return {
        ...{ kind: "http", api, name },
        ...readHttpSettings(node, api),
        keys: ambient === undefined ? keys : [ambient],
        ...readHeaders(node, used),
        limits: readProviderLimits(node.optional("limits")),
      };
    }
  }
}

function readHttpSettings(node: ConfigNode, api: string) {
  const base = node.get("baseUrl");
  const problem = urlProblem(base.text());
  if (problem !== undefined) throw base.error(problem);
  const baseUrl = trimSlash(base.text());
  const quirksNode = node.optional("quirks");
  const quirks = quirksNode?.plain() ?? {};
  try {
    createDialect(api, { baseUrl, quirks });
  } catch (error) {
    throw (quirksNode ?? node).error(TurnError.from(error).message);
  }
  return { baseUrl, quirks };
}

function readAddress(node: ConfigNode): string {
  const text = node.text();
  const parts = text.split(",").map((part) => part.trim());
  const bad = parts.find((part) => !/^(?:dns:\/\/\/)?(?:\[[0-9a-f:.]+\]|[\w.-]+):\d{1,5}$/i.test(part));
  if (bad !== undefined)
    throw node.error("must be host:port, several separated by commas, or dns:///host:port");
  return parts.join(",");
}

/** Keys from variables and from files, in that order. */
function readKeys(node: ConfigNode, used: Used): string[] {
  const keys: string[] = [];
  const keep = (key: string, place: ConfigNode): void => {
    if (!isSendable(key)) throw place.error("leads to a key with a character that no key has");
    keys.push(key);
  };
  const variables = node.optional("apiKeyEnv");
  for (const name of variables?.texts() ?? []) keep(secretOfVariable(name, variables!, used), variables!);
  const files = node.optional("apiKeyFile");
  for (const text of files?.texts() ?? []) keep(secretOfFile(text, files!, used), files!);
  return keys;
}

/** Plain ones stand in the file, secret ones come from variables and from files of their own. */
function readHeaders(node: ConfigNode, used: Used): Pick<HttpProviderConfig, "headers" | "secretHeaders"> {
  const plain = Object.entries(node.optional("headers")?.textMap() ?? {});
  const headers = new Map(plain.map(([name, value]) => [name.toLowerCase(), value]));
  const secretHeaders: string[] = [];
  const sources = { headersEnv: secretOfVariable, headersFile: secretOfFile } as const;
  for (const [key, secretOf] of Object.entries(sources)) {
    const names = node.optional(key);
    for (const [name, source] of Object.entries(names?.textMap() ?? {})) {
      const header = name.toLowerCase();
      const place = names!.get(name);
      if (headers.has(header)) throw place.error("is set twice");
      const value = secretOf(source, place, used);
      if (!/^[\x20-\x7e]+$/.test(value)) throw place.error("leads to a value that no header can have");
      headers.set(header, value);
      secretHeaders.push(header);
    }
  }
  return { headers: Object.fromEntries(headers), ...(secretHeaders.length > 0 && { secretHeaders }) };
}

function secretOfVariable(name: string, place: ConfigNode, { env, keyNames }: Used): string {
  const secret = env[name];
  if (!secret) throw place.error(`names the environment variable ${name}, which is not set`);
  keyNames.push(name);
  return secret;
}

function secretOfFile(name: string, place: ConfigNode, { readFile, files }: Used): string {
  const path = place.pathOf(name);
  let secret: string;
  try {
    secret = readFile(path).trim();
  } catch {
    throw place.error(`names ${path}, which cannot be read`);
  }
  if (secret === "") throw place.error(`names ${path}, which is empty`);
  files.push(path);
  return secret;
}

function readProviderLimits(node: ConfigNode | undefined) {
  const limits = readNumbers(node, DEFAULT_PROVIDER_LIMITS, { breakerFailures: 0, maxQueued: 0 });
  return { ...limits, maxConcurrentPerKey: Math.min(limits.maxConcurrentPerKey, limits.maxConcurrent) };
}

/** Ours are under `limits.llm`; the other services have theirs beside it. */
function readLimits(root: ConfigNode): LlmLimits {
  return readNumbers(root.optional("limits")?.optional("llm"), DEFAULT_LLM_LIMITS, { maxRetries: 0 });
}

/** Members that are numbers, each at least 1 unless `least` says otherwise. */
function readNumbers<T extends { readonly [K in keyof T]: number }>(
  node: ConfigNode | undefined,
  defaults: T,
  least: Partial<Record<keyof T, number>>,
): T {
  if (!node) return defaults;
  const names = Object.keys(defaults) as (keyof T & string)[];
  node.onlyKeys(names);
  const set = names.flatMap((name) => {
    const value = node.optional(name)?.integer(least[name] ?? 1, 2 ** 31 - 1);
    return value === undefined ? [] : [[name, value] as const];
  });
  return { ...defaults, ...Object.fromEntries(set) };
}

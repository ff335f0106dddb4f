/** The configuration file, member by member. It is shared with other services: members of the root that are not ours are theirs. */
import { TurnError } from "../lib/errors.js";
import { isSendable, trimSlash, urlProblem, type Environment } from "./config-environment.js";
import type { ConfigNode } from "./config-file.js";
import { checkNames, readModel, readPrices, readRoutes } from "./config-read-models.js";
import {
  DEFAULT_DEMO_DELAY_MS,
  DEFAULT_LLM_LIMITS,
  DEFAULT_PROVIDER_LIMITS,
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
  const tags = root.optional("tags")?.texts();
  for (const node of root.optional("providers")?.list() ?? []) {
    const provider = readProvider(node, used);
    if (providers.some(({ name }) => name === provider.name))
      throw node.get("name").error("names a provider twice");
    providers.push(provider);
    for (const model of node.optional("models")?.list() ?? []) models.push(readModel(model, provider, tags));
  }
  for (const node of root.optional("models")?.list() ?? []) {
    const name = node.get("provider");
    const provider = providers.find((each) => each.name === name.text());
    if (!provider) throw name.error("names no provider of this file");
    models.push(readModel(node, provider, tags));
  }
  const routes = readRoutes(root, models, providers);
  checkNames(root, models, routes);
  const prices = readPrices(root);
  const limits = readLimits(root);
  return { providers, models, routes, prices, limits, files: used.files, keyNames: used.keyNames };
}

const APIS = [...DIALECT_NAMES, "pipe", "demo"];
const COMMON_KEYS = ["name", "api", "models", "limits"];
const HTTP_KEYS = [...COMMON_KEYS, "baseUrl", "apiKeyEnv", "apiKeyFile", "headers", "quirks"];
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
        headers: node.optional("headers")?.textMap() ?? {},
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
  const keep = (key: string | undefined, place: ConfigNode, missing: string): void => {
    if (!key) throw place.error(missing);
    if (!isSendable(key)) throw place.error("leads to a key with a character that no key has");
    keys.push(key);
  };
  const variables = node.optional("apiKeyEnv");
  for (const name of variables?.texts() ?? []) {
    keep(used.env[name], variables!, `names the environment variable ${name}, which is not set`);
    used.keyNames.push(name);
  }
  const files = node.optional("apiKeyFile");
  for (const text of files?.texts() ?? []) {
    const path = files!.pathOf(text);
    keep(readKeyFile(path, files!, used), files!, `names ${path}, which is empty`);
    used.files.push(path);
  }
  return keys;
}

function readKeyFile(path: string, node: ConfigNode, { readFile }: Used): string {
  try {
    return readFile(path).trim();
  } catch {
    throw node.error(`names ${path}, which cannot be read`);
  }
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

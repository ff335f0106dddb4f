/**
 * Which models there are: from OPENAI_API_KEY and OPENAI_BASE_URL, and from the file that TURNWIRE_CONFIG names.
 * Every mistake is an INVALID_ARGUMENT that says file, line and key. Keys come from the environment, never from the file.
 */
import { readFileSync } from "node:fs";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../lib/errors.js";
import { parseConfigFile, type ConfigNode } from "./config-file.js";
import type { OpenAiChatQuirks } from "./providers/openai-chat-quirks.js";

export interface OpenAiChatProviderConfig {
  readonly api: "openai-chat";
  readonly name: string;
  /** Ends without a slash. */
  readonly baseUrl: string;
  readonly apiKey: string | undefined;
  readonly headers: Readonly<Record<string, string>>;
  readonly quirks: Partial<OpenAiChatQuirks>;
}

/** The model that needs nothing. */
export interface DemoProviderConfig {
  readonly api: "demo";
  readonly name: string;
  /** Milliseconds between deltas. */
  readonly deltaDelayMs: number;
}

export type ProviderConfig = OpenAiChatProviderConfig | DemoProviderConfig;

export interface ModelConfig {
  readonly id: string;
  /** Name of its provider. */
  readonly provider: string;
  /** What the provider calls it. */
  readonly upstreamModel: string;
  readonly aliases: readonly string[];
  readonly displayName: string;
  readonly ownedBy: string;
  /** Tokens; 0 = unknown. */
  readonly contextTokens: number;
  /** Tokens; 0 = unknown. */
  readonly maxOutputTokens: number;
  /** undefined = unknown: parameters are passed on. */
  readonly reasoning: boolean | undefined;
  /** undefined = unknown: tools are passed on. */
  readonly tools: boolean | undefined;
  /** The server leaves `<think>` tags in the text. */
  readonly thinkTags: boolean;
}

/** Milliseconds, bytes, counts. */
export interface LlmLimits {
  readonly connectTimeoutMs: number;
  /** Where a request sets none. */
  readonly firstTokenTimeoutMs: number;
  /** Where a request sets none. */
  readonly stallTimeoutMs: number;
  readonly maxEventBytes: number;
  readonly maxResponseBytes: number;
  /** Connections to one provider. */
  readonly maxConnections: number;
  /** Calls at once over all providers. */
  readonly maxCalls: number;
}

export interface LlmConfig {
  readonly providers: readonly ProviderConfig[];
  /** In the order of the files; providers without any are asked for theirs. */
  readonly models: readonly ModelConfig[];
  readonly limits: LlmLimits;
}

export const DEFAULT_LLM_LIMITS: LlmLimits = {
  connectTimeoutMs: 10_000,
  firstTokenTimeoutMs: 120_000,
  stallTimeoutMs: 60_000,
  maxEventBytes: 8 * 1024 * 1024,
  maxResponseBytes: 64 * 1024 * 1024,
  maxConnections: 512,
  maxCalls: 2_000,
};

export const DEMO_MODEL_ID = "demo";
const DEFAULT_DEMO_DELAY_MS = 15;
const OPENAI_BASE_URL = "https://api.openai.com/v1";

type Environment = Readonly<Record<string, string | undefined>>;

/** Reads the configuration. `readFile` is for tests. */
export function loadLlmConfig(
  env: Environment,
  readFile: (path: string) => string = (path) => readFileSync(path, "utf8"),
): LlmConfig {
  const path = env["TURNWIRE_CONFIG"];
  const file = path === undefined || path === "" ? undefined : parseConfigFile(path, readFile);
  const fromFile = file
    ? readFileConfig(file, env)
    : { providers: [], models: [], limits: DEFAULT_LLM_LIMITS, keyNames: [] };
  const providers: ProviderConfig[] = [...fromFile.providers];
  const openai = openAiFromEnv(env);
  const shadowed =
    providers.some(({ name }) => name === "openai") || fromFile.keyNames.includes("OPENAI_API_KEY");
  if (openai && !shadowed) providers.push(openai);
  if (!providers.some(({ api }) => api === "demo")) {
    providers.push({ api: "demo", name: freeName("demo", providers), deltaDelayMs: DEFAULT_DEMO_DELAY_MS });
  }
  return { providers, models: fromFile.models, limits: fromFile.limits };
}

function freeName(name: string, providers: readonly ProviderConfig[]): string {
  return providers.some((provider) => provider.name === name) ? freeName(`${name}-model`, providers) : name;
}

function openAiFromEnv(env: Environment): OpenAiChatProviderConfig | undefined {
  const apiKey = env["OPENAI_API_KEY"] || undefined;
  const baseUrl = env["OPENAI_BASE_URL"] || undefined;
  if (apiKey === undefined && baseUrl === undefined) return undefined;
  const problem = baseUrl === undefined ? undefined : urlProblem(baseUrl);
  if (problem !== undefined) throw settingError(`OPENAI_BASE_URL ${problem}`, { key: "OPENAI_BASE_URL" });
  return {
    api: "openai-chat",
    name: "openai",
    baseUrl: trimSlash(baseUrl ?? OPENAI_BASE_URL),
    apiKey,
    headers: {},
    quirks: {},
  };
}

interface FileConfig extends LlmConfig {
  /** The variables that hold keys. */
  readonly keyNames: readonly string[];
}

/** The file is shared with other services: members of the root that are not ours are theirs to check. */
function readFileConfig(root: ConfigNode, env: Environment): FileConfig {
  const providers: ProviderConfig[] = [];
  const models: ModelConfig[] = [];
  const keyNames: string[] = [];
  for (const node of root.optional("providers")?.list() ?? []) {
    const provider = readProvider(node, env, keyNames);
    if (providers.some(({ name }) => name === provider.name))
      throw node.get("name").error("names a provider twice");
    providers.push(provider);
    for (const model of node.optional("models")?.list() ?? []) models.push(readModel(model, provider.name));
  }
  for (const node of root.optional("models")?.list() ?? []) {
    const name = node.get("provider");
    if (!providers.some((provider) => provider.name === name.text()))
      throw name.error("names no provider of this file");
    models.push(readModel(node, name.text()));
  }
  checkNames(root, models);
  return { providers, models, limits: readLimits(root), keyNames };
}

const OPENAI_CHAT_KEYS = ["name", "api", "baseUrl", "apiKeyEnv", "headers", "models", "quirks"];

function readProvider(node: ConfigNode, env: Environment, keyNames: string[]): ProviderConfig {
  const name = node.get("name").text();
  const api = node.get("api").oneOf(["openai-chat", "demo"] as const);
  if (api === "demo") {
    node.onlyKeys(["name", "api", "deltaDelayMs"]);
    return {
      api,
      name,
      deltaDelayMs: node.optional("deltaDelayMs")?.integer(0, 60_000) ?? DEFAULT_DEMO_DELAY_MS,
    };
  }
  node.onlyKeys(OPENAI_CHAT_KEYS);
  const baseUrl = node.get("baseUrl");
  const problem = urlProblem(baseUrl.text());
  if (problem !== undefined) throw baseUrl.error(problem);
  const keyEnv = node.optional("apiKeyEnv");
  if (keyEnv && !env[keyEnv.text()])
    throw keyEnv.error(`names the environment variable ${keyEnv.text()}, which is not set`);
  if (keyEnv) keyNames.push(keyEnv.text());
  return {
    api,
    name,
    baseUrl: trimSlash(baseUrl.text()),
    apiKey: keyEnv ? env[keyEnv.text()] : undefined,
    headers: node.optional("headers")?.textMap() ?? {},
    quirks: readQuirks(node.optional("quirks")),
  };
}

function readQuirks(node: ConfigNode | undefined): Partial<OpenAiChatQuirks> {
  if (!node) return {};
  node.onlyKeys(["maxTokensField", "streamUsage", "reasoningField", "effortOff"]);
  const maxTokensField = node
    .optional("maxTokensField")
    ?.oneOf(["max_tokens", "max_completion_tokens"] as const);
  const streamUsage = node.optional("streamUsage")?.flag();
  const reasoningField = node
    .optional("reasoningField")
    ?.oneOf(["", "reasoning_content", "reasoning"] as const);
  const effortOff = node.optional("effortOff")?.anyText();
  return {
    ...(maxTokensField !== undefined && { maxTokensField }),
    ...(streamUsage !== undefined && { streamUsage }),
    ...(reasoningField !== undefined && { reasoningField }),
    ...(effortOff !== undefined && { effortOff }),
  };
}

const MODEL_KEYS = [
  ...["id", "provider", "upstreamModel", "aliases", "displayName", "contextTokens", "maxOutputTokens"],
  ...["reasoning", "tools", "thinkTags"],
];

/** A model is an object, or just its id. */
function readModel(node: ConfigNode, provider: string): ModelConfig {
  if (node.isText()) return modelOf(node.text(), provider);
  node.onlyKeys(MODEL_KEYS);
  const id = node.get("id").text();
  return {
    ...modelOf(id, provider),
    upstreamModel: node.optional("upstreamModel")?.text() ?? id,
    aliases:
      node
        .optional("aliases")
        ?.list()
        .map((alias) => alias.text()) ?? [],
    displayName: node.optional("displayName")?.text() ?? id,
    contextTokens: node.optional("contextTokens")?.integer(0, 0xffffffff) ?? 0,
    maxOutputTokens: node.optional("maxOutputTokens")?.integer(0, 0xffffffff) ?? 0,
    reasoning: node.optional("reasoning")?.flag(),
    tools: node.optional("tools")?.flag(),
    thinkTags: node.optional("thinkTags")?.flag() ?? false,
  };
}

/** A model of which only its id is known. */
export function modelOf(id: string, provider: string): ModelConfig {
  return {
    id,
    provider,
    upstreamModel: id,
    aliases: [],
    displayName: id,
    ownedBy: provider,
    contextTokens: 0,
    maxOutputTokens: 0,
    reasoning: undefined,
    tools: undefined,
    thinkTags: false,
  };
}

function checkNames(root: ConfigNode, models: readonly ModelConfig[]): void {
  const taken = new Set<string>([DEMO_MODEL_ID]);
  for (const model of models) {
    for (const name of [model.id, ...model.aliases]) {
      if (taken.has(name)) throw root.get("providers").error(`has two models called ${name}`);
      taken.add(name);
    }
  }
}

/** Ours are under `limits.llm`; the other services have theirs beside it. */
function readLimits(root: ConfigNode): LlmLimits {
  const node = root.optional("limits")?.optional("llm");
  if (!node) return DEFAULT_LLM_LIMITS;
  const names = Object.keys(DEFAULT_LLM_LIMITS) as (keyof LlmLimits)[];
  node.onlyKeys(names);
  const set = names.flatMap((name) => {
    const value = node.optional(name)?.integer(1, 2 ** 31 - 1);
    return value === undefined ? [] : [[name, value] as const];
  });
  return { ...DEFAULT_LLM_LIMITS, ...Object.fromEntries(set) };
}

function urlProblem(text: string): string | undefined {
  if (!URL.canParse(text)) return "is not a URL";
  const url = new URL(text);
  if (url.protocol !== "http:" && url.protocol !== "https:") return "must begin with http:// or https://";
  if (url.username !== "" || url.password !== "") return "must not hold a user name or password";
  return url.search === "" && url.hash === "" ? undefined : "must not have a query or fragment";
}

function trimSlash(url: string): string {
  return url.replace(/\/+$/, "");
}

function settingError(message: string, details: Readonly<Record<string, string>>): TurnError {
  return new TurnError(ErrorCode.INVALID_ARGUMENT, { message, details });
}

/**
 * Which models there are: from variables such as OPENAI_API_KEY, and from the file that TURNWIRE_CONFIG names. Every mistake
 * is an INVALID_ARGUMENT that says file, line and key. Keys come from the environment or from files of their own, never
 * from the configuration.
 */
import { readFileSync } from "node:fs";
import { DEFAULT_DEMO_DELAY_MS, DEFAULT_LLM_LIMITS, type LlmConfig, type ProviderConfig } from "./config.js";
import { environmentProviders, type Environment } from "./config-environment.js";
import { parseConfigFile } from "./config-file.js";
import { readConfigRoot, type FileConfig, type ReadFile } from "./config-read.js";

/** Reads the configuration. `readFile` is for tests. */
export function loadLlmConfig(
  env: Environment,
  readFile: ReadFile = (path) => readFileSync(path, "utf8"),
): LlmConfig {
  const path = env["TURNWIRE_CONFIG"];
  const file =
    path === undefined || path === ""
      ? NO_FILE
      : readConfigRoot(parseConfigFile(path, readFile), { env, readFile, path });
  const providers: ProviderConfig[] = [...file.providers];
  for (const { provider, keyName } of environmentProviders(env)) {
    const shadowed = providers.some(({ name }) => name === provider.name) || file.keyNames.includes(keyName);
    if (!shadowed) providers.push(provider);
  }
  if (!providers.some(({ api }) => api === "demo")) {
    const name = freeName("demo", providers);
    providers.push({ kind: "demo", api: "demo", name, deltaDelayMs: DEFAULT_DEMO_DELAY_MS });
  }
  const { models, routes, prices, limits, files } = file;
  return { providers, models, routes, prices, limits, files };
}

const NO_FILE: FileConfig = {
  ...{ providers: [], models: [], routes: [], prices: new Map(), limits: DEFAULT_LLM_LIMITS, files: [] },
  keyNames: [],
};

function freeName(name: string, providers: readonly ProviderConfig[]): string {
  return providers.some((provider) => provider.name === name) ? freeName(`${name}-model`, providers) : name;
}

/** The `tools` part of TURNWIRE_CONFIG: `tools: { openUrl: { allowHosts: ["host:port"] } }`. */
import { readConfigFile } from "./config-file.js";
import { ConfigError } from "./config.js";

export interface ToolConfig {
  readonly openUrl: {
    /** "host:port" pairs that open_url may reach although they are private; default none. */
    readonly allowHosts: readonly string[];
  };
}

const NONE: ToolConfig = { openUrl: { allowHosts: [] } };

export function readToolConfig(env: Readonly<Record<string, string | undefined>>): ToolConfig {
  const file = env["TURNWIRE_CONFIG"];
  if (!file) return NONE;
  const tools = (readConfigFile(file).toJS() as { tools?: unknown } | null)?.tools;
  if (tools === undefined) return NONE;
  const wrong = (path: string, want: string): ConfigError =>
    new ConfigError(`${file}: ${path} must be ${want}`);
  const { openUrl, ...others } = asRecord(tools, () => wrong("tools", "a map"));
  for (const key of Object.keys(others)) throw wrong(`tools.${key}`, "left out: it is not a known key");
  if (openUrl === undefined) return NONE;
  const { allowHosts = [], ...rest } = asRecord(openUrl, () => wrong("tools.openUrl", "a map"));
  for (const key of Object.keys(rest)) throw wrong(`tools.openUrl.${key}`, "left out: it is not a known key");
  if (!Array.isArray(allowHosts) || !allowHosts.every(isHostPort))
    throw wrong("tools.openUrl.allowHosts", 'a list of "host:port"');
  return { openUrl: { allowHosts } };
}

function isHostPort(value: unknown): value is string {
  return typeof value === "string" && /^.+:\d{1,5}$/.test(value);
}

function asRecord(value: unknown, error: () => ConfigError): Record<string, unknown> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw error();
  return value as Record<string, unknown>;
}

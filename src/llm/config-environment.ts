/** Providers that need no file: a key or an address in the environment is enough. */
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../lib/errors.js";
import { DEFAULT_PROVIDER_LIMITS, type ProviderConfig } from "./config.js";

export type Environment = Readonly<Record<string, string | undefined>>;

/** A provider, and the variable that a file may use instead. */
export interface EnvironmentProvider {
  readonly provider: ProviderConfig;
  readonly keyName: string;
}

interface Row {
  readonly name: string;
  readonly api: string;
  readonly keyName: string;
  readonly baseUrlName: string;
  readonly baseUrl: string;
}

const ROWS: readonly Row[] = [
  {
    ...{ name: "openai", api: "openai-chat", keyName: "OPENAI_API_KEY", baseUrlName: "OPENAI_BASE_URL" },
    baseUrl: "https://api.openai.com/v1",
  },
  {
    ...{ name: "anthropic", api: "anthropic-messages", keyName: "ANTHROPIC_API_KEY", baseUrlName: "" },
    baseUrl: "https://api.anthropic.com/v1",
  },
  {
    ...{ name: "gemini", api: "gemini", keyName: "GEMINI_API_KEY", baseUrlName: "" },
    baseUrl: "https://generativelanguage.googleapis.com/v1beta",
  },
];

const OLLAMA_PORT = "11434";

/** The providers that the environment names, in the order in which their models are listed. */
export function environmentProviders(env: Environment): EnvironmentProvider[] {
  const found = ROWS.flatMap((row) => {
    const key = env[row.keyName] || undefined;
    const baseUrl = (row.baseUrlName && env[row.baseUrlName]) || undefined;
    if (key === undefined && baseUrl === undefined) return [];
    if (baseUrl !== undefined) checkUrl(row.baseUrlName, baseUrl);
    if (key !== undefined) checkKey(row.keyName, key);
    return [{ provider: httpProvider(row, baseUrl ?? row.baseUrl, key), keyName: row.keyName }];
  });
  const host = env["OLLAMA_HOST"];
  if (host) {
    const row = { name: "ollama", api: "ollama-chat" };
    found.push({ provider: httpProvider(row, ollamaUrl(host), undefined), keyName: "OLLAMA_HOST" });
  }
  return found;
}

function httpProvider(
  { name, api }: Pick<Row, "name" | "api">,
  baseUrl: string,
  key: string | undefined,
): ProviderConfig {
  return {
    ...{ kind: "http", api, name, baseUrl: trimSlash(baseUrl), headers: {}, quirks: {} },
    keys: key === undefined ? [] : [key],
    limits: DEFAULT_PROVIDER_LIMITS,
  };
}

/** OLLAMA_HOST as Ollama itself reads it: scheme and port may be missing, and "every address" means this machine. */
function ollamaUrl(host: string): string {
  const whole = /^[a-z][a-z0-9+.-]*:\/\//i.test(host)
    ? host
    : `http://${host.startsWith(":") ? "127.0.0.1" : ""}${host}`;
  checkUrl("OLLAMA_HOST", whole);
  const url = new URL(whole);
  if (url.hostname === "0.0.0.0" || url.hostname === "[::]") url.hostname = "127.0.0.1";
  const portNamed = /:\d+(?:\/|$)/.test(whole.replace(/^[^/]*\/\//, ""));
  if (!portNamed && url.protocol === "http:") url.port = OLLAMA_PORT;
  return trimSlash(url.href);
}

function checkUrl(name: string, text: string): void {
  const problem = urlProblem(text);
  if (problem === undefined) return;
  throw new TurnError(ErrorCode.INVALID_ARGUMENT, { message: `${name} ${problem}`, details: { key: name } });
}

function checkKey(name: string, key: string): void {
  if (isSendable(key)) return;
  throw new TurnError(ErrorCode.INVALID_ARGUMENT, {
    message: `${name} holds a character that no key has`,
    details: { key: name },
  });
}

/** Whether a key can stand in a header. */
export function isSendable(key: string): boolean {
  return /^[\x21-\x7e]+$/.test(key);
}

/** What is wrong with a base URL; undefined = nothing. */
export function urlProblem(text: string): string | undefined {
  if (!URL.canParse(text)) return "is not a URL";
  const url = new URL(text);
  if (url.protocol !== "http:" && url.protocol !== "https:") return "must begin with http:// or https://";
  if (url.username !== "" || url.password !== "") return "must not hold a user name or password";
  return url.search === "" && url.hash === "" ? undefined : "must not have a query or fragment";
}

export function trimSlash(url: string): string {
  return url.replace(/\/+$/, "");
}

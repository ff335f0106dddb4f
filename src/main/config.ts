/**
 * The environment as the services read it (12-factor): each variable with its default, checked at start. The only reader of
 * process.env is src/main; everything else gets values. Providers, models and tools come from TURNWIRE_CONFIG (src/llm,
 * src/tool).
 */
import path from "node:path";

export interface Config {
  /** TURNWIRE_HOST: where all ports listen. Default 127.0.0.1; anything off loopback needs tokens. */
  readonly host: string;
  /** TURNWIRE_HTTP_PORT: Connect, gRPC, gRPC-Web. Default 8080. */
  readonly httpPort: number;
  /** TURNWIRE_GRPC_PORT: native gRPC. Default 9090. */
  readonly grpcPort: number;
  /** TURNWIRE_LLM_PORT / TURNWIRE_TOOL_PORT. undefined = 9091 / 9092 for a single service, a free port in all-in-one. */
  readonly llmPort: number | undefined;
  readonly toolPort: number | undefined;
  /** TURNWIRE_LLM_ADDR / TURNWIRE_TOOL_ADDR: host:port, comma-separated, or dns:///. */
  readonly llmAddresses: string;
  readonly toolAddresses: string;
  /** TURNWIRE_PEER_TOKEN: bearer between the services; off loopback the peers demand it. */
  readonly peerToken: string | undefined;
  /** TURNWIRE_TOKENS: token=tenant/user[/admin][+group...],... */
  readonly tokens: string | undefined;
  /** TURNWIRE_DATA_DIR. Default .data; as root /var/lib/turnwire. */
  readonly dataDir: string;
  readonly databaseUrl: string | undefined;
  readonly natsUrl: string | undefined;
  readonly maxCycles: number;
  readonly turnDeadlineMs: number;
  readonly heartbeatMs: number;
  /** TURNWIRE_TLS_CERT, TURNWIRE_TLS_KEY: PEM files for the ports of clients; the peers speak cleartext. */
  readonly tls: { readonly certFile: string; readonly keyFile: string } | undefined;
  readonly corsOrigins: readonly string[];
  /** TURNWIRE_LOG: level of the log lines on standard error. Default info. */
  readonly logLevel: string;
  /** TURNWIRE_DRAIN_MS: how long running turns and streams may go on after SIGTERM. Default 10000. */
  readonly drainMs: number;
}

/** A variable that cannot be used; the message names it and says what it should be. Values are not repeated. */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
}

type Env = Readonly<Record<string, string | undefined>>;

const LOG_LEVELS = ["trace", "debug", "info", "warn", "error", "fatal", "silent"];

export function readConfig(env: Env, isRoot: boolean): Config {
  const tls = readTls(env);
  return {
    host: text(env, "TURNWIRE_HOST") ?? "127.0.0.1",
    httpPort: port(env, "TURNWIRE_HTTP_PORT") ?? 8080,
    grpcPort: port(env, "TURNWIRE_GRPC_PORT") ?? 9090,
    llmPort: port(env, "TURNWIRE_LLM_PORT"),
    toolPort: port(env, "TURNWIRE_TOOL_PORT"),
    llmAddresses: addresses(env, "TURNWIRE_LLM_ADDR") ?? "127.0.0.1:9091",
    toolAddresses: addresses(env, "TURNWIRE_TOOL_ADDR") ?? "127.0.0.1:9092",
    peerToken: text(env, "TURNWIRE_PEER_TOKEN"),
    tokens: text(env, "TURNWIRE_TOKENS"),
    dataDir: path.resolve(text(env, "TURNWIRE_DATA_DIR") ?? (isRoot ? "/var/lib/turnwire" : ".data")),
    databaseUrl: databaseUrl(env),
    natsUrl: natsUrl(env),
    maxCycles: integer(env, "TURNWIRE_MAX_CYCLES", 1, 64) ?? 6,
    turnDeadlineMs: integer(env, "TURNWIRE_TURN_DEADLINE_MS", 1_000, 6 * 3_600_000) ?? 600_000,
    heartbeatMs: integer(env, "TURNWIRE_HEARTBEAT_MS", 100, 300_000) ?? 15_000,
    tls,
    corsOrigins: list(env, "TURNWIRE_CORS_ORIGINS"),
    logLevel: logLevel(env),
    drainMs: integer(env, "TURNWIRE_DRAIN_MS", 0, 600_000) ?? 10_000,
  };
}

/** True for addresses that only this machine reaches. */
export function isLoopback(host: string): boolean {
  return host === "localhost" || host === "::1" || /^127\.\d+\.\d+\.\d+$/.test(host);
}

function text(env: Env, name: string): string | undefined {
  const value = env[name]?.trim();
  return value === "" ? undefined : value;
}

function list(env: Env, name: string): string[] {
  return (text(env, name) ?? "")
    .split(",")
    .map((part) => part.trim())
    .filter((part) => part !== "");
}

function integer(env: Env, name: string, least: number, most: number): number | undefined {
  const value = text(env, name);
  if (value === undefined) return undefined;
  const number = Number(value);
  if (!/^\d+$/.test(value) || number < least || number > most)
    throw new ConfigError(`${name} must be a whole number from ${least} to ${most}`);
  return number;
}

function port(env: Env, name: string): number | undefined {
  return integer(env, name, 0, 65_535);
}

const HOST_PORT = /^(\[[0-9a-fA-F:.]+\]|[^\s:/@]+):\d{1,5}$/;

function addresses(env: Env, name: string): string | undefined {
  const value = text(env, name);
  if (value === undefined) return undefined;
  const parts = list(env, name);
  if (parts.length === 0 || !parts.every((part) => HOST_PORT.test(part) || /^dns:\/\/\/\S+:\d+$/.test(part)))
    throw new ConfigError(`${name} must be host:port, several separated by commas, or dns:///host:port`);
  return value;
}

function databaseUrl(env: Env): string | undefined {
  const value = text(env, "DATABASE_URL");
  if (value !== undefined && !(URL.canParse(value) && /^postgres(ql)?:$/.test(new URL(value).protocol)))
    throw new ConfigError("DATABASE_URL must be postgres://user:password@host:port/database");
  return value;
}

function natsUrl(env: Env): string | undefined {
  const value = text(env, "NATS_URL");
  if (value === undefined || value === "none") return value;
  const isServer = (part: string): boolean =>
    HOST_PORT.test(part) || (URL.canParse(part) && /^(nats|tls):$/.test(new URL(part).protocol));
  if (!list(env, "NATS_URL").every(isServer))
    throw new ConfigError("NATS_URL must be nats://host:port, several separated by commas, or none");
  return value;
}

function logLevel(env: Env): string {
  const level = text(env, "TURNWIRE_LOG") ?? "info";
  if (!LOG_LEVELS.includes(level))
    throw new ConfigError(`TURNWIRE_LOG must be one of ${LOG_LEVELS.join(", ")}`);
  return level;
}

function readTls(env: Env): Config["tls"] {
  const certFile = text(env, "TURNWIRE_TLS_CERT");
  const keyFile = text(env, "TURNWIRE_TLS_KEY");
  if (!certFile && !keyFile) return undefined;
  if (!certFile || !keyFile)
    throw new ConfigError("TURNWIRE_TLS_CERT and TURNWIRE_TLS_KEY go together: set both or none");
  return { certFile, keyFile };
}

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { readConfigFile } from "./config-file.js";
import { ConfigError, isLoopback, readConfig } from "./config.js";
import { readToolConfig } from "./tool-config.js";

const SECRET = "config-secret-77aa";

test("config - an empty environment gives the defaults", () => {
  expect(readConfig({}, false)).toMatchObject({
    host: "127.0.0.1",
    httpPort: 8080,
    grpcPort: 9090,
    llmPort: undefined,
    llmAddresses: "127.0.0.1:9091",
    toolAddresses: "127.0.0.1:9092",
    dataDir: path.resolve(".data"),
    databaseUrl: undefined,
    natsUrl: undefined,
    maxCycles: 6,
    turnDeadlineMs: 600_000,
    heartbeatMs: 15_000,
    corsOrigins: [],
    logLevel: "info",
  });
  expect(readConfig({}, true).dataDir).toBe("/var/lib/turnwire");
});

test("config - a variable that is set to nothing is as good as not set", () => {
  const empty = {
    TURNWIRE_HTTP_PORT: "",
    TURNWIRE_HOST: " ",
    DATABASE_URL: "",
    NATS_URL: "",
    TURNWIRE_LLM_ADDR: "",
  };
  expect(readConfig(empty, false)).toEqual(readConfig({}, false));
});

test.each([
  ["TURNWIRE_HTTP_PORT", "0", { httpPort: 0 }],
  ["TURNWIRE_GRPC_PORT", "65535", { grpcPort: 65_535 }],
  ["TURNWIRE_LLM_ADDR", "10.0.0.1:9091,10.0.0.2:9091", { llmAddresses: "10.0.0.1:9091,10.0.0.2:9091" }],
  ["TURNWIRE_LLM_ADDR", "[::1]:9091", { llmAddresses: "[::1]:9091" }],
  ["TURNWIRE_TOOL_ADDR", "dns:///tool:9092", { toolAddresses: "dns:///tool:9092" }],
  [
    "DATABASE_URL",
    "postgresql://me:p%40ss@db/turnwire?ssl=true",
    { databaseUrl: "postgresql://me:p%40ss@db/turnwire?ssl=true" },
  ],
  ["NATS_URL", "nats://a:4222, b:4222", { natsUrl: "nats://a:4222, b:4222" }],
  ["NATS_URL", "none", { natsUrl: "none" }],
  [
    "TURNWIRE_CORS_ORIGINS",
    " https://a.example ,https://b.example",
    { corsOrigins: ["https://a.example", "https://b.example"] },
  ],
  ["TURNWIRE_LOG", "silent", { logLevel: "silent" }],
])("config - %s=%s is taken", (name, value, wanted) => {
  expect(readConfig({ [name]: value }, false)).toMatchObject(wanted);
});

test.each([
  ["TURNWIRE_HTTP_PORT", "http", /whole number from 0 to 65535/],
  ["TURNWIRE_HTTP_PORT", "65536", /whole number/],
  ["TURNWIRE_GRPC_PORT", "-1", /whole number/],
  ["TURNWIRE_LLM_PORT", "9091.5", /whole number/],
  ["TURNWIRE_TOOL_PORT", "1e3", /whole number/],
  ["TURNWIRE_MAX_CYCLES", "0", /from 1 to 64/],
  ["TURNWIRE_MAX_CYCLES", "65", /from 1 to 64/],
  ["TURNWIRE_TURN_DEADLINE_MS", "soon", /whole number/],
  ["TURNWIRE_TURN_DEADLINE_MS", "99", /from 1000/],
  ["TURNWIRE_HEARTBEAT_MS", "1", /from 100/],
  ["TURNWIRE_DRAIN_MS", "-5", /whole number/],
  ["TURNWIRE_LOG", "loud", /one of trace, debug/],
  ["TURNWIRE_TLS_CERT", "cert.pem", /go together/],
  ["TURNWIRE_TLS_KEY", "key.pem", /go together/],
  ["TURNWIRE_LLM_ADDR", " , ", /host:port/],
  ["TURNWIRE_LLM_ADDR", "localhost", /host:port/],
  ["TURNWIRE_TOOL_ADDR", "http://tool:9092", /host:port/],
  ["TURNWIRE_TOOL_ADDR", "tool:9092,other", /host:port/],
  ["DATABASE_URL", "not a url", /postgres:\/\//],
  ["DATABASE_URL", `mysql://me:${SECRET}@127.0.0.1/x`, /postgres:\/\//],
  ["NATS_URL", `http://me:${SECRET}@127.0.0.1`, /nats:\/\//],
  ["NATS_URL", "localhost", /nats:\/\//],
])("config - %s=%s is refused by name, without its value", (name, value, pattern) => {
  let thrown: unknown;
  try {
    readConfig({ [name]: value }, false);
  } catch (error) {
    thrown = error;
  }
  expect(thrown).toBeInstanceOf(ConfigError);
  const { message } = thrown as ConfigError;
  expect(message).toContain(name);
  expect(message).toMatch(pattern);
  expect(message).not.toContain(SECRET);
});

test.each([
  ["127.0.0.1", true],
  ["localhost", true],
  ["::1", true],
  ["0.0.0.0", false],
  ["10.1.2.3", false],
  ["127.0.0.1.example", false],
])("config - %s is loopback: %s", (host, loopback) => {
  expect(isLoopback(host)).toBe(loopback);
});

describe("the configuration file", () => {
  const folder = mkdtempSync(path.join(os.tmpdir(), "turnwire-config-"));
  let files = 0;
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  function write(text: string): string {
    const file = path.join(folder, `config-${++files}.yaml`);
    writeFileSync(file, text);
    return file;
  }

  test.each([
    ["broken YAML", "tools:\n  openUrl: [unclosed", /:\d+: /],
    ["a part that nobody reads", "models: []\nmodles: []\n", /:2: modles is not known here/],
    ["a list", "- a\n", /must be a mapping/],
  ])("with %s is refused with its line", (_, text, pattern) => {
    const file = write(text);
    expect(() => readConfigFile(file)).toThrow(pattern);
    expect(() => readConfigFile(file)).toThrow(file);
  });

  test("that is not there is refused", () => {
    expect(() => readConfigFile("/nowhere/config.yaml")).toThrow(/TURNWIRE_CONFIG.*config\.yaml.*ENOENT/);
  });

  test.each([
    ["", []],
    ["# only a comment\n", []],
    ["models: []\n", []],
    ["tools:\n  openUrl:\n    allowHosts: ['127.0.0.1:8000']\n", ["127.0.0.1:8000"]],
  ])("%j lets open_url reach %j", (text, allowHosts) => {
    expect(readToolConfig({ TURNWIRE_CONFIG: write(text) }).openUrl.allowHosts).toEqual(allowHosts);
  });

  test.each([
    ["tools: []\n", /tools must be a map/],
    ["tools:\n  openUrls: {}\n", /tools\.openUrls/],
    ["tools:\n  openUrl: {allowHost: []}\n", /tools\.openUrl\.allowHost/],
    ["tools:\n  openUrl: {allowHosts: ['localhost']}\n", /host:port/],
  ])("%j is refused", (text, pattern) => {
    expect(() => readToolConfig({ TURNWIRE_CONFIG: write(text) })).toThrow(pattern);
  });
});

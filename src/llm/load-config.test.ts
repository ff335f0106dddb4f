import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { DEFAULT_LLM_LIMITS, DEFAULT_PROVIDER_LIMITS } from "./config.js";
import { loadLlmConfig } from "./load-config.js";

const load = (yaml: string, env: Record<string, string> = {}) =>
  loadLlmConfig({ TURNWIRE_CONFIG: "/etc/tw.yaml", ...env }, () => yaml);

describe("llm config - from the environment", () => {
  test("nothing set - the demo alone", () => {
    expect(loadLlmConfig({})).toEqual({
      providers: [{ kind: "demo", api: "demo", name: "demo", deltaDelayMs: 15 }],
      ...{ models: [], routes: [], prices: new Map(), files: [] },
      limits: DEFAULT_LLM_LIMITS,
    });
  });

  test("a key alone - the public address; a base URL alone - no key", () => {
    expect(loadLlmConfig({ OPENAI_API_KEY: "k" }).providers[0]).toMatchObject({
      name: "openai",
      baseUrl: "https://api.openai.com/v1",
      keys: ["k"],
    });
    expect(loadLlmConfig({ OPENAI_BASE_URL: "http://localhost:1/v1/" }).providers[0]).toMatchObject({
      baseUrl: "http://localhost:1/v1",
      keys: [],
    });
  });

  test.each(["localhost:1", "ftp://a/", "http://u:p@a/", "http://a/?k=1", "nonsense"])(
    "the base URL %s is refused",
    (url) => {
      expect(() => loadLlmConfig({ OPENAI_BASE_URL: url })).toThrow(/^OPENAI_BASE_URL /);
    },
  );
});

describe("llm config - from the file", () => {
  test("secret headers come from variables and from files of their own, which are watched", () => {
    const yaml = (more: string): string =>
      `providers: [{ name: a, api: openai-chat, baseUrl: "http://a", headers: { x-team: blue }, ${more} }]`;
    const read = (more: string) =>
      loadLlmConfig({ TURNWIRE_CONFIG: "/etc/tw.yaml", GATEWAY: "Bearer gate-0123" }, (path) =>
        path.endsWith("tw.yaml") ? yaml(more) : path.endsWith("edge") ? "edge-4567\n" : "",
      );
    const config = read("headersEnv: { Authorization: GATEWAY }, headersFile: { x-edge: edge }");
    expect(config.providers[0]).toMatchObject({
      headers: { "x-team": "blue", authorization: "Bearer gate-0123", "x-edge": "edge-4567" },
      secretHeaders: ["authorization", "x-edge"],
    });
    expect(config.files).toEqual(["/etc/tw.yaml", "/etc/edge"]);
    expect(() => read("headersEnv: { x-a: MISSING }")).toThrow("variable MISSING, which is not set");
    expect(() => read("headersFile: { x-a: nothing }")).toThrow("/etc/nothing, which is empty");
    expect(() => read("headersEnv: { X-Team: GATEWAY }")).toThrow("is set twice");
  });

  test("providers, models, limits; what belongs to others is left alone", () => {
    const config = load(
      `
tools: { anything: [goes] }
limits:
  tool: { calls: 3 }
  llm: { stallTimeoutMs: 5 }
providers:
  - name: local
    api: openai-chat
    baseUrl: http://127.0.0.1:1/v1
    apiKeyEnv: LOCAL_KEY
    headers: { x-a: b }
    quirks: { streamUsage: false }
    models: [plain, { id: full, upstreamModel: u, aliases: [f], displayName: Full, contextTokens: 9, maxOutputTokens: 8, reasoning: true, tools: false, thinkTags: true, startsThinking: true }]
  - { name: show, api: demo, deltaDelayMs: 0 }
models:
  - { id: third, provider: local }
`,
      { LOCAL_KEY: "k" },
    );
    expect(config.limits).toEqual({ ...DEFAULT_LLM_LIMITS, stallTimeoutMs: 5 });
    expect(config.providers).toEqual([
      {
        kind: "http",
        api: "openai-chat",
        name: "local",
        baseUrl: "http://127.0.0.1:1/v1",
        keys: ["k"],
        limits: DEFAULT_PROVIDER_LIMITS,
        headers: { "x-a": "b" },
        quirks: { streamUsage: false },
      },
      { kind: "demo", api: "demo", name: "show", deltaDelayMs: 0 },
    ]);
    expect(config.models.map(({ id, upstreamModel }) => [id, upstreamModel])).toEqual([
      ["plain", "plain"],
      ["full", "u"],
      ["third", "third"],
    ]);
    expect(config.models[1]).toEqual({
      id: "full",
      provider: "local",
      upstreamModel: "u",
      aliases: ["f"],
      displayName: "Full",
      ownedBy: "local",
      contextTokens: 9,
      maxOutputTokens: 8,
      ...{ modalities: [], access: undefined, price: undefined, fallbacks: [] },
      reasoning: true,
      tools: false,
      reasoningTags: ["think", "thinking", "thought", "reasoning"],
      startsInReasoning: true,
    });
  });

  test("the example of docs/models.md is valid", () => {
    const page = readFileSync(new URL("../../docs/models.md", import.meta.url), "utf8");
    const example = /```yaml\n([\s\S]*?)```/.exec(page)?.[1] ?? "";
    const config = load(example, { LOCAL_KEY: "k" });
    expect(config.models).toMatchObject([
      {
        id: "small",
        upstreamModel: "org/small-7b",
        reasoningTags: ["think", "thinking", "thought", "reasoning"],
      },
    ]);
    expect(config.limits).toMatchObject({ firstTokenTimeoutMs: 120_000 });
  });

  test("the whole example of docs/models.md is valid, and its numbers are the defaults", () => {
    const page = readFileSync(new URL("../../docs/models.md", import.meta.url), "utf8");
    const [, example = ""] = [...page.matchAll(/```yaml\n([\s\S]*?)```/g)].map(([, text]) => text ?? "");
    const env = {
      MAIN_KEY_1: "key-1",
      MAIN_KEY_2: "key-2",
      PIPE_TOKEN: "token",
      GATEWAY_TOKEN: "gate",
      TURNWIRE_CONFIG: "/etc/tw.yaml",
    };
    const config = loadLlmConfig(env, (path) =>
      path === "/etc/main.key" ? "key-3\n" : path === "/etc/edge.token" ? "edge\n" : example,
    );
    expect(config.limits).toEqual(DEFAULT_LLM_LIMITS);
    expect(config.providers[0]).toMatchObject({
      keys: ["key-1", "key-2", "key-3"],
      limits: DEFAULT_PROVIDER_LIMITS,
    });
    expect(config.providers[1]).toMatchObject({ kind: "pipe", keys: ["token"], prefix: "own/" });
    expect(config.routes.map(({ kind }) => kind)).toEqual(["failover", "weighted", "arena"]);
    expect(config.prices.get("fast")).toMatchObject({ input: 150_000, cacheRead: 75_000, currency: "USD" });
    expect(config.files).toEqual(["/etc/tw.yaml", "/etc/main.key", "/etc/edge.token"]);
    expect(JSON.stringify(config.models)).not.toContain("key-");
  });

  test.each([
    ["OLLAMA_HOST", "box", "http://box:11434"],
    ["OLLAMA_HOST", "0.0.0.0", "http://127.0.0.1:11434"],
    ["OLLAMA_HOST", ":9999", "http://127.0.0.1:9999"],
    ["OLLAMA_HOST", "http://box:1", "http://box:1"],
    ["OLLAMA_HOST", "https://box.test/", "https://box.test"],
  ])("%s=%s - the server at %s", (name, value, baseUrl) => {
    expect(loadLlmConfig({ [name]: value }).providers[0]).toMatchObject({ api: "ollama-chat", baseUrl });
  });

  test("a key of Anthropic or of Gemini alone is enough", () => {
    const config = loadLlmConfig({ ANTHROPIC_API_KEY: "a", GEMINI_API_KEY: "g" });
    expect(config.providers.map(({ name, api }) => [name, api])).toEqual([
      ["anthropic", "anthropic-messages"],
      ["gemini", "gemini"],
      ["demo", "demo"],
    ]);
    expect(() => loadLlmConfig({ ANTHROPIC_API_KEY: "two words" })).toThrow(
      "ANTHROPIC_API_KEY holds a character",
    );
  });

  const own = 'providers: [{ name: a, api: openai-chat, baseUrl: "http://a/", models: [m] }]\n';
  test.each([
    [
      "a route to nobody",
      `${own}routes: [{ id: r, kind: arena, models: [x] }]`,
      "routes[0].models[0] names no model",
    ],
    [
      "a route to a route",
      `${own}routes: [{ id: r, kind: arena, models: [r] }]`,
      "routes[0].models[0] names a route",
    ],
    [
      "a route without models",
      `${own}routes: [{ id: r, kind: arena, models: [] }]`,
      "routes[0].models must name 1",
    ],
    [
      "a route named like a model",
      `${own}routes: [{ id: r, aliases: [m], kind: arena, models: [m] }]`,
      "two models called m",
    ],
    [
      "a kind that is none",
      `${own}routes: [{ id: r, kind: best, models: [m] }]`,
      "routes[0].kind must be one of",
    ],
    [
      "a weight below zero",
      `${own}routes: [{ id: r, kind: weighted, models: [{ model: m, weight: -1 }] }]`,
      "weight must",
    ],
    [
      "two prices",
      `${own}prices: [{ model: m, input: 1 }, { model: m }]`,
      "prices[1].model has a price already",
    ],
    [
      "a currency that is none",
      `${own}prices: [{ model: m, currency: dollars }]`,
      "must be an ISO 4217 code",
    ],
    [
      "a pipe without an address",
      "providers: [{ name: p, api: pipe, address: here }]",
      "address must be host:port",
    ],
    [
      "a quirk that the dialect does not know",
      'providers: [{ name: a, api: anthropic-messages, baseUrl: "http://a/", quirks: { x: 1 } }]',
      "quirks",
    ],
    [
      "a key file that is not there",
      'providers: [{ name: a, api: gemini, baseUrl: "http://a/", apiKeyFile: gone }]',
      "apiKeyFile names /etc/gone, which cannot be read",
    ],
    [
      "a fallback to nobody",
      'providers: [{ name: a, api: gemini, baseUrl: "http://a/", models: [{ id: m, fallbacks: [x] }] }]',
      "providers[0].models[0].fallbacks[0] names no model or route",
    ],
    [
      "an access list with a user of no tenant",
      'providers: [{ name: a, api: gemini, baseUrl: "http://a/", models: [{ id: m, access: [x, "user:ann"] }] }]',
      "models[0].access[1] must be a group, tenant:NAME or user:TENANT/NAME",
    ],
    [
      "two tiers of one size",
      `${own}prices: [{ model: m, tiers: [{ aboveInputTokens: 9 }, { aboveInputTokens: 9 }] }]`,
      "prices[0].tiers[1].aboveInputTokens has prices already",
    ],
  ])("%s - the error says file, line and key", (_, yaml, message) => {
    const read = (path: string): string => {
      if (path !== "/etc/tw.yaml") throw new Error("ENOENT");
      return yaml;
    };
    const act = () => loadLlmConfig({ TURNWIRE_CONFIG: "/etc/tw.yaml" }, read);
    expect(act).toThrow(message);
    expect(act).toThrow(/^\/etc\/tw\.yaml:\d+: /);
  });

  test("the environment's provider stands beside the file's, unless the file uses its key or name", () => {
    const names = (yaml: string) => load(yaml, { OPENAI_API_KEY: "k" }).providers.map(({ name }) => name);
    expect(names("{}")).toEqual(["openai", "demo"]);
    expect(names(`providers: [{ name: a, api: openai-chat, baseUrl: "http://a/" }]`)).toEqual([
      "a",
      "openai",
      "demo",
    ]);
    expect(
      names(`providers: [{ name: a, api: openai-chat, baseUrl: "http://a/", apiKeyEnv: OPENAI_API_KEY }]`),
    ).toEqual(["a", "demo"]);
    expect(names(`providers: [{ name: openai, api: openai-chat, baseUrl: "http://a/" }]`)).toEqual([
      "openai",
      "demo",
    ]);
  });

  const provider = "providers:\n  - name: a\n    api: openai-chat\n    baseUrl: http://a/\n";
  test.each([
    ["a list instead of a mapping", "- 1", "/etc/tw.yaml:1: must be a mapping", { line: "1", key: "" }],
    ["no YAML", "a: [1\nb: 2", "/etc/tw.yaml:2: ", { line: "2" }],
    [
      "a missing member",
      "providers:\n  - api: openai-chat",
      "/etc/tw.yaml:2: providers[0] lacks name",
      { line: "2", key: "providers[0]" },
    ],
    [
      "a misspelt member",
      `${provider}    apikey: x`,
      "/etc/tw.yaml:5: providers[0].apikey is not known here",
      { line: "5", key: "providers[0].apikey" },
    ],
    [
      "an unknown dialect",
      "providers:\n  - name: a\n    api: smoke",
      "/etc/tw.yaml:3: providers[0].api must be one of openai-chat, ",
      { line: "3" },
    ],
    [
      "a bad address",
      "providers:\n  - name: a\n    api: openai-chat\n    baseUrl: a.test",
      "/etc/tw.yaml:4: providers[0].baseUrl is not a URL",
      { line: "4" },
    ],
    [
      "a key that is not set",
      `${provider}    apiKeyEnv: MISSING`,
      "/etc/tw.yaml:5: providers[0].apiKeyEnv names the environment variable MISSING",
      { line: "5" },
    ],
    [
      "a provider twice",
      `${provider}  - name: a\n    api: demo`,
      "/etc/tw.yaml:5: providers[1].name names a provider twice",
      { line: "5" },
    ],
    [
      "an unknown provider",
      `${provider}models:\n  - { id: m, provider: b }`,
      "/etc/tw.yaml:6: models[0].provider names no provider",
      { line: "6" },
    ],
    [
      "a name taken twice",
      `${provider}    models: [m, { id: n, aliases: [m] }]`,
      "/etc/tw.yaml:5: providers[0].models[1].aliases[0] makes two models called m",
      { line: "5" },
    ],
    [
      "the demo's name",
      `${provider}    models: [demo]`,
      "providers[0].models[0] makes two models called demo",
      { line: "5" },
    ],
    [
      "a number that is none",
      `${provider}    models:\n      - id: m\n        contextTokens: many`,
      "/etc/tw.yaml:7: providers[0].models[0].contextTokens must be a whole number",
      { line: "7" },
    ],
    [
      "an unknown limit",
      "limits:\n  llm:\n    stall: 1",
      "/etc/tw.yaml:3: limits.llm.stall is not known here",
      { line: "3" },
    ],
    ["a member twice", "limits: {}\nlimits: {}", "/etc/tw.yaml:2: ", { line: "2" }],
  ])("%s - the error says file, line and key", (_, yaml, message, details) => {
    expect(() => load(yaml)).toThrow(message);
    expect(() => load(yaml)).toThrow(
      expect.objectContaining({
        code: ErrorCode.INVALID_ARGUMENT,
        details: expect.objectContaining(details) as unknown,
      }),
    );
  });

  test("a file that cannot be read", () => {
    const gone = (): string => {
      throw new Error("ENOENT");
    };
    expect(() => loadLlmConfig({ TURNWIRE_CONFIG: "/gone" }, gone)).toThrow(
      "TURNWIRE_CONFIG names /gone, which cannot be read",
    );
  });

  test("aliases of YAML are followed", () => {
    const provider = (name: string, headers: string): string =>
      `{ name: ${name}, api: openai-chat, baseUrl: "http://a/", headers: ${headers} }`;
    const config = load(`providers: [${provider("a", "&h { x-a: b }")}, ${provider("b", "*h")}]`);
    expect(config.providers[1]).toMatchObject({ name: "b", headers: { "x-a": "b" } });
  });

  test.each([
    ["an alias inside of its anchor", "limits: &l\n  llm: *l", "/etc/tw.yaml:2: the alias *l stands inside"],
    ["an alias of nothing", "models: []\nlimits: *l", "/etc/tw.yaml:2: the alias *l has no anchor"],
    ["an unknown tag", "models: []\nlimits: !own {}", "/etc/tw.yaml:2: Unresolved tag: !own"],
    ["a misspelt part", "models: []\nprovidors: []", "/etc/tw.yaml:2: providors is not known here (known: "],
  ])("%s is refused, as at the start", (_, yaml, message) => {
    expect(() => load(yaml)).toThrow(message);
    expect(() => load(yaml)).toThrow(expect.objectContaining({ code: ErrorCode.INVALID_ARGUMENT }));
  });
});

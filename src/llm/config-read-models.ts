/** Models, routes and prices of the configuration file. */
import type { ConfigNode } from "./config-file.js";
import {
  DEMO_MODEL_ID,
  modelOf,
  type ModelConfig,
  type PriceConfig,
  type ProviderConfig,
  type RouteConfig,
} from "./config.js";
import { DEFAULT_REASONING_TAGS } from "./providers/shared/reasoning-tags.js";

const MODEL_KEYS = [
  ...["id", "provider", "upstreamModel", "aliases", "displayName", "contextTokens", "maxOutputTokens"],
  ...["modalities", "reasoning", "tools", "thinkTags", "startsThinking", "access"],
];
const MAX_TOKENS = 0xffffffff;
const MAX_ID_BYTES = 256;

/** A model is an object, or just its id. */
export function readModel(
  node: ConfigNode,
  provider: ProviderConfig,
  tags: readonly string[] = DEFAULT_REASONING_TAGS,
): ModelConfig {
  if (node.isText()) return modelOf(idOf(node), provider.name);
  node.onlyKeys(MODEL_KEYS);
  const id = idOf(node.get("id"));
  return {
    ...modelOf(id, provider.name),
    upstreamModel: node.optional("upstreamModel")?.text() ?? id,
    aliases: node.optional("aliases")?.list().map(idOf) ?? [],
    displayName: node.optional("displayName")?.text() ?? id,
    contextTokens: node.optional("contextTokens")?.integer(0, MAX_TOKENS) ?? 0,
    maxOutputTokens: node.optional("maxOutputTokens")?.integer(0, MAX_TOKENS) ?? 0,
    modalities: node.optional("modalities")?.texts() ?? [],
    reasoning: node.optional("reasoning")?.flag(),
    tools: node.optional("tools")?.flag(),
    reasoningTags: readTags(node.optional("thinkTags"), tags),
    startsInReasoning: node.optional("startsThinking")?.flag() ?? false,
    access: node.optional("access")?.texts(),
  };
}

/** true = the usual tags, false = none, else their names. */
function readTags(node: ConfigNode | undefined, usual: readonly string[]): readonly string[] {
  if (!node) return [];
  if (node.isText() || node.isList()) return node.texts();
  return node.flag() ? usual : [];
}

function idOf(node: ConfigNode): string {
  const id = node.text();
  if (Buffer.byteLength(id) > MAX_ID_BYTES || /[\x00-\x1f\x7f]/.test(id))
    throw node.error(`must be at most ${MAX_ID_BYTES} bytes without control characters`);
  return id;
}

const ROUTE_KEYS = ["id", "kind", "models", "aliases", "displayName", "access"];
const KINDS = ["failover", "weighted", "arena"] as const;
const MAX_CANDIDATES = 64;

/** A candidate must be a model of the file, unless a provider lists models of its own. */
export function readRoutes(
  root: ConfigNode,
  models: readonly ModelConfig[],
  providers: readonly ProviderConfig[],
): RouteConfig[] {
  const nodes = root.optional("routes")?.list() ?? [];
  const routeIds = new Set(nodes.map((node) => node.get("id").text()));
  const named = new Set(models.map(({ provider }) => provider));
  const listing = providers.some(({ kind, name }) => kind !== "demo" && !named.has(name));
  const known = (id: string): boolean =>
    id === DEMO_MODEL_ID || models.some((model) => model.id === id || model.aliases.includes(id));
  return nodes.map((node) => {
    node.onlyKeys(ROUTE_KEYS);
    const id = idOf(node.get("id"));
    const candidates = node.get("models").list();
    if (candidates.length === 0 || candidates.length > MAX_CANDIDATES)
      throw node.get("models").error(`must name 1 to ${MAX_CANDIDATES} models`);
    return {
      id,
      kind: node.get("kind").oneOf(KINDS),
      aliases: node.optional("aliases")?.list().map(idOf) ?? [],
      displayName: node.optional("displayName")?.text() ?? id,
      access: node.optional("access")?.texts(),
      candidates: candidates.map((candidate) => {
        const place = candidate.isText() ? candidate : candidate.get("model");
        const modelId = idOf(place);
        if (routeIds.has(modelId)) throw place.error("names a route: only models can stand behind one");
        if (!known(modelId) && !listing) throw place.error("names no model");
        if (candidate.isText()) return { modelId, weight: 1 };
        candidate.onlyKeys(["model", "weight"]);
        return { modelId, weight: candidate.optional("weight")?.decimal(0.001, 1_000_000) ?? 1 };
      }),
    };
  });
}

/** No name may mean two things. */
export function checkNames(
  root: ConfigNode,
  models: readonly ModelConfig[],
  routes: readonly RouteConfig[],
): void {
  const taken = new Set<string>([DEMO_MODEL_ID]);
  const take = (key: string, entries: readonly Pick<RouteConfig, "id" | "aliases">[]): void => {
    for (const entry of entries) {
      for (const name of [entry.id, ...entry.aliases]) {
        if (taken.has(name)) throw (root.optional(key) ?? root).error(`has two models called ${name}`);
        taken.add(name);
      }
    }
  };
  take("providers", models);
  take("routes", routes);
}

const MICROS = 1_000_000;
const MAX_PRICE = 1_000_000;

/** Given per million tokens, in units of the currency. */
export function readPrices(root: ConfigNode): Map<string, PriceConfig> {
  const prices = new Map<string, PriceConfig>();
  for (const node of root.optional("prices")?.list() ?? []) {
    node.onlyKeys(["model", "currency", "input", "output", "cacheRead", "cacheWrite"]);
    const model = node.get("model");
    if (prices.has(model.text())) throw model.error("has a price already");
    const micros = (name: string): number | undefined => {
      const value = node.optional(name)?.decimal(0, MAX_PRICE);
      return value === undefined ? undefined : Math.round(value * MICROS);
    };
    const currency = node.optional("currency");
    if (currency && !/^[A-Z]{3}$/.test(currency.text()))
      throw currency.error("must be an ISO 4217 code such as USD");
    const input = micros("input") ?? 0;
    prices.set(model.text(), {
      ...{ currency: currency?.text() ?? "USD", input, output: micros("output") ?? 0 },
      cacheRead: micros("cacheRead") ?? input,
      cacheWrite: micros("cacheWrite") ?? input,
    });
  }
  return prices;
}

/** Models, routes and prices of the configuration file. */
import type { ConfigNode } from "./config-file.js";
import {
  DEMO_MODEL_ID,
  modelOf,
  type ModelConfig,
  type PriceConfig,
  type PriceTier,
  type ProviderConfig,
  type RouteConfig,
  type TokenPrices,
} from "./config.js";
import { DEFAULT_REASONING_TAGS } from "./providers/shared/reasoning-tags.js";

const MODEL_KEYS = [
  ...["id", "provider", "upstreamModel", "aliases", "displayName", "contextTokens", "maxOutputTokens"],
  ...["modalities", "reasoning", "tools", "thinkTags", "startsThinking", "access", "fallbacks"],
];
const MAX_TOKENS = 0xffffffff;
const MAX_ID_BYTES = 256;

/** The names of models and routes. No name may mean two things. */
export class Names {
  readonly #taken = new Set<string>([DEMO_MODEL_ID]);

  /** The name that stands there. */
  take(node: ConfigNode): string {
    const name = idOf(node);
    if (this.#taken.has(name)) throw node.error(`makes two models called ${name}`);
    this.#taken.add(name);
    return name;
  }

  takeAll(node: ConfigNode | undefined): string[] {
    return node?.list().map((each) => this.take(each)) ?? [];
  }

  has(name: string): boolean {
    return this.#taken.has(name);
  }
}

/** A model is an object, or just its id. */
export function readModel(
  node: ConfigNode,
  provider: ProviderConfig,
  names: Names,
  tags: readonly string[] = DEFAULT_REASONING_TAGS,
): ModelConfig {
  if (node.isText()) return modelOf(names.take(node), provider.name);
  node.onlyKeys(MODEL_KEYS);
  const id = names.take(node.get("id"));
  return {
    ...modelOf(id, provider.name),
    upstreamModel: node.optional("upstreamModel")?.text() ?? id,
    aliases: names.takeAll(node.optional("aliases")),
    displayName: node.optional("displayName")?.text() ?? id,
    contextTokens: node.optional("contextTokens")?.integer(0, MAX_TOKENS) ?? 0,
    maxOutputTokens: node.optional("maxOutputTokens")?.integer(0, MAX_TOKENS) ?? 0,
    modalities: node.optional("modalities")?.texts() ?? [],
    reasoning: node.optional("reasoning")?.flag(),
    tools: node.optional("tools")?.flag(),
    reasoningTags: readTags(node.optional("thinkTags"), tags),
    startsInReasoning: node.optional("startsThinking")?.flag() ?? false,
    access: readAccess(node),
    fallbacks: node.optional("fallbacks")?.list().map(idOf) ?? [],
  };
}

/** Groups, "tenant:NAME", "user:TENANT/NAME". */
function readAccess(node: ConfigNode): readonly string[] | undefined {
  const access = node.optional("access");
  for (const entry of access?.isList() ? access.list() : access ? [access] : []) {
    if (!/^(?:tenant:[^/]+|user:[^/]+\/[^/]+|[^:]+)$/.test(entry.text()))
      throw entry.error("must be a group, tenant:NAME or user:TENANT/NAME");
  }
  return access?.texts();
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

/** What routes and fallbacks may name: models of the file; others only where a provider lists models of its own. */
function mayBeThere(names: Names, models: readonly ModelConfig[], providers: readonly ProviderConfig[]) {
  const configured = new Set(models.map(({ provider }) => provider));
  const listing = providers.some(({ kind, name }) => kind !== "demo" && !configured.has(name));
  return (name: string): boolean => listing || names.has(name);
}

export function readRoutes(
  root: ConfigNode,
  names: Names,
  models: readonly ModelConfig[],
  providers: readonly ProviderConfig[],
): RouteConfig[] {
  const nodes = root.optional("routes")?.list() ?? [];
  const known = mayBeThere(names, models, providers);
  const routeNames = new Set(
    nodes.flatMap((node) => [
      node.get("id").text(),
      ...(node.optional("aliases")?.list() ?? []).map((alias) => alias.text()),
    ]),
  );
  return nodes.map((node) => {
    node.onlyKeys(ROUTE_KEYS);
    const candidates = node.get("models").list();
    if (candidates.length === 0 || candidates.length > MAX_CANDIDATES)
      throw node.get("models").error(`must name 1 to ${MAX_CANDIDATES} models`);
    const id = names.take(node.get("id"));
    return {
      id,
      kind: node.get("kind").oneOf(KINDS),
      aliases: names.takeAll(node.optional("aliases")),
      displayName: node.optional("displayName")?.text() ?? id,
      access: readAccess(node),
      candidates: candidates.map((candidate) => {
        const place = candidate.isText() ? candidate : candidate.get("model");
        const modelId = idOf(place);
        if (routeNames.has(modelId)) throw place.error("names a route: only models can stand behind one");
        if (!known(modelId)) throw place.error("names no model");
        if (candidate.isText()) return { modelId, weight: 1 };
        candidate.onlyKeys(["model", "weight"]);
        return { modelId, weight: candidate.optional("weight")?.decimal(0.001, 1_000_000) ?? 1 };
      }),
    };
  });
}

/** Once all names are known: fallbacks must be models or routes that may be there. */
export function checkFallbacks(
  nodes: readonly ConfigNode[],
  names: Names,
  models: readonly ModelConfig[],
  providers: readonly ProviderConfig[],
): void {
  const known = mayBeThere(names, models, providers);
  for (const node of nodes) {
    if (node.isText()) continue;
    for (const place of node.optional("fallbacks")?.list() ?? [])
      if (!known(place.text())) throw place.error("names no model or route");
  }
}

const MICROS = 1_000_000;
const MAX_PRICE = 1_000_000;

const TOKEN_PRICE_KEYS = ["input", "output", "reasoning", "cacheRead", "cacheWrite"];
const PRICE_KEYS = ["model", "currency", "request", "image", "tiers", ...TOKEN_PRICE_KEYS];

/** Given in units of the currency: per million tokens, per answer, per picture. */
export function readPrices(root: ConfigNode): Map<string, PriceConfig> {
  const prices = new Map<string, PriceConfig>();
  for (const node of root.optional("prices")?.list() ?? []) {
    node.onlyKeys(PRICE_KEYS);
    const model = node.get("model");
    if (prices.has(model.text())) throw model.error("has a price already");
    const currency = node.optional("currency");
    if (currency && !/^[A-Z]{3}$/.test(currency.text()))
      throw currency.error("must be an ISO 4217 code such as USD");
    const [request, image, tiers] = [micros(node, "request"), micros(node, "image"), node.optional("tiers")];
    prices.set(model.text(), {
      ...{ currency: currency?.text() ?? "USD", ...readTokenPrices(node) },
      ...(request !== undefined && { request }),
      ...(image !== undefined && { image }),
      ...(tiers && { tiers: readTiers(tiers) }),
    });
  }
  return prices;
}

function readTokenPrices(node: ConfigNode): TokenPrices {
  const input = micros(node, "input") ?? 0;
  const reasoning = micros(node, "reasoning");
  return {
    ...{ input, output: micros(node, "output") ?? 0, ...(reasoning !== undefined && { reasoning }) },
    cacheRead: micros(node, "cacheRead") ?? input,
    cacheWrite: micros(node, "cacheWrite") ?? input,
  };
}

/** In falling order, so that the first that fits holds. */
function readTiers(node: ConfigNode): PriceTier[] {
  const tiers: PriceTier[] = [];
  for (const tier of node.list()) {
    tier.onlyKeys(["aboveInputTokens", ...TOKEN_PRICE_KEYS]);
    const above = tier.get("aboveInputTokens");
    const aboveInputTokens = above.integer(1, MAX_TOKENS);
    if (tiers.some((other) => other.aboveInputTokens === aboveInputTokens))
      throw above.error("has prices already");
    tiers.push({ aboveInputTokens, ...readTokenPrices(tier) });
  }
  return tiers.sort((a, b) => b.aboveInputTokens - a.aboveInputTokens);
}

function micros(node: ConfigNode, name: string): number | undefined {
  const value = node.optional(name)?.decimal(0, MAX_PRICE);
  return value === undefined ? undefined : Math.round(value * MICROS);
}

/** What may be configured, and what holds where nothing is. */

/** A server reached over HTTP. */
export interface HttpProviderConfig {
  /** Its wire dialect. */
  readonly api: string;
  readonly name: string;
  /** Ends without a slash. */
  readonly baseUrl: string;
  /** Used in turn; [] = the server wants none. */
  readonly keys: readonly string[];
  /** Sent with each request. */
  readonly headers: Readonly<Record<string, string>>;
  /** Names of those whose values are as secret as a key. */
  readonly secretHeaders?: readonly string[];
  /** Checked by the dialect. */
  readonly quirks: Readonly<Record<string, unknown>>;
  readonly limits: ProviderLimits;
}

/** Another peer that serves LlmProxyService. */
export interface PipeProviderConfig {
  readonly api: "pipe";
  readonly name: string;
  /** "host:port", several separated by commas, or "dns:///host:port". */
  readonly address: string;
  /** At most one: the bearer token. */
  readonly keys: readonly string[];
  /** Stands before the ids of its models. */
  readonly prefix: string;
  readonly limits: ProviderLimits;
}

/** The model that needs nothing. */
export interface DemoProviderConfig {
  readonly api: "demo";
  readonly name: string;
  /** Milliseconds between deltas. */
  readonly deltaDelayMs: number;
}

export type ProviderConfig =
  | ({ readonly kind: "http" } & HttpProviderConfig)
  | ({ readonly kind: "pipe" } & PipeProviderConfig)
  | ({ readonly kind: "demo" } & DemoProviderConfig);

/** How much one provider is asked at once, and when it is left alone. */
export interface ProviderLimits {
  /** Calls at once, over all keys. */
  readonly maxConcurrent: number;
  /** Calls at once with one key. */
  readonly maxConcurrentPerKey: number;
  /** Calls that may wait for a free place. */
  readonly maxQueued: number;
  /** How long they may wait. */
  readonly queueTimeoutMs: number;
  /** Failures in a row after which the provider is not asked for a while; 0 = never. */
  readonly breakerFailures: number;
  /** How long it is not asked then. */
  readonly breakerOpenMs: number;
}

/** Millionths of the currency per million tokens. */
export interface TokenPrices {
  readonly input: number;
  readonly output: number;
  /** Of output tokens that are reasoning. Default: as output. */
  readonly reasoning?: number;
  readonly cacheRead: number;
  readonly cacheWrite: number;
}

export interface PriceConfig extends TokenPrices {
  readonly currency: string;
  /** Millionths of the currency for each answer. Default: 0. */
  readonly request?: number;
  /** Millionths of the currency for each picture that the model makes. Default: 0. */
  readonly image?: number;
  /** Prices of whole requests with more input than that, the greatest first. */
  readonly tiers?: readonly PriceTier[];
}

export interface PriceTier extends TokenPrices {
  readonly aboveInputTokens: number;
}

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
  /** What it takes beside text. */
  readonly modalities: readonly string[];
  /** undefined = unknown: parameters are passed on. */
  readonly reasoning: boolean | undefined;
  /** undefined = unknown: tools are passed on. */
  readonly tools: boolean | undefined;
  /** Names of the tags in which the server leaves reasoning in the text; [] = it does not. */
  readonly reasoningTags: readonly string[];
  /** The prompt opens such a tag: answers begin inside it. */
  readonly startsInReasoning: boolean;
  /** Who may use it: groups, "tenant:NAME", "user:TENANT/NAME"; [] = nobody, undefined = everybody. */
  readonly access: readonly string[] | undefined;
  /** undefined = unknown. */
  readonly price: PriceConfig | undefined;
  /** Models or routes that are asked when it fails, in order. */
  readonly fallbacks: readonly string[];
}

/** A name behind which several models stand. */
export interface RouteConfig {
  readonly id: string;
  readonly aliases: readonly string[];
  readonly displayName: string;
  /** failover: in order. weighted: by chance, by weight. arena: by chance, and the pick is told at the end. */
  readonly kind: "failover" | "weighted" | "arena";
  readonly candidates: readonly { readonly modelId: string; readonly weight: number }[];
  readonly access: readonly string[] | undefined;
}

/** Milliseconds, bytes, counts. */
export interface LlmLimits {
  readonly connectTimeoutMs: number;
  /** Where a request sets none. */
  readonly firstTokenTimeoutMs: number;
  /** Where a request sets none. */
  readonly stallTimeoutMs: number;
  /** One call with all its attempts and waits. */
  readonly totalTimeoutMs: number;
  readonly maxEventBytes: number;
  readonly maxResponseBytes: number;
  /** Connections to one provider with one key. */
  readonly maxConnections: number;
  /** Calls at once over all providers. */
  readonly maxCalls: number;
  /** Further attempts with a model that failed in passing. */
  readonly maxRetries: number;
  /** Before the first of them; each later one waits twice as long, with jitter. */
  readonly retryDelayMs: number;
  readonly maxRetryDelayMs: number;
  /** A provider that asks for more patience than this is not asked again. */
  readonly maxRetryAfterMs: number;
}

export interface LlmConfig {
  readonly providers: readonly ProviderConfig[];
  /** In the order of the files; providers without any are asked for theirs. */
  readonly models: readonly ModelConfig[];
  readonly routes: readonly RouteConfig[];
  /** By model id: also of models that providers list. */
  readonly prices: ReadonlyMap<string, PriceConfig>;
  readonly limits: LlmLimits;
  /** The files it was read from, keys included: those to watch. */
  readonly files: readonly string[];
}

export const DEFAULT_LLM_LIMITS: LlmLimits = {
  connectTimeoutMs: 10_000,
  firstTokenTimeoutMs: 120_000,
  stallTimeoutMs: 60_000,
  totalTimeoutMs: 600_000,
  maxEventBytes: 8 * 1024 * 1024,
  maxResponseBytes: 64 * 1024 * 1024,
  maxConnections: 512,
  maxCalls: 2_000,
  maxRetries: 2,
  retryDelayMs: 500,
  maxRetryDelayMs: 8_000,
  maxRetryAfterMs: 30_000,
};

export const DEFAULT_PROVIDER_LIMITS: ProviderLimits = {
  maxConcurrent: 512,
  maxConcurrentPerKey: 512,
  maxQueued: 1_000,
  queueTimeoutMs: 30_000,
  breakerFailures: 5,
  breakerOpenMs: 10_000,
};

export const DEMO_MODEL_ID = "demo";
export const DEFAULT_DEMO_DELAY_MS = 15;

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
    modalities: [],
    reasoning: undefined,
    tools: undefined,
    reasoningTags: [],
    startsInReasoning: false,
    access: undefined,
    price: undefined,
    fallbacks: [],
  };
}

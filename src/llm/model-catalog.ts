/**
 * Which models can be asked right now. Owns the lists that providers gave (60 s), one request at a time per provider.
 * Invariants: M1 configured names win over listed ones, `demo` is always there. M2 a provider that cannot list its models
 * hides nobody else's, and keeps what it listed last; one that is down lists nothing, and is not asked. M3 ids are unique:
 * the first provider of an id has it. What a server lists is called provider/id, too; where the id is taken, only so.
 */
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import type { Clock } from "../lib/clock.js";
import { errorCodeName, TurnError } from "../lib/errors.js";
import type { Logger } from "../lib/log.js";
import { abortable } from "../lib/signals.js";
import type { Upstream } from "./attempts/upstream.js";
import { DEMO_MODEL_ID, modelOf, type LlmConfig, type ModelConfig, type RouteConfig } from "./config.js";
import { routeAsModel } from "./routing/route-as-model.js";

const LIST_TTL_MS = 60_000;
/** A failed list, and one that lacks the asked model, may be asked for again after this. */
const RETRY_MS = 5_000;
const LIST_TIMEOUT_MS = 5_000;

/** A model with the provider that answers for it. */
export interface FoundModel {
  readonly model: ModelConfig;
  readonly upstream: Upstream;
}

interface Listing {
  models: readonly ModelConfig[];
  /** Monotonic time of the last try. */
  at: number;
  failed: TurnError | undefined;
}

export class ModelCatalog {
  readonly #models: readonly ModelConfig[];
  readonly #routes: readonly RouteConfig[];
  readonly #prices: LlmConfig["prices"];
  readonly #demo: ModelConfig;
  readonly #upstreams: ReadonlyMap<string, Upstream>;
  /** Providers that are asked what they have. */
  readonly #listing: readonly Upstream[];
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #lists = new Map<string, Listing>();
  readonly #inFlight = new Map<string, Promise<Listing>>();

  constructor(config: LlmConfig, upstreams: readonly Upstream[], clock: Clock, logger: Logger) {
    this.#prices = config.prices;
    this.#models = config.models.map((model) => this.#withPrice(model));
    this.#routes = config.routes;
    this.#upstreams = new Map(upstreams.map((upstream) => [upstream.name, upstream]));
    const demo = config.providers.find(({ api }) => api === "demo");
    this.#demo = { ...modelOf(DEMO_MODEL_ID, demo?.name ?? "demo"), ...DEMO_FACTS };
    const named = new Set(config.models.map(({ provider }) => provider));
    this.#listing = upstreams.filter(({ name }) => name !== demo?.name && !named.has(name));
    this.#clock = clock;
    this.#logger = logger;
  }

  /** All models, routes among them; the default one is the first real one, else `demo`. */
  async list(signal: AbortSignal): Promise<ModelConfig[]> {
    const up = this.#listing.filter(({ provider }) => !provider.isDown);
    const listings = await Promise.all(up.map((upstream) => this.#listOf(upstream, LIST_TTL_MS, signal)));
    const models = [...this.#models, ...listings.flatMap((listing) => listing.models)];
    const known = [...models, this.#demo];
    const routes = this.#routes.map((route) =>
      routeAsModel(
        route,
        route.candidates.flatMap(({ modelId }) => known.find((model) => isCalled(model, modelId)) ?? []),
      ),
    );
    return [...uniqueById([...this.#models, ...routes, ...models.slice(this.#models.length)]), this.#demo];
  }

  /** The route with this id or alias. */
  route(id: string): RouteConfig | undefined {
    return this.#routes.find((route) => isCalled(route, id));
  }

  /** The configured model with this id or alias. */
  named(id: string): ModelConfig | undefined {
    return this.#models.find((model) => isCalled(model, id));
  }

  /** The configured model that is called so, here or by its provider. */
  configured(name: string): ModelConfig | undefined {
    return this.named(name) ?? this.#models.find(({ upstreamModel }) => upstreamModel === name);
  }

  /** The model with this id or alias. */
  async find(id: string, signal: AbortSignal): Promise<FoundModel | undefined> {
    const named = [...this.#models, this.#demo].find((model) => isCalled(model, id));
    if (named) return this.#withUpstream(named);
    let unlisted: FoundModel | undefined;
    for (const upstream of this.#inOrderFor(id)) {
      if (!id.startsWith(upstream.prefix)) continue;
      const found = await this.#findListed(upstream, id, signal);
      if (found === "unknown")
        unlisted ??= upstream.listIsComplete ? undefined : this.#unlisted(upstream, id);
      else if (found) return this.#withUpstream(found);
    }
    return unlisted;
  }

  /** A provider that the id names comes first. */
  #inOrderFor(id: string): readonly Upstream[] {
    const named = this.#listing.find((upstream) => id.startsWith(`${upstream.name}/`));
    return named ? [named, ...this.#listing.filter((upstream) => upstream !== named)] : this.#listing;
  }

  /** A server without a list may still have the model: it will say. */
  #unlisted(upstream: Upstream, id: string): FoundModel {
    const upstreamModel = id.startsWith(`${upstream.name}/`) ? id.slice(upstream.name.length + 1) : id;
    return { model: this.#withPrice({ ...modelOf(id, upstream.name), upstreamModel }), upstream };
  }

  async #findListed(
    upstream: Upstream,
    id: string,
    signal: AbortSignal,
  ): Promise<ModelConfig | "unknown" | undefined> {
    for (const maxAgeMs of [LIST_TTL_MS, RETRY_MS]) {
      const listing = await this.#listOf(upstream, maxAgeMs, signal);
      const found = listing.models.find((model) => isCalled(model, id));
      if (found) return found;
      if (listing.failed) return "unknown";
      if (listing.models.length === 0 && id.startsWith(`${upstream.name}/`)) return "unknown"; // it has no list
      if (upstream.provider.isDown) return undefined;
    }
    return undefined;
  }

  #withUpstream(model: ModelConfig): FoundModel {
    const upstream = this.#upstreams.get(model.provider);
    if (!upstream)
      throw new TurnError(ErrorCode.INTERNAL, { cause: new Error(`no provider ${model.provider}`) });
    return { model, upstream };
  }

  #withPrice(model: ModelConfig): ModelConfig {
    return { ...model, price: this.#prices.get(model.id) ?? model.price };
  }

  #listOf(upstream: Upstream, maxAgeMs: number, signal: AbortSignal): Promise<Listing> {
    const known = this.#lists.get(upstream.name);
    if (known && upstream.provider.isDown) return Promise.resolve(known);
    const ageMs = known ? this.#clock.monotonicMs() - known.at : Infinity;
    if (known && ageMs < (known.failed ? RETRY_MS : maxAgeMs)) return Promise.resolve(known);
    let request = this.#inFlight.get(upstream.name);
    if (!request) {
      request = this.#ask(upstream, known).finally(() => this.#inFlight.delete(upstream.name));
      this.#inFlight.set(upstream.name, request);
    }
    return abortable(request, signal);
  }

  async #ask({ name, provider, prefix }: Upstream, known: Listing | undefined): Promise<Listing> {
    const listing: Listing = { models: known?.models ?? [], at: 0, failed: undefined };
    try {
      const listed = await provider.listModels(AbortSignal.timeout(LIST_TIMEOUT_MS));
      listing.models = listed.map(({ id, ownedBy, contextTokens, facts }) =>
        this.#withPrice({
          ...modelOf(id, name),
          ...{ ownedBy: ownedBy === "" ? name : ownedBy, contextTokens },
          ...(prefix === "" && { aliases: [`${name}/${id}`] }),
          ...facts,
        }),
      );
    } catch (error) {
      listing.failed =
        error instanceof TurnError ? error : new TurnError(ErrorCode.UPSTREAM_UNAVAILABLE, { cause: error });
      // Not the cause: a peer's own words may hold what must not leave.
      const { code, message } = listing.failed;
      this.#logger.warn(
        { provider: name, code: errorCodeName(code), failure: message },
        "the model provider could not list its models",
      );
    }
    listing.at = this.#clock.monotonicMs();
    this.#lists.set(name, listing);
    return listing;
  }
}

const DEMO_FACTS = {
  displayName: "Demo (no language model)",
  ownedBy: "turnwire",
  contextTokens: 32_768,
  maxOutputTokens: 4_096,
  reasoning: true,
  tools: true,
} as const;

function isCalled({ id, aliases }: Pick<ModelConfig, "id" | "aliases">, name: string): boolean {
  return id === name || aliases.includes(name);
}

/** A name belongs to the first who has it. What a server lists keeps the name with its provider. */
function uniqueById(models: readonly ModelConfig[]): ModelConfig[] {
  const taken = new Set<string>([DEMO_MODEL_ID]);
  return models.flatMap((model) => {
    const [id, ...aliases] = [model.id, ...model.aliases].filter((name) => !taken.has(name));
    const hasOwnName = id === model.id || id === `${model.provider}/${model.upstreamModel}`;
    if (id === undefined || !hasOwnName) return [];
    for (const name of [id, ...aliases]) taken.add(name);
    return [id === model.id && aliases.length === model.aliases.length ? model : { ...model, id, aliases }];
  });
}

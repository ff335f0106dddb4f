/**
 * Which models can be asked right now. Owns the lists that providers gave (60 s), one request at a time per provider.
 * Invariants: M1 configured names win over listed ones, `demo` is always there. M2 a provider that cannot list its models
 * hides nobody else's, and keeps what it listed last. M3 ids are unique: the first provider of an id has it.
 */
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import type { Clock } from "../lib/clock.js";
import { TurnError } from "../lib/errors.js";
import type { Logger } from "../lib/log.js";
import { abortable } from "../lib/signals.js";
import { DEMO_MODEL_ID, modelOf, type LlmConfig, type ModelConfig } from "./config.js";
import type { CompletionProvider } from "./providers/provider.js";

const LIST_TTL_MS = 60_000;
/** A failed list, and one that lacks the asked model, may be asked for again after this. */
const RETRY_MS = 5_000;
const LIST_TIMEOUT_MS = 5_000;

export interface ModelEntry {
  readonly model: ModelConfig;
  readonly isDefault: boolean;
}

/** A model with the provider that answers for it. */
export interface ResolvedModel {
  readonly model: ModelConfig;
  readonly provider: CompletionProvider;
}

interface Listing {
  models: readonly ModelConfig[];
  /** Monotonic time of the last try. */
  at: number;
  failed: TurnError | undefined;
}

export class ModelCatalog {
  readonly #models: readonly ModelConfig[];
  readonly #demo: ModelConfig;
  readonly #providers: ReadonlyMap<string, CompletionProvider>;
  /** Providers that are asked what they have. */
  readonly #listing: readonly CompletionProvider[];
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #lists = new Map<string, Listing>();
  readonly #inFlight = new Map<string, Promise<Listing>>();

  constructor(config: LlmConfig, providers: readonly CompletionProvider[], clock: Clock, logger: Logger) {
    this.#models = config.models;
    this.#providers = new Map(providers.map((provider) => [provider.name, provider]));
    const demo = config.providers.find(({ api }) => api === "demo");
    this.#demo = { ...modelOf(DEMO_MODEL_ID, demo?.name ?? "demo"), ...DEMO_FACTS };
    const named = new Set(config.models.map(({ provider }) => provider));
    this.#listing = providers.filter(({ name }) => name !== demo?.name && !named.has(name));
    this.#clock = clock;
    this.#logger = logger;
  }

  /** All models, the default one marked: the first real one, else `demo`. */
  async list(signal: AbortSignal): Promise<ModelEntry[]> {
    const listings = await Promise.all(
      this.#listing.map((provider) => this.#listOf(provider, LIST_TTL_MS, signal)),
    );
    const real = uniqueById([...this.#models, ...listings.flatMap(({ models }) => models)]);
    const all = [...real, this.#demo];
    return all.map((model, at) => ({ model, isDefault: at === 0 }));
  }

  /** The model with this id or alias. Throws MODEL_NOT_FOUND naming it. */
  async resolve(id: string, signal: AbortSignal): Promise<ResolvedModel> {
    const named = [...this.#models, this.#demo].find(
      (model) => model.id === id || model.aliases.includes(id),
    );
    if (named) return this.#withProvider(named);
    let unlisted: CompletionProvider | undefined;
    for (const provider of this.#listing) {
      const found = await this.#findListed(provider, id, signal);
      if (found === "unknown") unlisted ??= provider;
      else if (found) return this.#withProvider(found);
    }
    // A server without a list may still have the model: it will say.
    if (unlisted) return { model: modelOf(id, unlisted.name), provider: unlisted };
    throw new TurnError(ErrorCode.MODEL_NOT_FOUND, {
      message: `no such model: ${id.slice(0, 128)}`,
      details: { model_id: id.slice(0, 128) },
    });
  }

  async #findListed(
    provider: CompletionProvider,
    id: string,
    signal: AbortSignal,
  ): Promise<ModelConfig | "unknown" | undefined> {
    for (const maxAgeMs of [LIST_TTL_MS, RETRY_MS]) {
      const listing = await this.#listOf(provider, maxAgeMs, signal);
      const found = listing.models.find((model) => model.id === id);
      if (found) return found;
      if (listing.failed) return "unknown";
    }
    return undefined;
  }

  #withProvider(model: ModelConfig): ResolvedModel {
    const provider = this.#providers.get(model.provider);
    if (!provider)
      throw new TurnError(ErrorCode.INTERNAL, { cause: new Error(`no provider ${model.provider}`) });
    return { model, provider };
  }

  #listOf(provider: CompletionProvider, maxAgeMs: number, signal: AbortSignal): Promise<Listing> {
    const known = this.#lists.get(provider.name);
    const ageMs = known ? this.#clock.monotonicMs() - known.at : Infinity;
    if (known && ageMs < (known.failed ? RETRY_MS : maxAgeMs)) return Promise.resolve(known);
    let request = this.#inFlight.get(provider.name);
    if (!request) {
      request = this.#ask(provider, known).finally(() => this.#inFlight.delete(provider.name));
      this.#inFlight.set(provider.name, request);
    }
    return abortable(request, signal);
  }

  async #ask(provider: CompletionProvider, known: Listing | undefined): Promise<Listing> {
    const listing: Listing = { models: known?.models ?? [], at: 0, failed: undefined };
    try {
      const listed = await provider.listModels(AbortSignal.timeout(LIST_TIMEOUT_MS));
      listing.models = listed.map(({ id, ownedBy, contextTokens }) => ({
        ...modelOf(id, provider.name),
        ownedBy: ownedBy === "" ? provider.name : ownedBy,
        contextTokens,
      }));
    } catch (error) {
      listing.failed =
        error instanceof TurnError ? error : new TurnError(ErrorCode.UPSTREAM_UNAVAILABLE, { cause: error });
      this.#logger.warn(
        { provider: provider.name, err: listing.failed },
        "the model provider could not list its models",
      );
    }
    listing.at = this.#clock.monotonicMs();
    this.#lists.set(provider.name, listing);
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

function uniqueById(models: readonly ModelConfig[]): ModelConfig[] {
  const taken = new Set<string>([DEMO_MODEL_ID]);
  return models.filter((model) => {
    const free = !taken.has(model.id);
    for (const name of [model.id, ...model.aliases]) taken.add(name);
    return free;
  });
}

/**
 * One state of the configuration, in use. Owns its providers together with the states before and after it. R1 a call stays with
 * the state it began with. R2 a provider whose settings did not change is carried over, with its connections and places. R3 a
 * state that was replaced lets go of its providers when its last call has ended; who is used by no state closes.
 */
import type { Clock } from "../lib/clock.js";
import type { Logger } from "../lib/log.js";
import { Upstream } from "./attempts/upstream.js";
import type { LlmConfig, ProviderConfig } from "./config.js";
import { ModelCatalog } from "./model-catalog.js";
import { createProvider } from "./providers/create-provider.js";

export interface GenerationDeps {
  readonly clock: Clock;
  readonly logger: Logger;
}

export class Generation {
  readonly config: LlmConfig;
  readonly catalog: ModelCatalog;
  /** By what was set for them. */
  readonly #upstreams: ReadonlyMap<string, Upstream>;
  readonly #deps: GenerationDeps;
  #calls = 0;
  #replaced = false;

  constructor(config: LlmConfig, deps: GenerationDeps, before?: Generation) {
    this.config = config;
    this.#deps = deps;
    const kept: Upstream[] = [];
    this.#upstreams = new Map(
      config.providers.map((provider) => {
        const settings = JSON.stringify([provider, config.limits]);
        const upstream = before ? before.#upstreams.get(settings) : undefined;
        if (upstream) kept.push(upstream);
        return [settings, upstream ?? createUpstream(provider, config, deps)];
      }),
    );
    for (const upstream of kept) upstream.retain();
    this.catalog = new ModelCatalog(config, [...this.#upstreams.values()], deps.clock, deps.logger);
  }

  /** Its providers: those of a state before or after it may be among them. */
  get upstreams(): Iterable<Upstream> {
    return this.#upstreams.values();
  }

  get calls(): number {
    return this.#calls;
  }

  /** A call begins. The returned function says that it has ended. */
  enter(): () => void {
    this.#calls++;
    return () => {
      this.#calls--;
      if (this.#replaced && this.#calls === 0) void this.#letGo();
    };
  }

  /** A newer one took its place. */
  replace(): void {
    this.#replaced = true;
    if (this.#calls === 0) void this.#letGo();
  }

  /** Closes the providers at once; running calls end with an error. */
  async close(): Promise<void> {
    await Promise.all([...this.#upstreams.values()].map(({ provider }) => provider.close()));
  }

  async #letGo(): Promise<void> {
    try {
      await Promise.all([...this.#upstreams.values()].map((upstream) => upstream.release()));
    } catch (error) {
      this.#deps.logger.warn({ err: error }, "a provider that is used no more could not be closed");
    }
  }
}

function createUpstream(provider: ProviderConfig, { limits }: LlmConfig, deps: GenerationDeps): Upstream {
  return new Upstream(provider, createProvider(provider, { limits, ...deps }), deps.clock);
}

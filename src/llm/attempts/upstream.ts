/**
 * A provider as the calls use it: its connections, the places at it, its breaker. Owns them. U1 it closes when nobody uses it
 * any more: configurations hold it, and calls hold their configuration.
 */
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import type { Clock } from "../../lib/clock.js";
import { TurnError } from "../../lib/errors.js";
import { DEFAULT_PROVIDER_LIMITS, type ProviderConfig } from "../config.js";
import { secretsOf } from "../http/mask-secrets.js";
import { SecretMatcher } from "../http/secret-matcher.js";
import type { CompletionProvider } from "../providers/provider.js";
import { Breaker, type CallOutcome } from "./breaker.js";
import { Places, type Place } from "./places.js";
import { failureRule, keyRestMs } from "./retry-policy.js";

export class Upstream {
  readonly name: string;
  readonly provider: CompletionProvider;
  /** Stands before the ids of its models. */
  readonly prefix: string;
  /** Only it knows who may use a model of its list, so none is asked for that it does not list. */
  readonly listIsComplete: boolean;
  /** Never to be shown, whatever it says. */
  readonly secrets: SecretMatcher;
  readonly #breaker: Breaker;
  readonly #places: Places;
  #users = 1;

  constructor(config: ProviderConfig, provider: CompletionProvider, clock: Clock) {
    const keys = config.kind === "demo" ? [] : config.keys;
    const limits = config.kind === "demo" ? DEFAULT_PROVIDER_LIMITS : config.limits;
    this.name = config.name;
    this.provider = provider;
    this.prefix = config.kind === "pipe" ? config.prefix : "";
    this.listIsComplete = config.kind === "pipe";
    this.secrets = new SecretMatcher(config.kind === "demo" ? [] : secretsOf(config));
    this.#breaker = new Breaker(clock, { failures: limits.breakerFailures, openMs: limits.breakerOpenMs });
    this.#places = new Places(keys, limits, clock);
  }

  /** Whether it is asked at all at present. */
  get available(): boolean {
    return this.#breaker.isClosed;
  }

  /** Calls that have a place now, and calls that wait for one. */
  get load(): { readonly taken: number; readonly waiting: number } {
    return { taken: this.#places.taken, waiting: this.#places.waiting };
  }

  /** A key that was not tried yet could be used now. */
  hasOtherKey(tried: ReadonlySet<number>): boolean {
    return this.#places.hasOther(tried);
  }

  /**
   * A place for one attempt, with a key that was not tried if there is one. Throws UPSTREAM_UNAVAILABLE while it is down
   * or left alone, OVERLOADED when too many wait, the signal's reason when it aborts. Who gets one calls `leave`, once.
   */
  async enter(triedKeys: ReadonlySet<number>, signal: AbortSignal): Promise<Place> {
    signal.throwIfAborted();
    if (this.provider.isDown) throw notAnswering();
    const place = await this.#places.take(triedKeys, signal);
    const waitMs = this.#breaker.admit();
    if (waitMs === 0) return place;
    place.release();
    throw new TurnError(ErrorCode.UPSTREAM_UNAVAILABLE, {
      message: "the model provider is not available: it failed several times and is left alone for a while",
      retryAfterMs: Math.ceil(waitMs),
      details: { not_asked: "breaker" },
    });
  }

  /** Gives the place back. `failure`: how the attempt failed, "cancelled" = nobody wanted it any more. */
  leave(place: Place, failure: TurnError | "cancelled" | undefined): void {
    if (failure instanceof TurnError) {
      this.#places.rest(place.keyIndex, keyRestMs(failure, this.#places.keyCount), failure);
    }
    this.#breaker.settle(outcomeOf(failure));
    place.release();
  }

  retain(): void {
    this.#users++;
  }

  /** The last user closes its connections. */
  async release(): Promise<void> {
    if (--this.#users === 0) await this.provider.close();
  }
}

function notAnswering(): TurnError {
  return new TurnError(ErrorCode.UPSTREAM_UNAVAILABLE, { details: { not_asked: "health" } });
}

/** A refusal shows that the provider lives. */
function outcomeOf(failure: TurnError | "cancelled" | undefined): CallOutcome {
  if (failure === undefined) return "succeeded";
  if (failure === "cancelled" || failure.code === ErrorCode.DEADLINE_EXCEEDED) return "unknown";
  return failureRule(failure).faultOfProvider ? "failed" : "succeeded";
}

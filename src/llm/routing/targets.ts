/**
 * Who is asked for one call, in order: the model or the models behind its route, then those that the configuration names
 * for when it fails, then those that the request names. Owns the position. Later ones are looked up when they are needed: a fallback whose provider is slow to list its
 * models costs nothing while nobody needs it.
 */
import type { Caller, StreamCompletionRequest } from "../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import type { Upstream } from "../attempts/upstream.js";
import type { ModelConfig } from "../config.js";
import { TurnError } from "../../lib/errors.js";
import type { ModelCatalog } from "../model-catalog.js";
import { mayUse } from "./access.js";
import { orderCandidates } from "./order-candidates.js";

/** A model at its provider. */
export interface Target {
  readonly model: ModelConfig;
  readonly upstream: Upstream;
  /** The arena's name while it may not be told who answers; "" = it is told at once. */
  readonly hiddenAs: string;
}

type Asked = Pick<StreamCompletionRequest, "caller" | "input" | "fallbackModelIds">;

interface Candidate {
  readonly modelId: string;
  readonly hiddenAs: string;
}

export class Targets {
  readonly first: Target;
  readonly #catalog: ModelCatalog;
  readonly #caller: Caller | undefined;
  readonly #rest: Candidate[];
  #peeked: Target | undefined;

  private constructor(first: Target, rest: Candidate[], catalog: ModelCatalog, caller: Caller | undefined) {
    this.first = first;
    this.#rest = rest;
    this.#catalog = catalog;
    this.#caller = caller;
  }

  /** Throws MODEL_NOT_FOUND when the caller has no such model, or may use none of those behind the route. */
  static async of(request: Asked, catalog: ModelCatalog, signal: AbortSignal): Promise<Targets> {
    const { caller } = request;
    const asked = request.input?.modelId ?? "";
    const own = candidatesOf(asked, catalog, caller);
    const further = [
      ...own.flatMap((candidate) => fallbacksOf(candidate, catalog, caller)),
      ...request.fallbackModelIds.flatMap((id) => candidatesOf(id, catalog, caller)),
    ];
    const seen = new Set<string>();
    const rest = [...own, ...further].filter(({ modelId }) => !seen.has(modelId) && seen.add(modelId));
    // The model itself must be there; of a route, one of its models.
    const ownIds = new Set(own.map(({ modelId }) => modelId));
    for (;;) {
      const candidate = rest.shift();
      if (!candidate || !ownIds.has(candidate.modelId)) break;
      const first = await lookUp(candidate, catalog, caller, signal);
      if (first) return new Targets(first, rest, catalog, caller);
    }
    throw noSuchModel(asked);
  }

  /** The next one, if there is one; it is not taken yet. */
  async peek(signal: AbortSignal): Promise<Target | undefined> {
    while (!this.#peeked && this.#rest.length > 0)
      this.#peeked = await lookUp(this.#rest.shift()!, this.#catalog, this.#caller, signal);
    return this.#peeked;
  }

  /** Takes the one that was peeked at. */
  advance(): Target {
    const target = this.#peeked;
    if (!target) throw new Error("nobody was peeked at");
    this.#peeked = undefined;
    return target;
  }
}

function candidatesOf(id: string, catalog: ModelCatalog, caller: Caller | undefined): Candidate[] {
  const route = catalog.route(id);
  if (!route) return [{ modelId: id, hiddenAs: "" }];
  if (!mayUse(route.access, caller)) return [];
  const hiddenAs = route.kind === "arena" ? route.id : "";
  return orderCandidates(route, caller).map((modelId) => ({ modelId, hiddenAs }));
}

/** Those of the configuration. Behind an arena they are hidden as it is. */
function fallbacksOf(
  { modelId, hiddenAs }: Candidate,
  catalog: ModelCatalog,
  caller: Caller | undefined,
): Candidate[] {
  const fallbacks = catalog.named(modelId)?.fallbacks ?? [];
  return fallbacks
    .flatMap((id) => candidatesOf(id, catalog, caller))
    .map((candidate) => (hiddenAs === "" ? candidate : { ...candidate, hiddenAs }));
}

async function lookUp(
  { modelId, hiddenAs }: Candidate,
  catalog: ModelCatalog,
  caller: Caller | undefined,
  signal: AbortSignal,
): Promise<Target | undefined> {
  const found = await catalog.find(modelId, signal);
  return found && mayUse(found.model.access, caller) ? { ...found, hiddenAs } : undefined;
}

/** Not there and not yours look the same. */
export function noSuchModel(id: string): TurnError {
  const shown = id.slice(0, 128);
  return new TurnError(ErrorCode.MODEL_NOT_FOUND, {
    message: `no such model: ${shown}`,
    details: { model_id: shown },
  });
}

/** Counts open calls, of the server and of each user, and refuses more than the limits allow (OVERLOADED). */
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../errors.js";
import type { ServerLimits } from "./limits.js";
import type { Principal } from "./service-binding.js";

export class Admission {
  readonly #limits: Pick<ServerLimits, "maxCalls" | "maxCallsPerPrincipal">;
  readonly #byPrincipal = new Map<string, number>();
  #open = 0;

  constructor(limits: Pick<ServerLimits, "maxCalls" | "maxCallsPerPrincipal">) {
    this.#limits = limits;
  }

  /** Calls open now. */
  get open(): number {
    return this.#open;
  }

  /** Admits one call; the returned function gives its place back, once. Throws OVERLOADED. */
  enter(principal: Principal): () => void {
    const key = `${principal.tenantId}\u0000${principal.userId}`;
    const own = this.#byPrincipal.get(key) ?? 0;
    if (this.#open >= this.#limits.maxCalls) throw overloaded("the server", this.#limits.maxCalls);
    if (own >= this.#limits.maxCallsPerPrincipal)
      throw overloaded("one user", this.#limits.maxCallsPerPrincipal);
    this.#open++;
    this.#byPrincipal.set(key, own + 1);
    let left = false;
    return () => {
      if (left) return;
      left = true;
      this.#open--;
      const rest = (this.#byPrincipal.get(key) ?? 1) - 1;
      if (rest > 0) this.#byPrincipal.set(key, rest);
      else this.#byPrincipal.delete(key);
    };
  }
}

function overloaded(whose: string, limit: number): TurnError {
  return new TurnError(ErrorCode.OVERLOADED, {
    message: `too many open calls of ${whose} (limit ${limit})`,
    retryAfterMs: 1000,
  });
}

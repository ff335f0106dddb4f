/**
 * How much one provider is asked at once, and with which key. Owns the places of one provider: those taken, those waiting.
 * P1 never more calls than `maxConcurrent`, nor than `maxConcurrentPerKey` with one key. P2 who waits is served in order, for
 * `queueTimeoutMs` at most, and at most `maxQueued` wait; who leaves stops waiting at once. P3 a key that rests is not used; when
 * its rest is over, those who wait get it. P4 nobody waits for a place that is free to him.
 */
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import type { Clock } from "../../lib/clock.js";
import { TurnError } from "../../lib/errors.js";
import type { ProviderLimits } from "../config.js";

/** A taken place. */
export interface Place {
  /** undefined = the provider wants no key. */
  readonly key: string | undefined;
  /** Position of the key among the provider's. */
  readonly keyIndex: number;
  /** Gives the place back; once. */
  release(): void;
}

interface KeyState {
  readonly key: string | undefined;
  readonly index: number;
  taken: number;
  restsUntilMs: number;
  /** Why it rests. */
  reason: TurnError | undefined;
}

interface Waiter {
  readonly avoid: ReadonlySet<number>;
  readonly take: (place: Place) => void;
  readonly fail: (error: unknown) => void;
}

type PlaceLimits = Pick<
  ProviderLimits,
  "maxConcurrent" | "maxConcurrentPerKey" | "maxQueued" | "queueTimeoutMs"
>;

export class Places {
  readonly #clock: Clock;
  readonly #limits: PlaceLimits;
  readonly #keys: readonly KeyState[];
  readonly #waiters = new Set<Waiter>();
  #taken = 0;
  #next = 0;
  /** Ends the wait for the next key whose rest is over. */
  #restWatch: AbortController | undefined;

  constructor(keys: readonly string[], limits: PlaceLimits, clock: Clock) {
    const list = keys.length === 0 ? [undefined] : keys;
    this.#keys = list.map((key, index) => ({ key, index, taken: 0, restsUntilMs: 0, reason: undefined }));
    this.#limits = limits;
    this.#clock = clock;
  }

  get taken(): number {
    return this.#taken;
  }

  get waiting(): number {
    return this.#waiters.size;
  }

  get keyCount(): number {
    return this.#keys.length;
  }

  /** Whether a key that is not among these could be used now. */
  hasOther(tried: ReadonlySet<number>): boolean {
    return this.#usable().some(({ index }) => !tried.has(index));
  }

  /**
   * A place with the key that is used least, one outside `avoid` if there is any. Throws OVERLOADED when the queue is
   * full or the wait too long, the reason of the rest when every key rests, the signal's reason when it aborts.
   */
  async take(avoid: ReadonlySet<number>, signal: AbortSignal): Promise<Place> {
    signal.throwIfAborted();
    const resting = this.#allRest();
    if (resting) throw resting;
    const place = this.#tryTake(avoid);
    if (place) return place;
    if (this.#waiters.size >= this.#limits.maxQueued) throw overloaded("its queue is full");
    return this.#wait(avoid, signal);
  }

  /** Leaves a key alone for a while: the provider refused it. */
  rest(keyIndex: number, ms: number, reason: TurnError): void {
    const key = this.#keys[keyIndex];
    if (!key || ms <= 0) return;
    key.restsUntilMs = Math.max(key.restsUntilMs, this.#clock.monotonicMs() + ms);
    key.reason = reason;
    const resting = this.#allRest();
    if (resting) for (const waiter of [...this.#waiters]) waiter.fail(resting);
    this.#watchRest();
  }

  #usable(): KeyState[] {
    const nowMs = this.#clock.monotonicMs();
    return this.#keys.filter(({ restsUntilMs }) => restsUntilMs <= nowMs);
  }

  /** The error for calls while every key rests. */
  #allRest(): TurnError | undefined {
    if (this.#usable().length > 0) return undefined;
    const first = this.#keys.reduce((a, b) => (a.restsUntilMs <= b.restsUntilMs ? a : b));
    const leftMs = Math.ceil(first.restsUntilMs - this.#clock.monotonicMs());
    const { code, message } = first.reason ?? new TurnError(ErrorCode.RATE_LIMIT);
    return new TurnError(code, { message, retryAfterMs: leftMs, details: { not_asked: "key" } });
  }

  #tryTake(avoid: ReadonlySet<number>): Place | undefined {
    if (this.#taken >= this.#limits.maxConcurrent) return undefined;
    const usable = this.#usable();
    const wanted = usable.filter(({ index }) => !avoid.has(index));
    const free = (wanted.length > 0 ? wanted : usable).filter(
      ({ taken }) => taken < this.#limits.maxConcurrentPerKey,
    );
    if (free.length === 0) return undefined;
    // Equal ones take turns.
    const start = this.#next++;
    const inTurn = free.map((_, at) => free[(start + at) % free.length]!);
    const key = inTurn.reduce((a, b) => (a.taken <= b.taken ? a : b));
    key.taken++;
    this.#taken++;
    let released = false;
    return {
      key: key.key,
      keyIndex: key.index,
      release: () => {
        if (released) return;
        released = true;
        key.taken--;
        this.#taken--;
        this.#serve();
      },
    };
  }

  /** Gives free places to those who wait, in order; who waits for another key than the free one is passed over. */
  #serve(): void {
    for (const waiter of [...this.#waiters]) {
      if (!this.#hasRoom()) return;
      const place = this.#tryTake(waiter.avoid);
      if (place) waiter.take(place);
    }
  }

  #hasRoom(): boolean {
    const { maxConcurrent, maxConcurrentPerKey } = this.#limits;
    return this.#taken < maxConcurrent && this.#usable().some(({ taken }) => taken < maxConcurrentPerKey);
  }

  /** While somebody waits, the end of each rest is a chance for him. */
  #watchRest(): void {
    this.#restWatch?.abort();
    this.#restWatch = undefined;
    if (this.#waiters.size === 0) return;
    const nowMs = this.#clock.monotonicMs();
    const ends = this.#keys.map(({ restsUntilMs }) => restsUntilMs).filter((endMs) => endMs > nowMs);
    if (ends.length === 0) return;
    const watch = (this.#restWatch = new AbortController());
    this.#clock.sleep(Math.min(...ends) - nowMs, watch.signal).then(
      () => {
        this.#serve();
        this.#watchRest();
      },
      () => undefined, // nobody waits any more, or another rest ends first
    );
  }

  #wait(avoid: ReadonlySet<number>, signal: AbortSignal): Promise<Place> {
    return new Promise((resolve, reject) => {
      const settled = new AbortController();
      const leave = (): boolean => {
        if (!this.#waiters.delete(waiter)) return false;
        signal.removeEventListener("abort", onAbort);
        settled.abort();
        if (this.#waiters.size === 0) this.#watchRest();
        return true;
      };
      const waiter: Waiter = {
        avoid,
        take: (place) => leave() && resolve(place),
        fail: (error) => leave() && reject(error as Error),
      };
      const onAbort = (): void => waiter.fail(signal.reason);
      signal.addEventListener("abort", onAbort, { once: true });
      this.#waiters.add(waiter);
      this.#watchRest();
      this.#clock.sleep(this.#limits.queueTimeoutMs, settled.signal).then(
        () => waiter.fail(overloaded("the wait for a free place was too long")),
        () => undefined, // settled before that
      );
    });
  }
}

function overloaded(why: string): TurnError {
  return new TurnError(ErrorCode.OVERLOADED, {
    message: `the model provider is asked as much as it may be: ${why}`,
    retryAfterMs: 1_000,
    details: { not_asked: "queue" },
  });
}

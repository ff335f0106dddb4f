/**
 * Lets a health state say SERVING exactly while all dependencies answer, and says in the log who does not. Owns the loop
 * that asks them; not the health state, which a shutdown sets too.
 */
import type { Clock } from "../lib/clock.js";
import { TurnError } from "../lib/errors.js";
import type { Logger } from "../lib/log.js";
import type { HealthState } from "../lib/rpc/health.js";
import { abortable, deferred } from "../lib/signals.js";

/** Time between two questions to the dependencies, and how long their answer may take, ms. */
const ASK_EVERY_MS = 1_000;
const ANSWER_MS = 3_000;

export interface ReadinessOptions {
  readonly health: HealthState;
  /** Rejects while a dependency does not answer. */
  readonly ready: (signal: AbortSignal) => Promise<void>;
  readonly clock: Clock;
  readonly logger: Logger;
}

export class Readiness {
  readonly #options: ReadinessOptions;
  readonly #stop = new AbortController();
  readonly #first = deferred();
  /** What the log said last; "" = all is well. */
  #said: string | undefined;

  /** Asks from now on, until `close`. */
  constructor(options: ReadinessOptions) {
    this.#options = options;
    void this.#run();
  }

  /** Resolves when all dependencies have answered for the first time; rejects with the signal's reason. */
  untilReady(signal: AbortSignal): Promise<void> {
    return abortable(this.#first.promise, signal);
  }

  /** The health state stays as it is. */
  close(): void {
    this.#stop.abort();
  }

  async #run(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      const problem = await this.#ask();
      if (signal.aborted) return;
      this.#say(problem);
      this.#options.health.set(problem === "");
      if (problem === "") this.#first.resolve();
      await this.#options.clock.sleep(ASK_EVERY_MS, signal).catch(() => undefined); // closed meanwhile
    }
  }

  /** What keeps us from being ready, in public words; "" = nothing. */
  async #ask(): Promise<string> {
    const { clock, ready } = this.#options;
    const patience = new AbortController();
    const { signal } = patience;
    clock.sleep(ANSWER_MS, signal).then(
      () => patience.abort(new Error("no answer in time")),
      () => undefined, // there was an answer
    );
    const onStop = (): void => patience.abort(this.#stop.signal.reason);
    this.#stop.signal.addEventListener("abort", onStop, { once: true });
    try {
      await abortable(ready(signal), signal);
      return "";
    } catch (error) {
      return error instanceof TurnError ? error.message : "a dependency does not answer in time";
    } finally {
      this.#stop.signal.removeEventListener("abort", onStop);
      patience.abort();
    }
  }

  #say(problem: string): void {
    if (problem === this.#said) return;
    if (problem !== "") this.#options.logger.warn({ problem }, "not ready");
    else if (this.#said !== undefined) this.#options.logger.info("ready again");
    this.#said = problem;
  }
}

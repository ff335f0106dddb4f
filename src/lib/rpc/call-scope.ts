/**
 * The life of one RPC on the server, whatever the transport: one signal in which the client's leaving, the deadline, a
 * stalled reader and the server's shutdown join, each with a typed reason. The first reason stays.
 */
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { ReaderStalledSchema } from "../../../gen/turnwire/chat/v1/errors_pb.js";
import { TurnError } from "../errors.js";

/** setTimeout fires at once for longer delays. */
const MAX_TIMER_MS = 2 ** 31 - 1;

export class CallScope {
  readonly #controller = new AbortController();
  #deadlineTimer: NodeJS.Timeout | undefined;
  #closed = false;
  #deadlineAtMs: number | undefined;

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Milliseconds left of the deadline; undefined without one. */
  get timeoutMs(): number | undefined {
    return this.#deadlineAtMs === undefined ? undefined : Math.max(0, this.#deadlineAtMs - performance.now());
  }

  /** Ends the call in `ms`. A deadline too far away to matter is none. */
  setTimeout(ms: number, maxMs: number): void {
    if (!(ms < Math.min(maxMs, MAX_TIMER_MS))) return;
    this.#deadlineAtMs = performance.now() + ms;
    this.#deadlineTimer = setTimeout(
      () => this.abort(new TurnError(ErrorCode.DEADLINE_EXCEEDED)),
      Math.max(0, ms),
    );
  }

  /** Also said of calls that have ended well: those are over and stay as they are. */
  clientLeft(): void {
    if (this.#closed) return;
    this.abort(new TurnError(ErrorCode.CANCELLED, { message: "the client left" }));
  }

  readerStalled(facts: { readonly stalledMs: number; readonly bufferedBytes: number }): void {
    this.abort(
      new TurnError(ErrorCode.READER_STALLED, { typed: [{ desc: ReaderStalledSchema, value: facts }] }),
    );
  }

  abort(reason: TurnError): void {
    if (!this.#closed && !this.#controller.signal.aborted) this.#controller.abort(reason);
  }

  /** The call is over: no timers, and the signal stays as it is. What ended normally was never aborted. */
  close(): void {
    this.#closed = true;
    clearTimeout(this.#deadlineTimer);
  }
}

/** The reason with which open calls end when the server stops. */
export function shuttingDown(): TurnError {
  return new TurnError(ErrorCode.UNAVAILABLE, {
    message: "the server is shutting down, try again",
    retryAfterMs: 500,
  });
}

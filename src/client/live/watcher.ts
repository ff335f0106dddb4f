/**
 * One Watch stream, kept open. Owns the RPC that is open at the moment and the event token; what is watched and where each
 * turn stands is asked of its user at each opening.
 *
 * W1 at most one RPC is open. W2 `reopen` ends it and opens the next at once; a loss is followed by a wait that doubles.
 * W3 silence longer than `heartbeatTimeoutMs` counts as a loss. W4 what cannot get better by itself (a refused token) is
 * told and waits for `wake`. W5 an event token that the service refuses is dropped: what it stood for is read anew, as after
 * any loss.
 */
import { create } from "@bufbuild/protobuf";
import type { Client } from "@connectrpc/connect";
import {
  TurnCursorSchema,
  WatchRequestSchema,
  type ChatService,
  type WatchResponse,
} from "../../../gen/turnwire/chat/v1/chat_service_pb.js";
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import type { Clock } from "../../lib/clock.js";
import { cancellableStream } from "../cancellable-stream.js";
import { clientError, toClientError, type TurnwireClientError } from "../errors.js";
import { backoffMs } from "../resume-policy.js";
import { Watchdog } from "../../lib/watchdog.js";
import type { LinkStatus, TurnPosition } from "./hub-messages.js";

/** What the next stream shall bring. */
export interface Wanted {
  readonly sessionIds: readonly string[];
  readonly positions: readonly TurnPosition[];
}

export interface WatcherOptions {
  readonly api: Pick<Client<typeof ChatService>, "watch">;
  readonly clock: Clock;
  readonly clientId: string;
  readonly wanted: () => Wanted;
  readonly onMessage: (message: WatchResponse) => void;
  readonly onStatus: (status: LinkStatus) => void;
  /** Silence after which the stream is opened anew, milliseconds. Default 45,000: three heartbeats. */
  readonly heartbeatTimeoutMs?: number;
  /** Longest wait between two attempts, milliseconds. Default 5,000. */
  readonly maxBackoffMs?: number;
  /** Chance for the back-off, 0..1. Default Math.random. */
  readonly random?: () => number;
}

const MAX_SESSIONS = 100;
const MAX_POSITIONS = 200;
/** Errors that another attempt does not cure. */
const LASTING: ReadonlySet<ErrorCode> = new Set([
  ErrorCode.UNAUTHENTICATED,
  ErrorCode.PERMISSION_DENIED,
  ErrorCode.NOT_BUILT,
]);

export class Watcher {
  readonly #options: WatcherOptions;
  readonly #closed = new AbortController();
  #round = new AbortController();
  #attempt = 0;
  #eventToken = "";
  #wakeUp: (() => void) | undefined;

  constructor(options: WatcherOptions) {
    this.#options = options;
    void this.#run();
  }

  /** What is wanted has changed: opens the stream anew. */
  reopen(): void {
    this.#round.abort(REOPENED);
    this.#wakeUp?.();
  }

  /** The network may be back, or the token has changed: tries at once. */
  wake(): void {
    this.#attempt = 0;
    this.#wakeUp?.();
  }

  close(): void {
    this.#closed.abort();
    this.#round.abort(REOPENED);
    this.#wakeUp?.();
  }

  async #run(): Promise<void> {
    const { onStatus } = this.#options;
    onStatus({ kind: "connecting" });
    while (!this.#closed.signal.aborted) {
      this.#round = new AbortController();
      const error = await this.#read(this.#round);
      if (this.#closed.signal.aborted) return;
      if (!error) continue;
      if (isOfToken(error)) this.#eventToken = "";
      this.#attempt += 1;
      const lasting = LASTING.has(error.code);
      onStatus({ kind: lasting ? "refused" : "offline", attempt: this.#attempt, code: error.code });
      await this.#pause(lasting ? undefined : error.retryAfterMs);
    }
  }

  /** Reads one stream to its end. Undefined = it was opened anew on purpose. */
  async #read(round: AbortController): Promise<TurnwireClientError | undefined> {
    const { api, clock, heartbeatTimeoutMs = 45_000 } = this.#options;
    const watchdog = new Watchdog(clock, { ms: heartbeatTimeoutMs, expire: () => round.abort(SILENT) });
    try {
      const request = this.#request();
      const online = (): void => this.#online(round);
      const stream = cancellableStream(
        (signal) => api.watch(request, { signal, onHeader: online }),
        round.signal,
      );
      watchdog.waiting(true);
      for await (const message of stream) {
        watchdog.arrived();
        online();
        if (message.eventToken) this.#eventToken = message.eventToken;
        this.#options.onMessage(message);
        watchdog.waiting(true);
      }
      return round.signal.reason === REOPENED ? undefined : lost("the stream ended");
    } catch (thrown) {
      if (round.signal.reason === REOPENED) return undefined;
      return round.signal.reason === SILENT ? lost("nothing was heard for too long") : toClientError(thrown);
    } finally {
      watchdog.stop();
    }
  }

  #online(round: AbortController): void {
    if (round.signal.aborted) return;
    this.#attempt = 0;
    this.#options.onStatus({ kind: "online" });
  }

  #request() {
    const { sessionIds, positions } = this.#options.wanted();
    return create(WatchRequestSchema, {
      allSessionEvents: true,
      sessionIds: sessionIds.slice(0, MAX_SESSIONS),
      cursors: positions.slice(0, MAX_POSITIONS).map((position) => create(TurnCursorSchema, position)),
      afterEventToken: this.#eventToken,
      clientId: this.#options.clientId,
    });
  }

  /** Waits for the back-off; without a time, until somebody calls. */
  async #pause(atLeastMs: number | undefined): Promise<void> {
    const { clock, random = Math.random, maxBackoffMs = 5_000 } = this.#options;
    const over = new AbortController();
    const woken = new Promise<void>((resolve) => (this.#wakeUp = resolve));
    const waits = [woken];
    if (atLeastMs !== undefined) {
      const waitMs = Math.max(atLeastMs, backoffMs(this.#attempt, random(), maxBackoffMs));
      waits.push(clock.sleep(waitMs, over.signal).catch(() => undefined)); // woken first: the sleep is called off
    }
    if (this.#closed.signal.aborted) return;
    await Promise.race(waits);
    this.#wakeUp = undefined;
    over.abort();
  }
}

const REOPENED = Symbol("reopened");
const SILENT = Symbol("silent");

function isOfToken({ code, details }: TurnwireClientError): boolean {
  return code === ErrorCode.INVALID_ARGUMENT && details.facts.field === "after_event_token";
}

function lost(message: string): TurnwireClientError {
  return clientError(ErrorCode.UNAVAILABLE, message);
}

/**
 * Owns the answers this process waits for: one wildcard inbox subscription, a map from reply token to waiter, and one timer
 * for all time limits. It costs a few microseconds per request where the client's own request costs thirty.
 */
import type { Msg, MsgHdrs, NatsConnection, Subscription } from "nats";
import { createInbox } from "nats";

/** Why no answer came. "no_responders": nobody listens on the subject; the others leave open whether it was received. */
export type NoAnswerReason = "timeout" | "disconnected" | "no_responders" | "closed";

export class NoAnswerError extends Error {
  override readonly name = "NoAnswerError";
  readonly reason: NoAnswerReason;

  constructor(reason: NoAnswerReason) {
    super(`the NATS server gave no answer: ${reason}`);
    this.reason = reason;
  }
}

interface Waiter {
  take(message: Msg): void;
  fail(error: NoAnswerError): void;
  readonly deadlineMs: number;
}

const SWEEP_MS = 100;

export class NatsInbox {
  readonly #connection: NatsConnection;
  readonly #timeoutMs: number;
  readonly #prefix = `${createInbox()}.`;
  readonly #waiters = new Map<string, Waiter>();
  readonly #subscription: Subscription;
  readonly #sweeper: NodeJS.Timeout;
  #count = 0;

  constructor(connection: NatsConnection, options: { readonly timeoutMs: number }) {
    this.#connection = connection;
    this.#timeoutMs = options.timeoutMs;
    this.#subscription = connection.subscribe(`${this.#prefix}*`, {
      callback: (error, message) => {
        if (!error) this.#onMessage(message);
      },
    });
    this.#sweeper = setInterval(() => this.#sweep(), SWEEP_MS);
    this.#sweeper.unref();
  }

  /** Answers that are waited for. */
  get waiting(): number {
    return this.#waiters.size;
  }

  /** Publishes, and resolves with the one answer. Rejects with NoAnswerError. */
  ask(subject: string, payload: Uint8Array | string, headers?: MsgHdrs): Promise<Msg> {
    return new Promise((resolve, reject) => {
      const deadlineMs = performance.now() + this.#timeoutMs;
      this.#send(subject, payload, headers, { take: resolve, fail: reject, deadlineMs });
    });
  }

  /** Fails everything that is waited for. */
  failAll(reason: NoAnswerReason): void {
    const error = new NoAnswerError(reason);
    for (const [token, waiter] of this.#waiters) {
      this.#waiters.delete(token);
      waiter.fail(error);
    }
  }

  close(): void {
    clearInterval(this.#sweeper);
    this.#subscription.unsubscribe();
    this.failAll("closed");
  }

  #send(subject: string, payload: Uint8Array | string, headers: MsgHdrs | undefined, waiter: Waiter): void {
    this.#count += 1;
    const token = this.#count.toString(36);
    this.#waiters.set(token, waiter);
    try {
      const reply = this.#prefix + token;
      this.#connection.publish(subject, payload, headers ? { reply, headers } : { reply });
    } catch (error) {
      this.#waiters.delete(token);
      if (!this.#connection.isClosed()) throw error;
      waiter.fail(new NoAnswerError("closed"));
    }
  }

  #onMessage(message: Msg): void {
    const token = message.subject.slice(this.#prefix.length);
    const waiter = this.#waiters.get(token);
    if (!waiter) return; // too late
    this.#waiters.delete(token);
    const nobody = message.data.length === 0 && message.headers?.code === 503;
    if (nobody) waiter.fail(new NoAnswerError("no_responders"));
    else waiter.take(message);
  }

  #sweep(): void {
    if (this.#waiters.size === 0) return;
    const now = performance.now();
    for (const [token, waiter] of this.#waiters) {
      if (waiter.deadlineMs > now) return; // they stand in the order they were asked
      this.#waiters.delete(token);
      waiter.fail(new NoAnswerError("timeout"));
    }
  }
}

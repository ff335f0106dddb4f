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
  /** Takes one answer; true = that was the last. */
  take(message: Msg): boolean;
  fail(error: NoAnswerError): void;
  deadlineMs: number;
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
      const take = (message: Msg): boolean => {
        resolve(message);
        return true;
      };
      this.#send(subject, payload, headers, { take, fail: reject, deadlineMs: 0 });
    });
  }

  /** Publishes, and hands each answer to `take` until that returns true. Rejects when none came for the time limit. */
  collect(subject: string, payload: string, take: (message: Msg) => boolean): Promise<void> {
    return new Promise((resolve, reject) => {
      const takeOne = (message: Msg): boolean => {
        const last = take(message);
        if (last) resolve();
        return last;
      };
      this.#send(subject, payload, undefined, { take: takeOne, fail: reject, deadlineMs: 0 });
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
    waiter.deadlineMs = performance.now() + this.#timeoutMs;
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
    if (message.data.length === 0 && message.headers?.code === 503) {
      this.#waiters.delete(token);
      waiter.fail(new NoAnswerError("no_responders"));
    } else if (waiter.take(message)) {
      this.#waiters.delete(token);
    } else {
      waiter.deadlineMs = performance.now() + this.#timeoutMs;
    }
  }

  #sweep(): void {
    if (this.#waiters.size === 0) return;
    const now = performance.now();
    for (const [token, waiter] of this.#waiters) {
      if (waiter.deadlineMs > now) continue;
      this.#waiters.delete(token);
      waiter.fail(new NoAnswerError("timeout"));
    }
  }
}

/**
 * Which session a new conversation has become. Any tab of the account may have sent the message that made it, so they tell
 * each other: the tab in which it was written goes to the session too.
 */
import { Observable } from "../../client/live/observable.js";
import type { Account } from "./account.js";

interface Made {
  readonly conversation: string;
  readonly sessionId: string;
}

export class MadeSessions {
  /** The sessions by the names that their conversations had before. */
  readonly all = new Observable<ReadonlyMap<string, string>>(new Map());
  readonly #others: BroadcastChannel | undefined;

  constructor({ name }: Account) {
    if (typeof BroadcastChannel !== "function") return;
    this.#others = new BroadcastChannel(`turnwire-made-${name}`);
    this.#others.onmessage = ({ data }: MessageEvent<Made>) => this.#add(data);
  }

  /** To be called before the message leaves the outbox, which the other tabs see at once. */
  add(made: Made): void {
    this.#others?.postMessage(made);
    this.#add(made);
  }

  #add({ conversation, sessionId }: Made): void {
    this.all.set(new Map(this.all.get()).set(conversation, sessionId));
  }
}

/**
 * A tab's end of the hub. Owns what this tab watches, and repeats it when the hub is another one (after the tab that was
 * the hub has closed, or the hub had forgotten this tab).
 */
import type { WatchResponse } from "../../../gen/turnwire/chat/v1/chat_service_pb.js";
import type { HubMessage, LinkStatus, TabMessage, WatchedTurn } from "./hub-messages.js";
import { Observable } from "./observable.js";

export interface HubLinkOptions {
  readonly tabId: string;
  /** The Web Lock that this tab holds; empty = none. */
  readonly lock: string;
  readonly token: string;
  readonly post: (message: TabMessage) => void;
}

/** What a tab watches: asked for whenever the hub is told. */
export interface WatchedByTab {
  readonly sessionIds: readonly string[];
  readonly turns: readonly WatchedTurn[];
}

export class HubLink {
  readonly status = new Observable<LinkStatus>({ kind: "connecting" });
  readonly #options: HubLinkOptions;
  readonly #listeners = new Set<(message: WatchResponse) => void>();
  #watched: () => WatchedByTab = () => ({ sessionIds: [], turns: [] });

  constructor(options: HubLinkOptions) {
    this.#options = options;
  }

  /** Introduces the tab; again whenever the hub is a new one. */
  hello(): void {
    const { tabId, lock, token, post } = this.#options;
    post({ kind: "hello", tabId, lock, token });
    this.watch(true);
  }

  /** Says what the tab watches from now on. */
  watchWith(watched: () => WatchedByTab): void {
    this.#watched = watched;
    this.watch(false);
  }

  /** Tells the hub again. `resync`: packets are missing, send them from the positions on. */
  watch(resync: boolean): void {
    const { sessionIds, turns } = this.#watched();
    this.#options.post({ kind: "watch", sessionIds, turns, resync });
  }

  wake(): void {
    this.#options.post({ kind: "wake" });
  }

  alive(): void {
    this.#options.post({ kind: "alive" });
  }

  bye(): void {
    this.#options.post({ kind: "bye" });
  }

  /** The returned function ends it. */
  onMessage(listener: (message: WatchResponse) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** What the hub has sent. */
  receive(message: HubMessage): void {
    switch (message.kind) {
      case "status":
        return this.status.set(message.status);
      case "who":
        return this.hello();
      case "message":
        for (const listener of [...this.#listeners]) listener(message.message);
    }
  }
}

/**
 * The caller's sessions, last changed first, kept up to date by events. Owns the pages that were read and which sessions
 * run a turn.
 */
import type { Client } from "@connectrpc/connect";
import type {
  ChatService,
  SessionEvent,
  WatchResponse,
} from "../../../gen/turnwire/chat/v1/chat_service_pb.js";
import type { Session } from "../../../gen/turnwire/chat/v1/types_pb.js";
import { toClientError, type TurnwireClientError } from "../errors.js";
import type { HubLink } from "./hub-link.js";
import { Observable } from "./observable.js";

export interface SessionItem {
  readonly sessionId: string;
  readonly title: string;
  readonly updateTimeMs: number;
  readonly isRunning: boolean;
}

export interface SessionListView {
  readonly state: "loading" | "ready" | "failed";
  readonly error: TurnwireClientError | undefined;
  readonly items: readonly SessionItem[];
  readonly hasMore: boolean;
}

const PAGE_SIZE = 50;

export class SessionList {
  readonly view = new Observable<SessionListView>({
    state: "loading",
    error: undefined,
    items: [],
    hasMore: false,
  });
  readonly #api: Client<typeof ChatService>;
  readonly #sessions = new Map<string, Session>();
  readonly #running = new Map<string, Set<string>>();
  readonly #undo: (() => void)[] = [];
  #nextPageToken = "";
  #reading: Promise<void> | undefined;

  constructor(api: Client<typeof ChatService>, link: HubLink) {
    this.#api = api;
    this.#undo.push(link.onMessage((message) => this.#onWatch(message)));
    this.#undo.push(link.status.subscribe(() => link.status.get().kind === "online" && void this.reload()));
    void this.reload();
  }

  close(): void {
    for (const undo of this.#undo) undo();
  }

  /** Reads the first page anew. */
  reload(): Promise<void> {
    this.#reading ??= this.#read("").finally(() => (this.#reading = undefined));
    return this.#reading;
  }

  async loadMore(): Promise<void> {
    if (this.#nextPageToken) await this.#read(this.#nextPageToken);
  }

  async rename(sessionId: string, title: string): Promise<void> {
    const { session } = await this.#api.updateSession({
      session: { sessionId, title },
      updateMask: { paths: ["title"] },
    });
    if (session) this.#put(session);
    this.#publish();
  }

  async delete(sessionId: string): Promise<void> {
    await this.#api.deleteSession({ sessionId });
    this.#sessions.delete(sessionId);
    this.#publish();
  }

  async #read(pageToken: string): Promise<void> {
    try {
      const page = await this.#api.listSessions({ pageSize: PAGE_SIZE, pageToken });
      if (pageToken === "") {
        this.#sessions.clear();
        this.#running.clear();
      }
      for (const session of page.sessions) this.#put(session);
      this.#nextPageToken = page.nextPageToken;
      this.#publish();
    } catch (thrown) {
      const state = this.#sessions.size > 0 ? "ready" : "failed";
      this.view.set({ ...this.view.get(), state, error: toClientError(thrown) });
    }
  }

  #put(session: Session): void {
    this.#sessions.set(session.sessionId, session);
    this.#running.set(session.sessionId, new Set(session.activeTurns.map(({ turnId }) => turnId)));
  }

  #onWatch({ events, reload }: WatchResponse): void {
    if (reload) void this.reload();
    for (const event of events) this.#onEvent(event);
    if (events.length > 0) this.#publish();
  }

  #onEvent({ sessionId, event }: SessionEvent): void {
    const session = this.#sessions.get(sessionId);
    switch (event.case) {
      case "updated":
        return this.#put(event.value);
      case "deleted":
        this.#sessions.delete(sessionId);
        return;
      case "title":
        if (session) this.#sessions.set(sessionId, { ...session, title: event.value.title });
        return;
      case "turnStarted":
        if (session) this.#running.get(sessionId)?.add(event.value.turnId);
        else void this.reload(); // a new session
        return;
      case "turnEnded":
        this.#running.get(sessionId)?.delete(event.value.turnId);
        return;
      default:
        return;
    }
  }

  #publish(): void {
    const items = [...this.#sessions.values()]
      .filter(({ archived }) => !archived)
      .map((session) => ({
        sessionId: session.sessionId,
        title: session.title,
        updateTimeMs: session.updateTime
          ? Number(session.updateTime.seconds) * 1000 + session.updateTime.nanos / 1e6
          : 0,
        isRunning: (this.#running.get(session.sessionId)?.size ?? 0) > 0,
      }))
      .sort((a, b) => b.updateTimeMs - a.updateTimeMs);
    this.view.set({ state: "ready", error: undefined, items, hasMore: this.#nextPageToken !== "" });
  }
}

/**
 * The caller's sessions, last changed first, kept up to date by events. Owns what is known of each: the session, and which
 * of its turns run.
 */
import type { Client } from "@connectrpc/connect";
import type {
  ChatService,
  SessionEvent,
  WatchResponse,
} from "../../../gen/turnwire/chat/v1/chat_service_pb.js";
import type { Session } from "../../../gen/turnwire/chat/v1/types_pb.js";
import { toClientError, type TurnwireClientError } from "../errors.js";
import { keep } from "../view/keep.js";
import type { HubLink } from "./hub-link.js";
import { Observable } from "./observable.js";
import { PagedList } from "./paged-list.js";

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

interface Known {
  readonly session: Session;
  readonly running: ReadonlySet<string>;
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
  readonly #list: PagedList<Known>;
  readonly #undo: (() => void)[] = [];

  constructor(api: Client<typeof ChatService>, link: HubLink) {
    this.#api = api;
    this.#list = new PagedList({
      fetch: async (pageToken) => {
        const page = await api.listSessions({ pageSize: PAGE_SIZE, pageToken });
        return { items: page.sessions.map(asRead), nextPageToken: page.nextPageToken };
      },
      idOf: ({ session }) => session.sessionId,
      timeOf: ({ session }) => updateTimeMs(session),
    });
    this.#undo.push(link.onMessage((message) => this.#onWatch(message)));
    this.#undo.push(link.status.subscribe(() => link.status.get().kind === "online" && void this.reload()));
    void this.reload();
  }

  close(): void {
    for (const undo of this.#undo) undo();
  }

  /** Reads the first page anew. */
  async reload(): Promise<void> {
    await this.#read(() => this.#list.reload());
  }

  async loadMore(): Promise<void> {
    await this.#read(() => this.#list.loadMore());
  }

  async rename(sessionId: string, title: string): Promise<void> {
    const { session } = await this.#api.updateSession({
      session: { sessionId, title },
      updateMask: { paths: ["title"] },
    });
    if (session) this.#update(session);
    this.#publish();
  }

  async delete(sessionId: string): Promise<void> {
    await this.#api.deleteSession({ sessionId });
    this.#list.remove(sessionId);
    this.#publish();
  }

  async #read(read: () => Promise<void>): Promise<void> {
    try {
      await read();
      this.#publish();
    } catch (thrown) {
      const state = this.#list.size > 0 ? "ready" : "failed";
      this.view.set({ ...this.view.get(), state, error: toClientError(thrown) });
    }
  }

  #onWatch({ events, reload }: WatchResponse): void {
    if (reload) void this.reload();
    for (const event of events) this.#onEvent(event);
    if (events.length > 0) this.#publish();
  }

  #onEvent({ sessionId, event }: SessionEvent): void {
    const known = this.#list.get(sessionId);
    switch (event.case) {
      case "updated":
        return this.#update(event.value);
      case "deleted":
        return this.#list.remove(sessionId);
      case "title":
        if (!known) return void this.reload();
        return this.#list.put({ ...known, session: { ...known.session, title: event.value.title } });
      case "turnStarted":
        if (!known) return void this.reload(); // a new session
        return this.#list.put({ ...known, running: new Set(known.running).add(event.value.turnId) });
      case "turnEnded": {
        if (!known) return void this.reload();
        const running = new Set(known.running);
        running.delete(event.value.turnId);
        return this.#list.put({ ...known, running });
      }
      default:
        return;
    }
  }

  /** Takes a session's new form; which turns run, the events of turns tell. */
  #update(session: Session): void {
    const known = this.#list.get(session.sessionId);
    this.#list.put(known ? { ...known, session } : asRead(session));
  }

  /** Items that say the same stay the same objects: of thousands, a UI draws anew what changed. */
  #publish(): void {
    const before = new Map(this.view.get().items.map((item) => [item.sessionId, item]));
    const items = this.#list.items
      .filter(({ session }) => !session.archived)
      .map(({ session, running }) =>
        keep(before.get(session.sessionId), {
          sessionId: session.sessionId,
          title: session.title,
          updateTimeMs: updateTimeMs(session),
          isRunning: running.size > 0,
        }),
      );
    this.view.set({ state: "ready", error: undefined, items, hasMore: this.#list.hasMore });
  }
}

function asRead(session: Session): Known {
  return { session, running: new Set(session.activeTurns.map(({ turnId }) => turnId)) };
}

function updateTimeMs({ updateTime }: Session): number {
  return updateTime ? Number(updateTime.seconds) * 1000 + updateTime.nanos / 1e6 : 0;
}

/**
 * The hub: one Watch stream for all tabs of a browser. Owns the list of tabs, what each of them watches and how far it has
 * been served.
 *
 * H1 one stream, however many tabs. H2 a tab gets the events of all sessions, and the packets of the sessions it watches,
 * from its own cursor on: when a tab joins a turn, the stream is opened anew from the lowest cursor, and tabs that are
 * further skip what they have. H3 a tab that is gone is forgotten: it said so, its lock is free, or it has been quiet.
 * H4 without tabs there is no stream. H5 all tabs are of one user: the hub's name says whose it is.
 */
import type { WatchResponse } from "../../../gen/turnwire/chat/v1/chat_service_pb.js";
import type { Clock } from "../../lib/clock.js";
import type { HubMessage, LinkStatus, TabMessage, TurnPosition } from "./hub-messages.js";
import type { Wanted, Watcher, WatcherOptions } from "./watcher.js";

export interface WatchHubOptions {
  readonly clock: Clock;
  /** Makes the stream with this token. */
  readonly watch: (
    token: string,
    options: Pick<WatcherOptions, "wanted" | "onMessage" | "onStatus">,
  ) => Watcher;
  /** Resolves when the holder of a Web Lock is gone. Absent = the platform has none. */
  readonly lockFree?: (lock: string) => Promise<void>;
  /** How long a tab without a lock may be quiet, milliseconds. Default 180,000: browsers slow hidden tabs to one timer a minute. */
  readonly quietMs?: number;
}

/** What a tab does through its connection. */
export interface HubConnection {
  receive(message: TabMessage): void;
}

interface Tab {
  readonly post: (message: HubMessage) => void;
  sessionIds: ReadonlySet<string>;
  /** How far the tab has been served, by turn. */
  readonly turns: Map<string, { seq: number; logId: string }>;
  lock: string;
  heardAtMs: number;
}

const QUIET_MS = 180_000;

export class WatchHub {
  readonly #options: WatchHubOptions;
  readonly #tabs = new Set<Tab>();
  /** The session of each turn that is being watched. */
  readonly #sessionOf = new Map<string, string>();
  #watcher: Watcher | undefined;
  #token = "";
  #status: LinkStatus = { kind: "connecting" };

  constructor(options: WatchHubOptions) {
    this.#options = options;
  }

  /** How many tabs are connected. */
  get tabs(): number {
    return this.#tabs.size;
  }

  /** A tab has a way to speak to the hub; it counts as a tab once it says hello. */
  connect(post: (message: HubMessage) => void): HubConnection {
    const { clock } = this.#options;
    const tab: Tab = {
      post,
      sessionIds: new Set(),
      turns: new Map(),
      lock: "",
      heardAtMs: clock.monotonicMs(),
    };
    return { receive: (message) => this.#receive(tab, message) };
  }

  #receive(tab: Tab, message: TabMessage): void {
    if (message.kind === "hello") this.#tabs.add(tab);
    else if (!this.#tabs.has(tab)) return message.kind === "bye" ? undefined : tab.post({ kind: "who" });
    tab.heardAtMs = this.#options.clock.monotonicMs();
    this.#forgetQuietTabs();
    switch (message.kind) {
      case "hello":
        tab.lock = message.lock;
        if (message.lock) void this.#options.lockFree?.(message.lock).then(() => this.#forget(tab));
        this.#useToken(message.token);
        tab.post({ kind: "status", status: this.#status });
        return;
      case "watch":
        return this.#watch(tab, message);
      case "wake":
        return this.#watcher?.wake();
      case "alive":
        return;
      case "bye":
        return this.#forget(tab);
    }
  }

  #useToken(token: string): void {
    if (this.#watcher && token === this.#token) return;
    this.#watcher?.close();
    this.#token = token;
    this.#watcher = this.#options.watch(token, {
      wanted: () => this.#wanted(),
      onMessage: (message) => this.#deliver(message),
      onStatus: (status) => this.#tell(status),
    });
  }

  #watch(tab: Tab, { sessionIds, turns, resync }: TabMessage & { readonly kind: "watch" }): void {
    const before = new Set(this.#sessionIds());
    const joins = resync || sessionIds.some((id) => !tab.sessionIds.has(id));
    tab.sessionIds = new Set(sessionIds);
    const served = new Map(tab.turns);
    tab.turns.clear();
    for (const { turnId, sessionId, afterSeq, logId } of turns) {
      const known = served.get(turnId);
      tab.turns.set(turnId, known && known.seq > afterSeq && !joins ? known : { seq: afterSeq, logId });
      this.#sessionOf.set(turnId, sessionId);
    }
    const now = this.#sessionIds();
    if (joins || now.length !== before.size || now.some((id) => !before.has(id))) this.#watcher?.reopen();
  }

  #sessionIds(): string[] {
    return [...new Set([...this.#tabs].flatMap((tab) => [...tab.sessionIds]))];
  }

  /** The lowest position that a tab of the turn's session has. */
  #wanted(): Wanted {
    const positions: TurnPosition[] = [];
    for (const [turnId, sessionId] of this.#sessionOf) {
      const tabs = [...this.#tabs].filter((tab) => tab.sessionIds.has(sessionId));
      if (tabs.length === 0) {
        this.#sessionOf.delete(turnId);
        continue;
      }
      const known = tabs.map((tab) => tab.turns.get(turnId) ?? { seq: 0, logId: "" });
      const lowest = known.reduce((a, b) => (b.seq < a.seq ? b : a));
      if (lowest.seq > 0) positions.push({ turnId, afterSeq: lowest.seq, logId: lowest.logId });
    }
    return { sessionIds: this.#sessionIds(), positions };
  }

  #deliver(message: WatchResponse): void {
    const { turnId } = message;
    if (turnId) this.#learn(message);
    const sessionId = this.#sessionOf.get(turnId);
    for (const tab of this.#tabs) {
      const mine = turnId !== "" && (sessionId === undefined || tab.sessionIds.has(sessionId));
      if (mine) this.#advance(tab, message);
      if (mine || message.events.length > 0 || message.reload) tab.post({ kind: "message", message });
    }
    if (message.packets.at(-1)?.payload.case === "overallStop") this.#endTurn(turnId);
  }

  #learn({ turnId, packets }: WatchResponse): void {
    const first = packets[0];
    if (first?.payload.case === "turnStarted") this.#sessionOf.set(turnId, first.payload.value.sessionId);
  }

  /** Notes how far the tab is served; what leaves a gap is not counted, so that the next opening brings it. */
  #advance(tab: Tab, { turnId, packets, logId }: WatchResponse): void {
    const known = tab.turns.get(turnId) ?? { seq: 0, logId };
    for (const { seq } of packets) if (seq === known.seq + 1) known.seq = seq;
    if (logId) known.logId = logId;
    tab.turns.set(turnId, known);
  }

  #endTurn(turnId: string): void {
    this.#sessionOf.delete(turnId);
    for (const tab of this.#tabs) tab.turns.delete(turnId);
  }

  #tell(status: LinkStatus): void {
    if (status.kind === "online" && this.#status.kind === "online") return;
    this.#status = status;
    for (const tab of this.#tabs) tab.post({ kind: "status", status });
  }

  #forget(tab: Tab): void {
    if (!this.#tabs.delete(tab)) return;
    if (this.#tabs.size > 0) return;
    this.#watcher?.close();
    this.#watcher = undefined;
  }

  #forgetQuietTabs(): void {
    const { clock, lockFree, quietMs = QUIET_MS } = this.#options;
    const oldest = clock.monotonicMs() - quietMs;
    for (const tab of this.#tabs) if (!(tab.lock && lockFree) && tab.heardAtMs < oldest) this.#forget(tab);
  }
}

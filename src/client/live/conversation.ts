/**
 * One conversation as a page shows it. Owns its session, the part of its message tree that is known, its live turns, and
 * which branch is shown; publishes a value that changes whenever something visible did.
 *
 * C1 what the user sees never goes back: an answer that was watched stays as it was watched until its stored form is the
 * same, or better: a turn that the service does not name for a moment stays too. C2 whatever may have been missed (a lost connection, an unknown turn) is read anew, never guessed. C3 reads are
 * shared: one at a time, and one more if something happened meanwhile.
 */
import type { Client } from "@connectrpc/connect";
import type {
  ChatService,
  StartTurnResponse,
  WatchResponse,
} from "../../../gen/turnwire/chat/v1/chat_service_pb.js";
import type { SessionEvent } from "../../../gen/turnwire/chat/v1/chat_service_pb.js";
import type { Message, Session } from "../../../gen/turnwire/chat/v1/types_pb.js";
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import type { TurnStarted } from "../../../gen/turnwire/packet/v1/control_pb.js";
import { Slots } from "../../lib/slots.js";
import { toClientError, type TurnwireClientError } from "../errors.js";
import type { LaneState } from "../../../gen/turnwire/chat/v1/turn_state_pb.js";
import { viewOfLanes } from "./stored-turn.js";
import type { TurnView } from "../view/view-types.js";
import type { HubLink } from "./hub-link.js";
import { LiveTurn } from "./live-turn.js";
import { MessageTree, type Exchange } from "./message-tree.js";
import { Observable } from "./observable.js";
import type { OutboxEntry } from "./outbox.js";
import { readTurnState } from "./read-turn-state.js";

/** A question and the answers to it. */
export interface ExchangeView {
  readonly key: string;
  readonly user: Message;
  readonly userVersions: readonly string[];
  /** The answers: one lane per model. As they were watched, else as they are stored; undefined = nothing is known yet. */
  readonly turn: TurnView | undefined;
  /** The lane that the conversation goes on from. */
  readonly selectedId: string;
  readonly answerVersions: Exchange["answerVersions"];
  readonly isRunning: boolean;
  /** What the user thinks of each answer, by message. */
  readonly ratings: ReadonlyMap<string, number>;
}

export interface ConversationView {
  readonly state: "loading" | "ready" | "missing" | "failed";
  readonly error: TurnwireClientError | undefined;
  readonly session: Session | undefined;
  readonly exchanges: readonly ExchangeView[];
  /** The turn that runs; empty = none. */
  readonly runningTurnId: string;
  /** There are older messages than those shown. */
  readonly hasMore: boolean;
}

export interface ConversationDeps {
  readonly api: Client<typeof ChatService>;
  readonly link: HubLink;
  /** A turn of this conversation has ended: what waits for that may go on. */
  readonly onTurnEnded: () => void;
}

/** Reads at the same time, of what a page of messages leaves out. */
const MAX_READS = 4;
/** Messages of a page when the reader scrolls up, and when a message far up is looked for. */
const PAGE_SIZE = 50;
const MAX_PAGE_SIZE = 200;

const EMPTY: ConversationView = {
  state: "loading",
  error: undefined,
  session: undefined,
  exchanges: [],
  runningTurnId: "",
  hasMore: false,
};

export class Conversation {
  readonly sessionId: string;
  readonly view = new Observable<ConversationView>(EMPTY);
  readonly #deps: ConversationDeps;
  readonly #tree = new MessageTree();
  readonly #turns = new Map<string, LiveTurn>();
  /** Turns that the service says run. */
  readonly #running = new Set<string>();
  readonly #ended = new Set<string>();
  /** Turns whose state is being read: packets count again from there on. */
  readonly #behind = new Set<string>();
  readonly #stored = new Map<string, { readonly answers: readonly LaneState[]; readonly view: TurnView }>();
  readonly #keys = new Map<string, string>();
  readonly #abort = new AbortController();
  readonly #reads = new Slots(MAX_READS);
  readonly #undo: (() => void)[] = [];
  #session: Session | undefined;
  #leafId = "";
  #reading: Promise<void> | undefined;
  #readAgain = false;
  #readingOlder: Promise<void> | undefined;

  constructor(sessionId: string, deps: ConversationDeps) {
    this.sessionId = sessionId;
    this.#deps = deps;
    const { link } = deps;
    this.#undo.push(link.onMessage((message) => this.#onWatch(message)));
    // After a loss, what happened meanwhile may be beyond what the stream still brings.
    this.#undo.push(link.status.subscribe(() => link.status.get().kind === "online" && void this.reload()));
    void this.reload();
  }

  /** The turns that this page follows, for the hub. */
  get positions() {
    return [...this.#turns.values()].filter(({ isEnded }) => !isEnded).map(({ position }) => position);
  }

  close(): void {
    this.#abort.abort();
    for (const undo of this.#undo) undo();
  }

  /** Reads the session anew. */
  reload(): Promise<void> {
    this.#readAgain = true;
    this.#reading ??= this.#read().finally(() => (this.#reading = undefined));
    return this.#reading;
  }

  /** The service has accepted a send of this tab: its messages are known before the first packet. */
  accepted({ position, requestId }: OutboxEntry, { started }: StartTurnResponse): void {
    if (!started) return void this.reload();
    this.#keys.set(started.userMessageId, requestId);
    this.#begin(started, this.#parentFor(position));
  }

  /** Shows the branch through a message, and makes it the session's. */
  async select(messageId: string): Promise<void> {
    if (this.#tree.get(messageId)) this.#show(this.#tree.leafBelow(messageId));
    const { session } = await this.#deps.api.selectMessage({ sessionId: this.sessionId, messageId });
    if (session) this.#session = session;
    await this.reload();
  }

  /** Keeps what the user thinks of an answer. */
  async rate(messageId: string, rating: number): Promise<void> {
    const message = this.#tree.get(messageId);
    if (!message) return;
    this.#tree.add([{ ...message, rating }]);
    this.#publish();
    try {
      await this.#deps.api.setFeedback({ messageId, rating });
    } catch (error) {
      this.#tree.add([message]);
      this.#publish();
      throw error;
    }
  }

  /** Reads the next older messages of the branch; another call meanwhile is the same one. */
  loadOlder(pageSize = PAGE_SIZE): Promise<void> {
    this.#readingOlder ??= this.#readOlder(pageSize).finally(() => (this.#readingOlder = undefined));
    return this.#readingOlder;
  }

  /** Makes a message one of those shown, however far up or on whichever branch it is. False: it is not there. */
  async reveal(messageId: string): Promise<boolean> {
    await this.#reading;
    if (!this.#isShown(messageId)) await this.select(messageId);
    while (!this.#isShown(messageId)) {
      const before = this.#oldest()?.messageId;
      await this.loadOlder(MAX_PAGE_SIZE);
      if (this.#oldest()?.messageId === before) return false;
    }
    return true;
  }

  #isShown(messageId: string): boolean {
    const message = this.#tree.get(messageId);
    if (!message) return false;
    const path = this.#tree.path(this.#leafId);
    // of an answer with several lanes, one is on the branch and all are shown
    return path.some(
      (each) => each.messageId === messageId || (message.answer && each.turnId === message.turnId),
    );
  }

  /** The oldest message of the branch that is known; what is above it has not been read. */
  #oldest(): Message | undefined {
    return this.#tree.path(this.#leafId)[0];
  }

  async #readOlder(pageSize: number): Promise<void> {
    const oldest = this.#oldest();
    if (!oldest?.parentMessageId) return;
    const query = { sessionId: this.sessionId, ancestorsOf: oldest.messageId, newestFirst: true, pageSize };
    const { signal } = this.#abort;
    const page = await this.#deps.api.listMessages(query, { signal });
    this.#tree.add(page.messages);
    this.#publish();
    await this.#complete(signal);
  }

  async #read(): Promise<void> {
    while (this.#readAgain && !this.#abort.signal.aborted) {
      this.#readAgain = false;
      try {
        await this.#readOnce();
      } catch (thrown) {
        if (!this.#abort.signal.aborted) this.#failed(toClientError(thrown));
      }
    }
  }

  async #readOnce(): Promise<void> {
    const { api, onTurnEnded } = this.#deps;
    const { signal } = this.#abort;
    const reply = await api.getSession({ sessionId: this.sessionId }, { signal });
    const session = reply.session!;
    this.#session = session;
    this.#tree.add(reply.mainline);
    const wasRunning = this.#running.size > 0;
    this.#running.clear();
    for (const { turnId } of session.activeTurns) if (!this.#ended.has(turnId)) this.#running.add(turnId);
    for (const turn of session.activeTurns) this.#follow(turn.turnId);
    this.#show(this.#leafOf(session));
    await this.#complete(signal);
    if (wasRunning && this.#running.size === 0) onTurnEnded();
  }

  /** Reads what the pages have left out. */
  async #complete(signal: AbortSignal): Promise<void> {
    await Promise.all(this.#tree.withUnknownAnswers(this.#leafId).map((id) => this.#readAnswers(id, signal)));
    await this.#readCutAnswers(signal);
    this.#publish();
  }

  /** All answers to a message. */
  async #readAnswers(childrenOf: string, signal: AbortSignal): Promise<void> {
    const { sessionId } = this;
    for (let pageToken = ""; ;) {
      const page = await this.#reads.run(() =>
        this.#deps.api.listMessages({ sessionId, childrenOf, pageToken }, { signal }),
      );
      this.#tree.add(page.messages);
      pageToken = page.nextPageToken;
      if (!pageToken) return;
    }
  }

  /** Answers that were too long for the page are read whole. */
  async #readCutAnswers(signal: AbortSignal): Promise<void> {
    const cut = this.#tree
      .branch(this.#leafId)
      .flatMap(({ answers }) => answers.filter(({ answerTruncated }) => answerTruncated));
    await Promise.all(
      cut.map(async (message) => {
        const state = await this.#reads.run(() => readTurnState(this.#deps.api, message.turnId, signal));
        const answer = state.lanes.find(({ modelIndex }) => modelIndex === message.modelIndex);
        if (answer) this.#tree.add([{ ...message, answer, answerTruncated: false }]);
      }),
    );
  }

  #failed(error: TurnwireClientError): void {
    const isMissing = error.code === ErrorCode.NOT_FOUND;
    if (!isMissing && this.#session) return; // what is shown stays; the link says that the network is lost
    this.view.set({ ...this.view.get(), state: isMissing ? "missing" : "failed", error });
  }

  #onWatch(message: WatchResponse): void {
    if (message.reload) void this.reload();
    for (const event of message.events) if (event.sessionId === this.sessionId) this.#onEvent(event);
    if (message.turnId) this.#onPackets(message);
  }

  #onEvent({ event }: SessionEvent): void {
    switch (event.case) {
      case "turnStarted":
        this.#running.add(event.value.turnId);
        if (this.#tree.get(event.value.userMessageId)) this.#publish();
        else void this.reload();
        return;
      case "turnEnded":
        return this.#onEnded(event.value.turnId);
      case "updated": {
        const known = this.#session?.currentMessageId;
        this.#session = { ...event.value, activeTurns: this.#session?.activeTurns ?? [] };
        // another tab has chosen another branch
        if (event.value.currentMessageId !== known) void this.reload();
        return this.#publish();
      }
      case "title":
        if (this.#session) this.#session = { ...this.#session, title: event.value.title };
        return this.#publish();
      case "deleted":
        return this.view.set({ ...EMPTY, state: "missing" });
      default:
        return;
    }
  }

  #onPackets({ turnId, packets, logId, cursorError }: WatchResponse): void {
    const first = packets[0]?.payload;
    if (first?.case === "turnStarted") {
      if (first.value.sessionId !== this.sessionId) return;
      this.#follow(turnId);
      this.#begin(first.value, undefined);
    }
    const turn = this.#turns.get(turnId);
    if (!turn || this.#behind.has(turnId)) return;
    const trouble = cursorError ? "misunderstood" : turn.take(packets, logId)?.kind;
    if (trouble === "misunderstood") void this.#readState(turn);
    else if (trouble === "gap") this.#deps.link.watch(true);
  }

  /** The packets cannot be had, or not understood, from where we stand: takes the state, then what follows it. */
  async #readState(turn: LiveTurn): Promise<void> {
    this.#behind.add(turn.turnId);
    try {
      turn.replace(await readTurnState(this.#deps.api, turn.turnId, this.#abort.signal));
      this.#deps.link.watch(true);
    } catch {
      void this.reload(); // the session tells what has become of it
    } finally {
      this.#behind.delete(turn.turnId);
    }
  }

  #follow(turnId: string): void {
    if (this.#turns.has(turnId)) return;
    const turn = new LiveTurn(turnId, this.sessionId, { onView: () => this.#onView(turn) });
    this.#turns.set(turnId, turn);
  }

  #onView(turn: LiveTurn): void {
    if (turn.isEnded) this.#onEnded(turn.turnId);
    const view = this.view.get();
    const at = view.exchanges.findLastIndex(({ turn: shown }) => shown && shown.turnId === turn.turnId);
    const exchange = view.exchanges[at];
    if (turn.isEnded || !exchange?.isRunning) return this.#publish();
    // once per frame, however long the conversation is
    this.view.set({ ...view, exchanges: view.exchanges.with(at, { ...exchange, turn: turn.view }) });
  }

  #onEnded(turnId: string): void {
    if (this.#ended.has(turnId)) return;
    this.#ended.add(turnId);
    this.#running.delete(turnId);
    this.#publish();
    this.#deps.onTurnEnded();
    void this.reload();
  }

  /** A turn has begun: its messages are shown, on the branch that it continues. */
  #begin(started: TurnStarted, parentId: string | undefined): void {
    const { userMessageId, turnId, lanes } = started;
    this.#follow(turnId);
    if (!this.#ended.has(turnId)) this.#running.add(turnId);
    if (parentId === undefined && !this.#tree.get(userMessageId)) {
      void this.reload(); // somebody else's send: where it goes, the session knows
      return;
    }
    this.#tree.addTurn(started, parentId ?? "");
    this.#show(lanes[0]?.assistantMessageId ?? userMessageId);
  }

  #parentFor(position: OutboxEntry["position"]): string {
    switch (position.case) {
      case "end":
        return this.#leafId;
      case "after":
        return position.messageId;
      case "regenerate":
        return ""; // its user message is known
      case "edit":
        return this.#tree.get(position.messageId)?.parentMessageId ?? "";
    }
  }

  /** The end of the session's branch; while a turn runs on it, the answer that is being written. */
  #leafOf({ currentMessageId }: Session): string {
    for (const turnId of this.#running) {
      const started = this.#turns.get(turnId)?.state.started;
      const user = started && this.#tree.get(started.userMessageId);
      if (!started || !user) continue;
      const lanes = started.lanes.map(({ assistantMessageId }) => assistantMessageId);
      if (![user.messageId, user.parentMessageId, ...lanes].includes(currentMessageId)) continue;
      this.#tree.addTurn(started, "");
      return lanes.includes(currentMessageId) ? currentMessageId : (lanes[0] ?? currentMessageId);
    }
    return currentMessageId;
  }

  #show(leafId: string): void {
    this.#leafId = leafId;
    this.#publish();
  }

  #publish(): void {
    if (!this.#session && this.#tree.size === 0) return;
    const exchanges = this.#tree.branch(this.#leafId).map((exchange) => this.#exchangeView(exchange));
    const [runningTurnId = ""] = this.#running;
    this.view.set({
      state: "ready",
      error: undefined,
      session: this.#session,
      exchanges: keepSame(this.view.get().exchanges, exchanges),
      runningTurnId,
      hasMore: Boolean(this.#oldest()?.parentMessageId),
    });
  }

  #exchangeView({ user, answers, ...rest }: Exchange): ExchangeView {
    const running = [...this.#running].find(
      (id) => this.#turns.get(id)?.state.started?.userMessageId === user.messageId,
    );
    const turnId = answers[0]?.turnId ?? running ?? "";
    const live = this.#turns.get(turnId);
    const stored = this.#storedTurn(turnId, answers);
    // a turn that was lost before its end is shown as it is stored, once it is
    const isWatched = live && (live.isEnded || this.#running.has(turnId) || !stored);
    return {
      ...rest,
      key: this.#keys.get(user.messageId) ?? user.messageId,
      user,
      turn: (isWatched ? live.view : undefined) ?? stored,
      isRunning: this.#running.has(turnId),
      ratings: new Map(answers.map(({ messageId, rating }) => [messageId, rating])),
    };
  }

  /** The view of what is stored; the same one as long as the answers are. */
  #storedTurn(turnId: string, messages: readonly Message[]): TurnView | undefined {
    const answers = messages.flatMap(({ answer }) => (answer ? [answer] : []));
    if (answers.length === 0) return undefined;
    const known = this.#stored.get(turnId);
    if (
      known &&
      known.answers.length === answers.length &&
      known.answers.every((answer, i) => answer === answers[i])
    )
      return known.view;
    const view = viewOfLanes(turnId, answers);
    this.#stored.set(turnId, { answers, view });
    return view;
  }
}

/** Takes the old value wherever the new one says the same, so that a UI draws anew only what changed. */
function keepSame(before: readonly ExchangeView[], after: ExchangeView[]): readonly ExchangeView[] {
  const known = new Map(before.map((exchange) => [exchange.key, exchange]));
  return after.map((exchange) => {
    const old = known.get(exchange.key);
    return old && isSame(old, exchange) ? old : exchange;
  });
}

function isSame(a: ExchangeView, b: ExchangeView): boolean {
  return (
    a.key === b.key &&
    a.user.messageId === b.user.messageId &&
    a.turn === b.turn &&
    a.isRunning === b.isRunning &&
    a.selectedId === b.selectedId &&
    a.userVersions.join() === b.userVersions.join() &&
    a.answerVersions.length === b.answerVersions.length &&
    [...a.ratings].join() === [...b.ratings].join()
  );
}

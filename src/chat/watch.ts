/**
 * Watch: one stream for a whole page. Owns where one caller stands in the events of its sessions, and decides which turns
 * are read (watched-turns.ts) into the one bounded queue that the stream empties.
 *
 * W1 A turn that starts in a named session is read from seq 1 by itself. Running turns are looked for after the place in the
 *    events is taken, so none falls between.
 * W2 A token is told behind the events that it covers, and behind the names of the turns that they started: who has it
 *    and its cursors has lost nothing (I11).
 * W3 A slow reader stops the readers of its own turns and events, and nobody else's (I13); it is cut by the transport.
 * W4 A process that is about to end lets its watchers go as soon as none of their turns runs.
 * W5 Everything hangs on one signal: when it aborts, or the stream ends, nothing is left (I17).
 */
import { create, toBinary } from "@bufbuild/protobuf";
import {
  SessionEventSchema,
  WatchResponseSchema,
  type SessionEvent,
  type TurnCursor,
  type WatchRequest,
  type WatchResponse,
} from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../lib/errors.js";
import { messageFrame, type Principal, type StreamFrame } from "../lib/rpc/service-binding.js";
import type { SessionEvents, TurnRow } from "../store/store.js";
import type { ChatDeps } from "./ports.js";
import type { TurnReader } from "./read-turn.js";
import { viewSessionEvents } from "./session-events.js";
import type { SessionViews } from "./session-views.js";
import { notBuilt } from "./unbuilt.js";
import { WatchedTurns, WatchQueue } from "./watched-turns.js";
import { withHeartbeat } from "./with-heartbeat.js";

/** Events of one message, bytes; settings of sessions can be long. */
const MAX_EVENT_BYTES = 256 * 1024;
/** How often a watcher looks for events by itself, should a wake-up get lost. */
const LOOK_EVERY_MS = 5_000;
const LOOK_AGAIN_MS = 500;
/** Events that were read this often and could not be told are passed over. */
const MAX_TRIES_TO_TELL = 5;

export interface WatchDeps {
  readonly deps: ChatDeps;
  readonly reader: TurnReader;
  readonly views: SessionViews;
  /** Aborts when the process is about to end. */
  readonly draining: AbortSignal;
}

/** The stream of one Watch. Refusals come before anything else. */
export async function* watch(
  from: WatchDeps,
  principal: Principal,
  request: WatchRequest,
  signal: AbortSignal,
): AsyncGenerator<StreamFrame<WatchResponse>, void> {
  if (request.shareToken) throw notBuilt("share_token");
  signal.throwIfAborted();
  const { deps, draining } = from;
  const watcher = new Watcher(from, principal, request);
  // A generator that waits to be asked never runs its `finally`: the signal ends what it owns.
  const onAbort = (): void => watcher.close(signal.reason);
  const onDraining = (): void => watcher.leaveWhenIdle();
  signal.addEventListener("abort", onAbort, { once: true });
  draining.addEventListener("abort", onDraining, { once: true });
  try {
    watcher.start();
    for await (const beat of withHeartbeat(watcher.queue, deps.limits.heartbeatMs, deps.clock))
      yield beat.kind === "value" ? beat.value : messageFrame(create(WatchResponseSchema));
  } finally {
    signal.removeEventListener("abort", onAbort);
    draining.removeEventListener("abort", onDraining);
    watcher.close();
  }
}

class Watcher {
  readonly queue = new WatchQueue();
  readonly #deps: ChatDeps;
  readonly #views: SessionViews;
  readonly #draining: AbortSignal;
  readonly #principal: Principal;
  readonly #allEvents: boolean;
  readonly #sessionIds: ReadonlySet<string>;
  readonly #cursors: ReadonlyMap<string, TurnCursor>;
  readonly #turns: WatchedTurns;
  readonly #life = new AbortController();
  /** How often events were read since some were told. */
  #triesToTell = 0;
  #token: string;
  #wake = new AbortController();
  #unsubscribe: () => void = () => undefined;

  constructor(from: WatchDeps, principal: Principal, request: WatchRequest) {
    this.#deps = from.deps;
    this.#views = from.views;
    this.#draining = from.draining;
    this.#principal = principal;
    this.#allEvents = request.allSessionEvents;
    this.#sessionIds = new Set(request.sessionIds);
    this.#cursors = new Map(request.cursors.map((cursor) => [cursor.turnId, cursor]));
    this.#turns = new WatchedTurns(from, this.queue, this.#cursors, () => this.leaveWhenIdle());
    this.#token = request.afterEventToken;
  }

  start(): void {
    this.#unsubscribe = this.#deps.store.onSessionEvent(this.#principal, () => this.#wake.abort());
    this.#run().catch((error: unknown) => this.queue.fail(error));
  }

  /** Ends the stream of a process that is about to end, once no turn is read: its client goes on elsewhere. */
  leaveWhenIdle(): void {
    if (!this.#draining.aborted || !this.#turns.idle) return;
    this.queue.fail(
      new TurnError(ErrorCode.UNAVAILABLE, { message: "the server is shutting down: watch again" }),
    );
  }

  close(reason?: unknown): void {
    if (this.#life.signal.aborted) return;
    this.#unsubscribe();
    this.#life.abort(reason);
    this.#wake.abort();
    this.#turns.close();
    this.queue.drop();
    this.queue.fail(this.#life.signal.reason);
  }

  async #run(): Promise<void> {
    const events = await this.#deps.store.readSessionEvents(this.#principal, this.#token);
    await this.queue.pushMessage({ eventToken: this.#token || events.token }); // the stream stands
    await this.#tellMissing();
    await this.#take(events);
    await this.#startKnown();
    await this.#startRunning();
    this.leaveWhenIdle();
    await this.#follow();
  }

  /**
   * Reads events whenever there may be some. A store that is away is asked again: the turns go on meanwhile. Events that
   * cannot be told are passed over after a few tries: the reader is told to read its lists anew.
   */
  async #follow(): Promise<void> {
    const { clock, logger } = this.#deps;
    let waitMs = LOOK_EVERY_MS;
    let isWell = true;
    for (;;) {
      await clock.sleep(waitMs, this.#wake.signal).catch(() => undefined); // woken
      if (this.#life.signal.aborted || this.#draining.aborted) return;
      this.#wake = new AbortController();
      try {
        await this.#look();
        waitMs = LOOK_EVERY_MS;
        isWell = true;
      } catch (error) {
        if (isWell) logger.warn({ err: error }, "events of sessions could not be told, tried again");
        isWell = false;
        waitMs = LOOK_AGAIN_MS;
      }
    }
  }

  async #look(): Promise<void> {
    const events = await this.#deps.store.readSessionEvents(this.#principal, this.#token);
    const passOver = this.#triesToTell++ >= MAX_TRIES_TO_TELL;
    await this.#take(passOver ? { ...events, rows: [], missed: true } : events);
    this.#triesToTell = 0;
  }

  /** Tells events and starts the turns that they name. Throws without having moved on. */
  async #take({ rows, token, missed }: SessionEvents): Promise<void> {
    const isNamed = (row: { readonly sessionId: string }): boolean => this.#sessionIds.has(row.sessionId);
    const wanted = rows.filter((row) => this.#allEvents || (row.kind === "deleted" && isNamed(row)));
    const events = await viewSessionEvents(
      this.#deps,
      this.#views,
      this.#principal,
      wanted,
      this.#life.signal,
    );
    const turns = await this.#load(
      rows.flatMap((row) => ("turnId" in row && isNamed(row) ? [row.turnId] : [])),
    );
    for (const part of inMessages(events)) await this.queue.pushMessage({ events: part });
    for (const row of rows) if (row.kind === "deleted") this.#turns.leave(row.sessionId);
    for (const turn of turns) this.#turns.start(turn);
    if (missed) await this.#startRunning();
    if (rows.length > 0 || missed) await this.queue.pushMessage({ eventToken: token, reload: missed });
    this.#token = token;
  }

  /** A named session that is not there, or not the caller's, is told as deleted. */
  async #tellMissing(): Promise<void> {
    if (this.#sessionIds.size === 0) return;
    const missing = new Set(this.#sessionIds);
    for (const session of await this.#deps.store.getSessions(this.#principal, [...missing]))
      missing.delete(session.sessionId);
    const events = [...missing].map((sessionId) =>
      create(SessionEventSchema, { sessionId, event: { case: "deleted", value: true } }),
    );
    if (events.length > 0) await this.queue.pushMessage({ events });
  }

  /** Starts the turns that the client has a part of, where their sessions are named. */
  async #startKnown(): Promise<void> {
    const turns = await this.#load([...this.#cursors.keys()]);
    const found = new Set(turns.map((turn) => turn.turnId));
    for (const turn of turns) if (this.#sessionIds.has(turn.sessionId)) this.#turns.start(turn);
    for (const turnId of this.#cursors.keys()) {
      if (found.has(turnId) || this.#turns.has(turnId)) continue;
      const notFound = new TurnError(ErrorCode.NOT_FOUND, { message: `no turn ${turnId}` });
      await this.#turns.refuse(turnId, notFound);
    }
  }

  async #startRunning(): Promise<void> {
    if (this.#sessionIds.size === 0) return;
    const running = await this.#deps.store.listRunningTurns(this.#principal, [...this.#sessionIds]);
    for (const turn of running) this.#turns.start(turn);
  }

  async #load(turnIds: readonly string[]): Promise<readonly TurnRow[]> {
    const wanted = [...new Set(turnIds)].filter((turnId) => !this.#turns.has(turnId));
    return wanted.length === 0 ? [] : this.#deps.store.getTurns(this.#principal, wanted);
  }
}

/** Events in messages of a bounded size. */
function* inMessages(events: readonly SessionEvent[]): Generator<SessionEvent[]> {
  let part: SessionEvent[] = [];
  let bytes = 0;
  for (const event of events) {
    const size = toBinary(SessionEventSchema, event).length;
    if (part.length > 0 && bytes + size > MAX_EVENT_BYTES) {
      yield part;
      part = [];
      bytes = 0;
    }
    part.push(event);
    bytes += size;
  }
  if (part.length > 0) yield part;
}

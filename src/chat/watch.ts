/**
 * Watch: one stream for a whole page. Owns what one caller watches: the readers of turns, where it stands in the events of
 * its sessions, and the one bounded queue that all of them feed and the stream empties.
 *
 * W1 Packets of a turn are exactly the logged bytes, in order, without a gap (I1); the turn's id is appended to them.
 * W2 A turn that starts in a named session is read from seq 1 by itself. It is looked for after the place in the events is
 *    taken, so none falls between.
 * W3 A turn that cannot be read from its cursor is told so by type and ends alone. What may pass ends the whole stream:
 *    the client opens it anew with its cursors and its token.
 * W4 A slow reader stops the readers of its turns and of its events, and nobody else's (I13); it is cut by the transport.
 * W5 Everything hangs on one signal: when it aborts, or the stream ends, nothing is left (I17).
 */
import { create, toBinary, type MessageInitShape } from "@bufbuild/protobuf";
import {
  SessionEventSchema,
  WatchResponseSchema,
  type SessionEvent,
  type TurnCursor,
  type WatchRequest,
  type WatchResponse,
} from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { AsyncQueue } from "../lib/async-queue.js";
import { TurnError } from "../lib/errors.js";
import { messageFrame, type Principal, type StreamFrame } from "../lib/rpc/service-binding.js";
import type { SessionEvents, TurnRow } from "../store/store.js";
import { errorMessage } from "../turn/packets.js";
import type { ChatDeps } from "./ports.js";
import type { ReadBatch, TurnReader } from "./read-turn.js";
import { viewSessionEvents } from "./session-events.js";
import type { SessionViews } from "./session-views.js";
import { FROM_THE_START, heartbeatPackets, turnBeats } from "./turn-streams.js";
import { notBuilt } from "./unbuilt.js";
import { withHeartbeat } from "./with-heartbeat.js";

type Frame = StreamFrame<WatchResponse>;

/** Bytes that wait here for the reader, beside one batch of each turn. */
const MAX_QUEUED_BYTES = 256 * 1024;
const MESSAGE_WEIGHT = 1024;
/** Events of one message, bytes. */
const MAX_EVENT_BYTES = 256 * 1024;
/** How often a watcher looks for events by itself, should a wake-up get lost. */
const LOOK_EVERY_MS = 5_000;
const LOOK_AGAIN_MS = 500;
/** Ended turns that are read at the same time. */
const MAX_ENDED_AT_ONCE = 4;
/** Turns that were read to their end and are remembered, so that an event told twice does not read them again. */
const MAX_REMEMBERED = 1_000;

/** What becomes of one turn alone; everything else ends the stream. */
const OF_ONE_TURN: ReadonlySet<ErrorCode> = new Set([
  ErrorCode.CURSOR_EXPIRED,
  ErrorCode.CURSOR_AHEAD,
  ErrorCode.LOG_REPLACED,
  ErrorCode.LOG_TRUNCATED,
  ErrorCode.NOT_FOUND,
]);

export async function* watch(
  deps: ChatDeps,
  reader: TurnReader,
  views: SessionViews,
  principal: Principal,
  request: WatchRequest,
  signal: AbortSignal,
): AsyncGenerator<Frame, void> {
  if (request.shareToken) throw notBuilt("share_token");
  signal.throwIfAborted();
  const watcher = new Watcher(deps, reader, views, principal, request);
  // A generator that waits to be asked never runs its `finally`: the signal ends what it owns.
  const onAbort = (): void => watcher.close(signal.reason);
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    watcher.start();
    for await (const beat of withHeartbeat(watcher.frames, deps.limits.heartbeatMs, deps.clock))
      yield beat.kind === "value" ? beat.value : messageFrame(create(WatchResponseSchema));
  } finally {
    signal.removeEventListener("abort", onAbort);
    watcher.close();
  }
}

interface WatchedTurn {
  readonly sessionId: string;
  /** Ends the reading. */
  readonly until: AbortController;
  done: boolean;
}

class Watcher {
  readonly frames = new AsyncQueue<Frame>(MAX_QUEUED_BYTES);
  readonly #deps: ChatDeps;
  readonly #reader: TurnReader;
  readonly #views: SessionViews;
  readonly #principal: Principal;
  readonly #request: WatchRequest;
  readonly #sessionIds: ReadonlySet<string>;
  readonly #cursors: ReadonlyMap<string, TurnCursor>;
  readonly #life = new AbortController();
  /** Turns that are read, and some that were. */
  readonly #turns = new Map<string, WatchedTurn>();
  readonly #ended: TurnRow[] = [];
  #readingEnded = 0;
  #token: string;
  #wake = new AbortController();
  #unsubscribe: () => void = () => undefined;

  constructor(
    deps: ChatDeps,
    reader: TurnReader,
    views: SessionViews,
    principal: Principal,
    request: WatchRequest,
  ) {
    this.#deps = deps;
    this.#reader = reader;
    this.#views = views;
    this.#principal = principal;
    this.#request = request;
    this.#sessionIds = new Set(request.sessionIds);
    this.#cursors = new Map(request.cursors.map((cursor) => [cursor.turnId, cursor]));
    this.#token = request.afterEventToken;
  }

  start(): void {
    this.#unsubscribe = this.#deps.store.onSessionEvent(this.#principal, () => this.#wake.abort());
    this.#open()
      .then(() => this.#follow())
      .catch((error: unknown) => this.frames.fail(error));
  }

  close(reason?: unknown): void {
    if (this.#life.signal.aborted) return;
    this.#unsubscribe();
    this.#life.abort(reason);
    this.#wake.abort();
    for (const turn of this.#turns.values()) turn.until.abort();
    this.#ended.length = 0;
    this.frames.drop();
    this.frames.fail(this.#life.signal.reason);
  }

  /** Takes the place in the events, then starts what there is to read. */
  async #open(): Promise<void> {
    const events = await this.#deps.store.readSessionEvents(this.#principal, this.#token);
    if (this.#token === "") await this.#push({ eventToken: events.token }); // says that the stream stands
    await this.#tellMissing();
    await this.#take(events);
    await this.#startKnown();
    await this.#startRunning();
  }

  /** Reads events whenever there may be some. A store that is away is asked again: the turns go on meanwhile. */
  async #follow(): Promise<void> {
    const { clock, store, logger } = this.#deps;
    let waitMs = LOOK_EVERY_MS;
    for (;;) {
      await clock.sleep(waitMs, this.#wake.signal).catch(() => undefined); // woken
      if (this.#life.signal.aborted) return;
      this.#wake = new AbortController();
      try {
        await this.#take(await store.readSessionEvents(this.#principal, this.#token));
        waitMs = LOOK_EVERY_MS;
      } catch (error) {
        logger.debug({ err: error }, "events of sessions could not be read, tried again");
        waitMs = LOOK_AGAIN_MS;
      }
    }
  }

  /** Tells events and starts the turns that they name. Throws without having moved on. */
  async #take({ rows, token, missed }: SessionEvents): Promise<void> {
    const wanted = rows.filter(
      (row) =>
        this.#request.allSessionEvents || (row.kind === "deleted" && this.#sessionIds.has(row.sessionId)),
    );
    const events = await viewSessionEvents(
      this.#deps,
      this.#views,
      this.#principal,
      wanted,
      this.#life.signal,
    );
    const turns = await this.#load(
      rows.flatMap((row) => ("turnId" in row && this.#sessionIds.has(row.sessionId) ? [row.turnId] : [])),
    );
    for (const part of inMessages(events)) await this.#push({ events: part });
    if (missed) await this.#startRunning();
    for (const row of rows) if (row.kind === "deleted") this.#leave(row.sessionId);
    for (const turn of turns) this.#start(turn);
    // Last: who has the token has been told everything before it.
    if (rows.length > 0 || missed) await this.#push({ eventToken: token, reload: missed });
    this.#token = token;
  }

  /** A named session that is not there, or not the caller's, is told as deleted. */
  async #tellMissing(): Promise<void> {
    if (this.#sessionIds.size === 0) return;
    const there = await this.#deps.store.getSessions(this.#principal, [...this.#sessionIds]);
    const missing = new Set(this.#sessionIds);
    for (const session of there) missing.delete(session.sessionId);
    if (missing.size > 0) await this.#push({ events: [...missing].map(deletedEvent) });
  }

  /** Starts the turns that the client has a part of. */
  async #startKnown(): Promise<void> {
    const turns = await this.#load([...this.#cursors.keys()]);
    for (const turn of turns) this.#start(turn);
    const found = new Set([...turns.map((turn) => turn.turnId), ...this.#turns.keys()]);
    for (const turnId of this.#cursors.keys()) {
      if (found.has(turnId)) continue;
      await this.#refuse(turnId, new TurnError(ErrorCode.NOT_FOUND, { message: `no turn ${turnId}` }));
    }
  }

  async #startRunning(): Promise<void> {
    if (this.#sessionIds.size === 0) return;
    for (const turn of await this.#deps.store.listRunningTurns(this.#principal, [...this.#sessionIds]))
      this.#start(turn);
  }

  async #load(turnIds: readonly string[]): Promise<readonly TurnRow[]> {
    const wanted = [...new Set(turnIds)].filter((turnId) => !this.#turns.has(turnId));
    return wanted.length === 0 ? [] : this.#deps.store.getTurns(this.#principal, wanted);
  }

  #start(turn: TurnRow): void {
    if (!this.#sessionIds.has(turn.sessionId) || this.#turns.has(turn.turnId)) return;
    if (this.#life.signal.aborted) return;
    this.#forgetOld();
    this.#turns.set(turn.turnId, { sessionId: turn.sessionId, until: new AbortController(), done: false });
    const { turnId, logId, terminalSeq, phase } = turn;
    if (phase !== "running" && this.#cursors.get(turnId)?.afterSeq === terminalSeq) return; // there is no more
    this.#tell({ turnId, logId, headSeq: terminalSeq }); // before any token that says that the turn was told
    if (phase === "running") {
      void this.#read(turn);
    } else {
      this.#ended.push(turn);
      if (this.#readingEnded < MAX_ENDED_AT_ONCE) void this.#readEnded();
    }
  }

  async #readEnded(): Promise<void> {
    this.#readingEnded++;
    for (let turn = this.#ended.shift(); turn; turn = this.#ended.shift()) await this.#read(turn);
    this.#readingEnded--;
  }

  /** Reads one turn into the queue, to its end. Never rejects. */
  async #read(turn: TurnRow): Promise<void> {
    const { turnId } = turn;
    const watched = this.#turns.get(turnId)!;
    const { signal } = watched.until;
    const from = this.#cursors.get(turnId);
    const cursor = from ? { afterSeq: from.afterSeq, logId: from.logId, hint: undefined } : FROM_THE_START;
    try {
      await this.#reader.check(turn, cursor, signal);
      if (turn.phase === "running")
        await this.#push({ turnId, headSeq: await this.#reader.headSeq(turn, signal) });
      for await (const beat of turnBeats(this.#deps, this.#reader, turn, cursor, true, signal)) {
        const more =
          beat.kind === "packets"
            ? await this.#pushBytes(turnId, beat.batch)
            : await this.#push({ packets: heartbeatPackets(beat.headSeq), turnId, headSeq: beat.headSeq });
        if (!more) return;
      }
    } catch (error) {
      if (signal.aborted) return;
      const failure = TurnError.from(error);
      if (OF_ONE_TURN.has(failure.code)) await this.#refuse(turnId, failure);
      else this.frames.fail(failure);
    } finally {
      watched.done = true;
    }
  }

  #refuse(turnId: string, error: TurnError): Promise<boolean> {
    return this.#push({ turnId, cursorError: errorMessage(error) });
  }

  #leave(sessionId: string): void {
    for (const turn of this.#turns.values()) if (turn.sessionId === sessionId) turn.until.abort();
  }

  /** Queues a small message at once. */
  #tell(fields: MessageInitShape<typeof WatchResponseSchema>): void {
    this.frames.offer(messageFrame(create(WatchResponseSchema, fields)), MESSAGE_WEIGHT);
  }

  /** Queues a message and waits for room; false = the stream has ended. */
  #push(fields: MessageInitShape<typeof WatchResponseSchema>): Promise<boolean> {
    const message = create(WatchResponseSchema, fields);
    const weight = message.events.length > 0 ? toBinary(WatchResponseSchema, message).length : MESSAGE_WEIGHT;
    return this.frames.push(messageFrame(message), weight);
  }

  /** The logged bytes are the start of the message; the turn's name and the hint are its end. */
  #pushBytes(turnId: string, { bytes, position }: ReadBatch): Promise<boolean> {
    const logPosition = position === undefined ? "0" : position.toString();
    const rest = toBinary(WatchResponseSchema, create(WatchResponseSchema, { turnId, logPosition }));
    return this.frames.push({ kind: "bytes", bytes: Buffer.concat([bytes, rest]) }, bytes.length);
  }

  #forgetOld(): void {
    if (this.#turns.size < MAX_REMEMBERED) return;
    for (const [turnId, turn] of this.#turns) {
      if (!turn.done) continue;
      this.#turns.delete(turnId);
      return;
    }
  }
}

/** Events in messages of a bounded size; settings of sessions can be long. */
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

function deletedEvent(sessionId: string): SessionEvent {
  return create(SessionEventSchema, { sessionId, event: { case: "deleted", value: true } });
}

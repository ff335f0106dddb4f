/**
 * The turns that one Watch reads, each into the stream's queue. Owns their readers; knows nothing of events.
 *
 * - Packets are exactly the logged bytes, in order, without a gap (I1); the turn's id is appended to them.
 * - A turn that cannot be read from its cursor is told so by type and ends alone. What may pass ends the whole stream: the
 *   client opens it anew with its cursors.
 * - Turns that have ended are read a few at a time.
 */
import { create, toBinary, type MessageInitShape } from "@bufbuild/protobuf";
import {
  WatchResponseSchema,
  type TurnCursor,
  type WatchResponse,
} from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { AsyncQueue } from "../lib/async-queue.js";
import { TurnError } from "../lib/errors.js";
import { messageFrame, type StreamFrame } from "../lib/rpc/service-binding.js";
import type { TurnRow } from "../store/store.js";
import { errorMessage } from "../turn/packets.js";
import type { ChatDeps } from "./ports.js";
import type { TurnReader } from "./read-turn.js";
import { FROM_THE_START, heartbeatPackets, turnBeats } from "./turn-streams.js";

/** Bytes that wait for the stream's reader, beside one batch of each turn. */
const MAX_QUEUED_BYTES = 256 * 1024;
/** What a message without packets and events weighs. */
const MESSAGE_WEIGHT = 1024;
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

/** The messages of one Watch, bounded by bytes: a push waits until the reader has taken enough. */
export class WatchQueue extends AsyncQueue<StreamFrame<WatchResponse>> {
  constructor() {
    super(MAX_QUEUED_BYTES);
  }

  /** Queues a small message at once. */
  tell(fields: MessageInitShape<typeof WatchResponseSchema>): void {
    this.offer(messageFrame(create(WatchResponseSchema, fields)), MESSAGE_WEIGHT);
  }

  /** Queues a message and waits for room; false = the stream has ended. */
  pushMessage(fields: MessageInitShape<typeof WatchResponseSchema>): Promise<boolean> {
    const message = create(WatchResponseSchema, fields);
    const weight = message.events.length > 0 ? toBinary(WatchResponseSchema, message).length : MESSAGE_WEIGHT;
    return this.push(messageFrame(message), weight);
  }

  /** The same for logged bytes: they are the start of the message, `fields` its end. */
  pushBytes(bytes: Uint8Array, fields: MessageInitShape<typeof WatchResponseSchema>): Promise<boolean> {
    const rest = toBinary(WatchResponseSchema, create(WatchResponseSchema, fields));
    return this.push({ kind: "bytes", bytes: Buffer.concat([bytes, rest]) }, bytes.length);
  }
}

interface WatchedTurn {
  readonly sessionId: string;
  /** Ends the reading. */
  readonly until: AbortController;
  done: boolean;
}

export class WatchedTurns {
  readonly #deps: ChatDeps;
  readonly #reader: TurnReader;
  readonly #queue: WatchQueue;
  readonly #cursors: ReadonlyMap<string, TurnCursor>;
  readonly #onDone: () => void;
  /** Turns that are read, and some that were. */
  readonly #turns = new Map<string, WatchedTurn>();
  readonly #ended: TurnRow[] = [];
  #readingEnded = 0;
  #closed = false;

  /** `cursors`: where the client stands in the turns it knows; `onDone` is called when a turn is not read any more. */
  constructor(
    { deps, reader }: { readonly deps: ChatDeps; readonly reader: TurnReader },
    queue: WatchQueue,
    cursors: ReadonlyMap<string, TurnCursor>,
    onDone: () => void,
  ) {
    this.#deps = deps;
    this.#reader = reader;
    this.#queue = queue;
    this.#cursors = cursors;
    this.#onDone = onDone;
  }

  /** Whether the turn is read, or was. */
  has(turnId: string): boolean {
    return this.#turns.has(turnId);
  }

  /** True when no turn is being read. */
  get idle(): boolean {
    return [...this.#turns.values()].every((turn) => turn.done);
  }

  /** Names the turn to the client, which has a part of it from here on, and begins to read it, once. */
  start(turn: TurnRow): void {
    const { turnId, sessionId, logId, terminalSeq, phase } = turn;
    if (this.#turns.has(turnId) || this.#closed) return;
    this.#forgetOne();
    const hasAll = phase !== "running" && this.#cursors.get(turnId)?.afterSeq === terminalSeq;
    this.#turns.set(turnId, { sessionId, until: new AbortController(), done: hasAll });
    if (hasAll) return;
    this.#queue.tell({ turnId, logId, headSeq: terminalSeq });
    if (phase === "running") {
      void this.#read(turn);
    } else {
      this.#ended.push(turn);
      if (this.#readingEnded < MAX_ENDED_AT_ONCE) void this.#readEnded();
    }
  }

  /** Why nothing can be read of a turn. */
  refuse(turnId: string, error: TurnError): Promise<boolean> {
    return this.#queue.pushMessage({ turnId, cursorError: errorMessage(error) });
  }

  /** Reads the turns of a session no more. */
  leave(sessionId: string): void {
    for (const turn of this.#turns.values()) if (turn.sessionId === sessionId) turn.until.abort();
  }

  close(): void {
    this.#closed = true;
    this.#ended.length = 0;
    for (const turn of this.#turns.values()) turn.until.abort();
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
        await this.#queue.pushMessage({ turnId, headSeq: await this.#reader.headSeq(turn, signal) });
      for await (const beat of turnBeats(this.#deps, this.#reader, turn, cursor, true, signal)) {
        const more =
          beat.kind === "packets"
            ? await this.#queue.pushBytes(beat.batch.bytes, {
                turnId,
                logPosition: beat.batch.position?.toString() ?? "0",
              })
            : await this.#queue.pushMessage({
                packets: heartbeatPackets(beat.headSeq),
                turnId,
                headSeq: beat.headSeq,
              });
        if (!more) return;
      }
    } catch (error) {
      if (signal.aborted) return;
      const failure = TurnError.from(error);
      if (OF_ONE_TURN.has(failure.code)) await this.refuse(turnId, failure);
      else this.#queue.fail(failure);
    } finally {
      watched.done = true;
      this.#onDone();
    }
  }

  #forgetOne(): void {
    if (this.#turns.size < MAX_REMEMBERED) return;
    for (const [turnId, turn] of this.#turns) {
      if (!turn.done) continue;
      this.#turns.delete(turnId);
      return;
    }
  }
}

/**
 * The one writer of one turn. It owns seq, epoch, log position and the fold; nothing else numbers, encodes or appends
 * packets. It does not know why a turn ends (active-turn.ts does) and never reads the log.
 *
 * I5  an append that the log refuses because of another writer fails everything after it with FencedError.
 * I6  `acked` moves only when the log has the packets; the fold runs ahead of it by at most the entry in flight.
 * I4  after `seal`, packets that were queued and not yet numbered are gone, and only `close` can add packets to what was
 *     sealed; seal resolves when the entry in flight is settled, with the seq after which no content follows.
 * I14 a turn over its size limit seals itself: nothing is left out of its middle.
 * What closes a turn is decided when it is numbered, from the fold as it is then: however many want to close the same, it
 * is closed once. A log that lost acknowledged entries is written no more: the rest of the turn goes into the archive with
 * its commit.
 * One entry is in flight at a time; what arrives meanwhile joins the next one (group commit, no timer).
 */
import type { Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import type { TurnState } from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import type { Clock } from "../lib/clock.js";
import type { LoopTick } from "../lib/loop-tick.js";
import { appendSurely } from "../replay/claim.js";
import type { LoggedEntry, Position, ReplayLog, TurnLogKey } from "../replay/replay-log.js";
import { trimEntry } from "../replay/trim-entry.js";
import type { ArchivePart } from "../store/store.js";
import { BatchEncoder } from "../turn/batch.js";
import { applyPacket, emptyTurnState } from "../turn/fold.js";

/** Another writer owns the turn now: emit nothing, write nothing (I5). */
export class FencedError extends Error {
  override readonly name = "FencedError";
}

/** An entry is at most 256 KiB and a packet at most 128 KiB: an entry that holds no more than this has room for one more. */
const ROOM_FOR_ONE_MORE_BYTES = 128 * 1024 - 64;
/** Room that a turn over its size limit has for the packet that took it there and for closing what is open. */
const CLOSING_ROOM_BYTES = 256 * 1024;
/** Wait before an entry that the full log refused is tried again. */
const FULL_RETRY_MS = 500;
/** Queued packets beyond this make `write` wait. */
const QUEUE_HIGH_WATER = 512;
/** t_ms is a uint32: the end of a turn that is recovered after more than 49 days stands at its largest value. */
const LONGEST_T_MS = 2 ** 32 - 1;
/** Acked bytes that make one archive part. */
const ARCHIVE_PART_BYTES = 256 * 1024;

/** What closes a turn or a lane, given the fold of everything before it. */
export type Closing = (state: TurnState) => readonly Packet[];

export interface TurnWriterOptions {
  readonly log: ReplayLog;
  readonly key: TurnLogKey;
  readonly clock: Clock;
  /** Shared by the writers of the process. */
  readonly tick: LoopTick;
  readonly incarnation: string;
  /** From the claim. */
  readonly epoch: number;
  readonly position: Position;
  /** Fold of what the log holds already; seq goes on from it. */
  readonly state?: TurnState;
  /** The log has lost the turn's packets already: write the archive only. Default false. */
  readonly logLost?: boolean;
  /** Wall-clock start of the turn, ms: t_ms counts from it. */
  readonly startedAtMs: number;
  /** t_ms of the last packet in the log: time goes on from it. Default 0. */
  readonly lastTMs?: number;
  /** Packets up to this seq are in the archive already; default: none. */
  readonly archivedSeq?: number;
  readonly maxTurnBytes: number;
  /** Takes each archive part as it is full, in order; a failure fails the writer. */
  readonly saveArchive: (part: ArchivePart) => Promise<void>;
  /** Called once when a packet no longer fits into maxTurnBytes or the log is full. */
  readonly onSizeLimit: () => void;
  /** Called once when the log has lost what it had acknowledged: the turn must end. */
  readonly onLogLost: () => void;
  /** Called once when nothing can be written any more: fenced, or a failure that is not known to pass. */
  readonly onFailure: (error: unknown) => void;
}

export class TurnWriter {
  readonly state: TurnState;
  readonly epoch: number;
  readonly #options: TurnWriterOptions;
  readonly #abandon = new AbortController();
  readonly #encoder = new BatchEncoder();
  /** Bytes from which on nothing but closing fits into the turn. */
  readonly #contentBytes: number;
  #queue: (Packet | Closing)[] = [];
  #position: Position;
  #ackedSeq: number;
  #turnBytes = 0;
  #lastTMs: number;
  #clockOffsetMs: number;
  #flushing: Promise<void> | undefined;
  /** The append of the newest entry, while it goes on and after. */
  #inFlight: Promise<void> | undefined;
  #failure: unknown;
  /** The seq after which the turn has no content, once it is sealed. */
  #sealedSeq: number | undefined;
  readonly #sealedLanes = new Map<number, number>();
  #archive: Uint8Array[] = [];
  #archiveFirstSeq: number;
  #archiveLastSeq = 0;
  #archiveBytes = 0;
  #archiveSaves: Promise<void> = Promise.resolve();
  #sizeLimitHit = false;
  #logLost = false;

  constructor(options: TurnWriterOptions) {
    this.#options = options;
    this.state = options.state ?? emptyTurnState();
    this.epoch = options.epoch;
    this.#position = options.position;
    this.#ackedSeq = this.state.seq;
    this.#contentBytes = options.maxTurnBytes - Math.min(CLOSING_ROOM_BYTES, options.maxTurnBytes / 2);
    this.#logLost = options.logLost ?? false;
    this.#lastTMs = options.lastTMs ?? 0;
    this.#archiveFirstSeq = (options.archivedSeq ?? 0) + 1;
    this.#clockOffsetMs = options.clock.now().getTime() - options.startedAtMs - options.clock.monotonicMs();
  }

  /** The last seq that the log has acknowledged (when it was lost: that is kept for the archive). */
  get ackedSeq(): number {
    return this.#ackedSeq;
  }

  /** Nothing can be written any more. */
  get failed(): boolean {
    return this.#failure !== undefined;
  }

  /**
   * Queues packets of the running turn; resolves at once unless the queue is long. Packets of what is sealed are dropped:
   * their lanes have not heard yet. Throws FencedError or the log's typed error once the writer has failed.
   */
  async write(packets: readonly (Packet | Closing)[]): Promise<void> {
    this.#throwIfFailed();
    if (this.#sealedSeq !== undefined) return;
    this.#enqueue(
      this.#sealedLanes.size === 0 ? packets : packets.filter((queued) => !this.#isSealed(queued)),
    );
    while (this.#queue.length > QUEUE_HIGH_WATER && this.#flushing) await this.#flushing;
    this.#throwIfFailed();
  }

  /** Queues what closes what was sealed (and nothing else). */
  close(closing: Closing): void {
    this.#throwIfFailed();
    this.#enqueue([closing]);
  }

  /**
   * No content of the turn (or of one lane) is appended after this: drops what is queued for it, settles the entry in
   * flight, resolves with the seq after which none follows. Done again it drops nothing, for what came since is its
   * closing, and answers the same.
   */
  async seal(modelIndex?: number): Promise<number> {
    const lastSeq = modelIndex === undefined ? this.#sealTurn() : this.#sealLane(modelIndex);
    await Promise.resolve(); // an entry that is being numbered right now is in flight then
    if (this.#ackedSeq < lastSeq) await this.#inFlight?.catch(() => undefined);
    this.#throwIfFailed();
    return Math.min(lastSeq, this.#ackedSeq);
  }

  /** Resolves when everything queued so far is in the log. */
  async flush(): Promise<void> {
    while (this.#flushing) await this.#flushing;
    this.#throwIfFailed();
  }

  /** Numbers, folds and encodes the terminal packet without appending it: the commit stores these exact bytes first. */
  async encodeTerminal(packet: Packet): Promise<Uint8Array> {
    await this.flush();
    this.#number(packet);
    this.#encoder.add(packet);
    return this.#encoder.take();
  }

  /** Appends the terminal entry made by `encodeTerminal`. */
  async publishTerminal(batch: Uint8Array, signal: AbortSignal): Promise<void> {
    await this.#append(batch, this.state.seq, this.state.seq, true, signal);
  }

  /** The packets acked since the last archive part (the terminal left out): the commit stores them with the final rows. */
  async lastArchivePart(): Promise<ArchivePart | undefined> {
    await this.#archiveSaves;
    this.#throwIfFailed();
    return this.#takeArchivePart();
  }

  /** Takes over entries that an earlier owner logged and did not archive. Before the first `write`. */
  async rearchive(entries: AsyncIterable<LoggedEntry>): Promise<void> {
    for await (const entry of entries) {
      if (entry.terminal) break; // it is stored with the row
      const trimmed = trimEntry(entry, this.#options.archivedSeq ?? 0);
      this.#keepForArchive(trimmed.batch, trimmed.lastSeq);
    }
    await this.#archiveSaves;
    this.#throwIfFailed();
  }

  /** Gives up: no append is retried any more. For fenced turns and process shutdown. */
  abandon(): void {
    this.#failure ??= new FencedError("the writer was abandoned");
    this.#queue = [];
    this.#abandon.abort(this.#failure);
  }

  #sealTurn(): number {
    if (this.#sealedSeq === undefined) {
      this.#sealedSeq = this.state.seq;
      this.#queue = [];
    }
    return this.#sealedSeq;
  }

  #sealLane(modelIndex: number): number {
    let lastSeq = this.#sealedLanes.get(modelIndex);
    if (lastSeq === undefined) {
      lastSeq = this.#sealedSeq ?? this.state.seq;
      this.#sealedLanes.set(modelIndex, lastSeq);
      if (this.#sealedSeq === undefined)
        this.#queue = this.#queue.filter((queued) => !this.#isSealed(queued));
    }
    return lastSeq;
  }

  #isSealed(queued: Packet | Closing): boolean {
    if (typeof queued === "function") return false;
    const lane = queued.placement?.modelIndex;
    return lane !== undefined && this.#sealedLanes.has(lane);
  }

  #throwIfFailed(): void {
    if (this.#failure !== undefined) throw this.#failure;
  }

  #fail(error: unknown): void {
    if (this.#failure !== undefined) return;
    this.#failure = error;
    this.#queue = [];
    this.#options.onFailure(error);
  }

  #enqueue(packets: readonly (Packet | Closing)[]): void {
    if (packets.length === 0) return;
    for (const packet of packets) this.#queue.push(packet);
    this.#flushing ??= this.#flushLoop();
  }

  /** Runs while there is something to append. Entries of one turn of the event loop, of all turns, leave together. */
  async #flushLoop(): Promise<void> {
    try {
      await this.#options.tick.next();
      while (this.#queue.length > 0 && this.#failure === undefined) {
        const firstSeq = this.state.seq + 1;
        const batch = this.#takeBatch();
        if (batch === undefined) continue;
        this.#inFlight = this.#append(batch, firstSeq, this.state.seq, false, this.#abandon.signal);
        await this.#inFlight;
      }
    } catch (error) {
      this.#fail(error);
    } finally {
      this.#flushing = undefined;
    }
  }

  /** Takes packets off the queue until an entry is full, numbering, folding and encoding each. */
  #takeBatch(): Uint8Array | undefined {
    const batch = this.#encoder;
    const queue = this.#queue;
    let taken = 0;
    while (taken < queue.length && batch.byteLength <= ROOM_FOR_ONE_MORE_BYTES) {
      const queued = queue[taken]!;
      if (typeof queued === "function") {
        queue.splice(taken, 1, ...queued(this.state));
        continue;
      }
      if (this.#turnBytes > this.#contentBytes && this.#sealedSeq === undefined) {
        this.#hitSizeLimit();
        break;
      }
      taken++;
      this.#number(queued);
      this.#turnBytes += batch.add(queued);
    }
    if (this.#queue === queue) this.#queue = taken === queue.length ? [] : queue.slice(taken);
    return batch.byteLength > 0 ? batch.take() : undefined;
  }

  #number(packet: Packet): void {
    packet.seq = this.state.seq + 1;
    const now = Math.round(this.#options.clock.monotonicMs() + this.#clockOffsetMs);
    this.#lastTMs = Math.min(Math.max(this.#lastTMs, now), LONGEST_T_MS);
    packet.tMs = this.#lastTMs;
    applyPacket(this.state, packet);
  }

  async #append(
    batch: Uint8Array,
    firstSeq: number,
    lastSeq: number,
    terminal: boolean,
    signal: AbortSignal,
  ): Promise<void> {
    const { log, key, clock, incarnation, epoch } = this.#options;
    const entry = { epoch, incarnation, firstSeq, lastSeq, terminal, batch };
    const done = (): void => {
      this.#ackedSeq = lastSeq;
      if (!terminal) this.#keepForArchive(batch, lastSeq);
    };
    if (this.#logLost) return done();
    for (;;) {
      const outcome = await appendSurely(log, key, this.#position, entry, signal, { clock });
      switch (outcome.kind) {
        case "appended":
          this.#position = outcome.position;
          return done();
        case "fenced":
          throw new FencedError("another writer owns the turn");
        case "truncated":
          // The log must never be renumbered: what is left of the turn is shown from the archive.
          this.#logLost = true;
          done();
          return this.#options.onLogLost();
        case "full":
          this.#hitSizeLimit();
          await clock.sleep(FULL_RETRY_MS, signal);
      }
    }
  }

  #hitSizeLimit(): void {
    if (this.#sizeLimitHit) return;
    this.#sizeLimitHit = true;
    this.#sealTurn();
    this.#options.onSizeLimit();
  }

  #keepForArchive(batch: Uint8Array, lastSeq: number): void {
    this.#archive.push(batch);
    this.#archiveLastSeq = lastSeq;
    this.#archiveBytes += batch.length;
    if (this.#archiveBytes < ARCHIVE_PART_BYTES) return;
    const part = this.#takeArchivePart();
    if (!part) return;
    this.#archiveSaves = this.#archiveSaves
      .then(() => this.#options.saveArchive(part))
      .catch((error: unknown) => this.#fail(error));
  }

  #takeArchivePart(): ArchivePart | undefined {
    if (this.#archive.length === 0) return undefined;
    const lastSeq = this.#archiveLastSeq;
    const part = { firstSeq: this.#archiveFirstSeq, lastSeq, batch: Buffer.concat(this.#archive) };
    this.#archive = [];
    this.#archiveBytes = 0;
    this.#archiveFirstSeq = lastSeq + 1;
    return part;
  }
}

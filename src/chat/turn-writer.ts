/**
 * The one writer of one turn. It owns seq, epoch, log position and the fold; nothing else numbers, encodes or appends
 * packets. It does not know why a turn ends (active-turn.ts does) and never reads the log.
 *
 * I5  an append that the log refuses because of another writer fails everything after it with FencedError.
 * I6  `acked` moves only when the log has the packets; the fold runs ahead of it by at most the entry in flight.
 * I4  after `seal`, packets that were queued and not yet numbered are gone, and only `close` can add packets to what was
 *     sealed; seal resolves when the entry in flight is settled, with the seq after which no content follows.
 * A log that lost acknowledged entries is written no more: the rest of the turn goes into the archive with its commit.
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
/** Wait before an entry that the full log refused is tried again. */
const FULL_RETRY_MS = 500;
/** Queued packets beyond this make `write` wait. */
const QUEUE_HIGH_WATER = 2_048;
/** Acked bytes that make one archive part. */
const ARCHIVE_PART_BYTES = 256 * 1024;

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
  /** Packets up to this seq are in the archive already; default: none. */
  readonly archivedSeq?: number;
  readonly maxTurnBytes: number;
  /** Takes each archive part as it is full; its failure does not stop the turn, the last part repeats it. */
  readonly saveArchive: (part: ArchivePart) => Promise<void>;
  /** Called once when a packet no longer fits into maxTurnBytes or the log is full. */
  readonly onSizeLimit: () => void;
  /** Called once when the log has lost what it had acknowledged: the turn must end. */
  readonly onLogLost: () => void;
}

export class TurnWriter {
  readonly state: TurnState;
  readonly epoch: number;
  readonly #options: TurnWriterOptions;
  readonly #abandon = new AbortController();
  readonly #encoder = new BatchEncoder();
  #queue: Packet[] = [];
  #position: Position;
  #ackedSeq: number;
  #turnBytes = 0;
  #lastTMs = 0;
  #clockOffsetMs: number;
  #flushing: Promise<void> | undefined;
  #failure: unknown;
  #sealed = false;
  readonly #sealedLanes = new Set<number>();
  #archive: Uint8Array[] = [];
  #archiveFirstSeq: number;
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
    this.#logLost = options.logLost ?? false;
    this.#archiveFirstSeq = (options.archivedSeq ?? 0) + 1;
    this.#clockOffsetMs = options.clock.now().getTime() - options.startedAtMs - options.clock.monotonicMs();
  }

  /** The last seq that the log has acknowledged. */
  get ackedSeq(): number {
    return this.#ackedSeq;
  }

  /**
   * Queues packets of the running turn; resolves at once unless the queue is long. Packets of what is sealed are dropped:
   * their lanes have not heard yet. Throws FencedError or the log's typed error once the writer has failed.
   */
  async write(packets: readonly Packet[]): Promise<void> {
    this.#throwIfFailed();
    if (this.#sealed) return;
    this.#enqueue(
      this.#sealedLanes.size === 0 ? packets : packets.filter((packet) => !this.#isSealed(packet)),
    );
    while (this.#queue.length > QUEUE_HIGH_WATER && this.#flushing) await this.#flushing;
    this.#throwIfFailed();
  }

  /** Adds the closing packets of what was sealed (and of nothing else). */
  close(packets: readonly Packet[]): void {
    this.#throwIfFailed();
    this.#enqueue(packets);
  }

  /**
   * No content of the turn (or of one lane) is appended after this: drops what is queued for it, settles the entry in
   * flight, resolves with the last seq that the log has. Idempotent.
   */
  async seal(modelIndex?: number): Promise<number> {
    if (modelIndex === undefined) {
      this.#sealed = true;
      this.#queue = [];
    } else {
      this.#sealedLanes.add(modelIndex);
      this.#queue = this.#queue.filter((packet) => !this.#isSealed(packet));
    }
    await this.flush();
    return this.#ackedSeq;
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
    return this.#takeArchivePart();
  }

  /** Takes over entries that an earlier owner logged and did not archive. Before the first `write`. */
  async rearchive(entries: AsyncIterable<LoggedEntry>): Promise<void> {
    for await (const entry of entries) {
      const trimmed = trimEntry(entry, this.#options.archivedSeq ?? 0);
      this.#keepForArchive(trimmed.batch, trimmed.lastSeq);
    }
    await this.#archiveSaves;
  }

  /** Gives up: no append is retried any more. For fenced turns and process shutdown. */
  abandon(): void {
    this.#failure ??= new FencedError("the writer was abandoned");
    this.#queue = [];
    this.#abandon.abort(this.#failure);
  }

  #isSealed(packet: Packet): boolean {
    const lane = packet.placement?.modelIndex;
    return lane !== undefined && this.#sealedLanes.has(lane);
  }

  #throwIfFailed(): void {
    if (this.#failure !== undefined) throw this.#failure;
  }

  #enqueue(packets: readonly Packet[]): void {
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
        if (batch === undefined) break;
        await this.#append(batch, firstSeq, this.state.seq, false, this.#abandon.signal);
      }
    } catch (error) {
      this.#failure ??= error;
      this.#queue = [];
    } finally {
      this.#flushing = undefined;
    }
  }

  /** Takes packets off the queue until an entry is full, numbering, folding and encoding each. */
  #takeBatch(): Uint8Array | undefined {
    const batch = this.#encoder;
    let taken = 0;
    for (const packet of this.#queue) {
      if (batch.byteLength > ROOM_FOR_ONE_MORE_BYTES) break;
      taken++;
      if (this.#turnBytes > this.#options.maxTurnBytes && !this.#sealed && !isControl(packet)) {
        this.#hitSizeLimit();
        continue;
      }
      this.#number(packet);
      this.#turnBytes += batch.add(packet);
    }
    this.#queue = taken === this.#queue.length ? [] : this.#queue.slice(taken);
    return batch.byteLength > 0 ? batch.take() : undefined;
  }

  #number(packet: Packet): void {
    packet.seq = this.state.seq + 1;
    const now = Math.round(this.#options.clock.monotonicMs() + this.#clockOffsetMs);
    this.#lastTMs = Math.max(this.#lastTMs, now, 0);
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
    const { log, key, incarnation, epoch } = this.#options;
    const entry = { epoch, incarnation, firstSeq, lastSeq, terminal, batch };
    if (this.#logLost) {
      if (!terminal) this.#keepForArchive(batch, lastSeq);
      return;
    }
    for (;;) {
      const outcome = await appendSurely(log, key, this.#position, entry, signal);
      switch (outcome.kind) {
        case "appended":
          this.#position = outcome.position;
          this.#ackedSeq = lastSeq;
          if (!terminal) this.#keepForArchive(batch, lastSeq);
          return;
        case "fenced":
          throw new FencedError("another writer owns the turn");
        case "truncated":
          this.#detach(batch, lastSeq);
          return;
        case "full":
          this.#hitSizeLimit();
          await this.#options.clock.sleep(FULL_RETRY_MS, signal);
      }
    }
  }

  /** The log must never be renumbered: what is left of the turn goes into the archive alone, and is shown from there. */
  #detach(batch: Uint8Array, lastSeq: number): void {
    this.#logLost = true;
    this.#keepForArchive(batch, lastSeq);
    this.#options.onLogLost();
  }

  #hitSizeLimit(): void {
    if (this.#sizeLimitHit) return;
    this.#sizeLimitHit = true;
    this.#options.onSizeLimit();
  }

  #keepForArchive(batch: Uint8Array, lastSeq: number): void {
    this.#archive.push(batch);
    this.#archiveBytes += batch.length;
    if (this.#archiveBytes < ARCHIVE_PART_BYTES) return;
    const part = this.#takeArchivePart(lastSeq);
    if (!part) return;
    this.#archiveSaves = this.#archiveSaves
      .then(() => this.#options.saveArchive(part))
      .catch((error: unknown) => {
        this.#failure ??= error;
      });
  }

  #takeArchivePart(lastSeq: number = this.#ackedSeq): ArchivePart | undefined {
    if (this.#archive.length === 0) return undefined;
    const part = { firstSeq: this.#archiveFirstSeq, lastSeq, batch: Buffer.concat(this.#archive) };
    this.#archive = [];
    this.#archiveBytes = 0;
    this.#archiveFirstSeq = lastSeq + 1;
    return part;
  }
}

/** Packets that a turn over its size limit may still write: its own closing. */
function isControl(packet: Packet): boolean {
  switch (packet.payload.case) {
    case "agentResponseDelta":
    case "reasoningDelta":
    case "toolCallArgumentDelta":
    case "pythonToolDelta":
    case "bashToolDelta":
    case "customToolDelta":
    case "intermediateReportDelta":
    case "deepResearchPlanDelta":
    case "codingAgentThinkingDelta":
      return false;
    default:
      return true;
  }
}

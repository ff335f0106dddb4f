/**
 * Indexes documents in the background: whoever is alive takes the next one that waits.
 *
 * Owns: the documents that this process works on, their leases and abort signals.
 * G1 a document is worked on under a lease; every write names it, so that two workers never mix their passages.
 * G2 a lease that is not renewed is another's to take: what a dead process left is begun anew, at most MAX_ATTEMPTS times.
 * G3 at most `concurrency` documents at once, owners in turn; one document is never in memory as a whole if it is text.
 * G4 an outage of the database costs a document nothing: it is given back and tried again.
 */
import { DocumentFailure } from "../../gen/turnwire/chat/v1/types_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import type { Clock } from "../lib/clock.js";
import { TurnError } from "../lib/errors.js";
import type { Logger } from "../lib/log.js";
import type { Owner } from "../lib/rpc/service-binding.js";
import { deferred, type Deferred } from "../lib/signals.js";
import { cutChars } from "../lib/text.js";
import { Chunker, type Passage } from "./chunker.js";
import type { DocumentRow, DocumentStore, Lease, ReadDocument } from "./document-store.js";
import { detectLanguage } from "./language.js";
import { openSource, type SourceDeps, type SourceLimits, type SourceText } from "./read-source.js";
import { UnreadableDocument } from "./unreadable.js";

export interface IngestLimits extends SourceLimits {
  /** Documents that one process works on at once. */
  readonly concurrency: number;
  /** How long a silent worker keeps its document, ms. */
  readonly leaseMs: number;
  /** How often to look for documents that others added or left, ms. */
  readonly pollMs: number;
}

export const DEFAULT_INGEST_LIMITS: IngestLimits = {
  maxBytes: 50 * 1024 * 1024,
  maxExtractedChars: 20_000_000,
  maxPages: 5_000,
  concurrency: 2,
  leaseMs: 12_000,
  pollMs: 2_000,
};

export interface IngestOptions extends Omit<SourceDeps, "store"> {
  readonly store: DocumentStore;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Name of this process in leases. */
  readonly worker: string;
  readonly limits?: Partial<IngestLimits>;
}

/** Beginning a document more often than this without an end is given up. */
const MAX_ATTEMPTS = 4;
const BATCH_PASSAGES = 128;
const OUTAGE_PAUSE_MS = 1_000;
const LANGUAGE_SAMPLE_CHARS = 8_000;
const TITLE_CHARS = 200;
const PAGE_LINES = /^\[page \d+ of \d+\]$/gm;

/** Why work on a document ends early. */
class WorkEnded extends Error {
  constructor(readonly why: "lost" | "closing") {
    super(why);
  }
}

export class Ingest {
  readonly #options: IngestOptions;
  readonly #limits: IngestLimits;
  readonly #working = new Map<string, AbortController>();
  readonly #closing = new AbortController();
  #sleepers: Deferred<void>[] = [];
  #slots: Promise<void>[] = [];
  #lastOwner: Owner | undefined;
  #unsettled = false;

  constructor(options: IngestOptions) {
    this.#options = options;
    this.#limits = { ...DEFAULT_INGEST_LIMITS, ...options.limits };
  }

  start(): void {
    this.#slots = Array.from({ length: this.#limits.concurrency }, () => this.#runSlot());
  }

  /** A document was added: look at once. */
  wake(): void {
    for (const sleeper of this.#sleepers.splice(0)) sleeper.resolve();
  }

  /** Ends the work on a document that was cancelled or deleted, if it is done here. */
  abandon(documentId: string): void {
    this.#working.get(documentId)?.abort(new WorkEnded("lost"));
  }

  /** Gives back what is not finished; resolves when nothing works any more. */
  async close(): Promise<void> {
    this.#closing.abort(new WorkEnded("closing"));
    this.wake();
    await Promise.all(this.#slots);
  }

  async #runSlot(): Promise<void> {
    while (!this.#closing.signal.aborted) {
      const lease = await this.#claim();
      if (lease) await this.#work(lease);
      else await this.#rest();
    }
  }

  async #claim(): Promise<Lease | undefined> {
    const { store, worker, logger } = this.#options;
    try {
      const lease = await store.claim(worker, this.#limits.leaseMs, this.#lastOwner);
      if (lease) this.#lastOwner = lease.document.owner;
      return lease;
    } catch (error) {
      logger.warn({ err: error }, "no document could be claimed");
      return undefined;
    }
  }

  /** Until a document is added, or it is time to look for those of others. */
  async #rest(): Promise<void> {
    await this.#settleIndex();
    const woken = deferred();
    this.#sleepers.push(woken);
    const timer = new AbortController();
    const slept = this.#options.clock.sleep(this.#limits.pollMs, timer.signal).catch(() => undefined);
    if (!this.#closing.signal.aborted) await Promise.race([woken.promise, slept]);
    timer.abort();
    this.#sleepers = this.#sleepers.filter((sleeper) => sleeper !== woken);
  }

  async #settleIndex(): Promise<void> {
    if (!this.#unsettled || this.#working.size > 0) return;
    this.#unsettled = false;
    await this.#options.store.settleIndex().catch((error: unknown) => {
      this.#options.logger.warn({ err: error }, "the index was not settled");
    });
  }

  /** Never throws. */
  async #work(lease: Lease): Promise<void> {
    const { documentId } = lease.document;
    const logger = this.#options.logger.child({ documentId });
    const own = new AbortController();
    const onClosing = (): void => own.abort(this.#closing.signal.reason);
    this.#closing.signal.addEventListener("abort", onClosing, { once: true });
    if (this.#closing.signal.aborted) onClosing();
    this.#working.set(documentId, own);
    const renewing = this.#keepLease(lease, own);
    try {
      if (lease.attempts > MAX_ATTEMPTS) throw interrupted();
      await this.#index(lease, own.signal);
    } catch (error) {
      await this.#afterFailure(lease, own.signal.aborted ? own.signal.reason : error, logger);
    } finally {
      this.#closing.signal.removeEventListener("abort", onClosing);
      this.#working.delete(documentId);
      own.abort(new WorkEnded("lost"));
      await renewing;
    }
  }

  async #keepLease(lease: Lease, own: AbortController): Promise<void> {
    const { clock, store } = this.#options;
    for (;;) {
      try {
        await clock.sleep(this.#limits.leaseMs / 4, own.signal);
      } catch {
        return; // the work has ended
      }
      // When the database does not answer, the next write will say so.
      const held = await store.renew(lease, this.#limits.leaseMs).catch(() => true);
      if (!held) own.abort(new WorkEnded("lost"));
    }
  }

  async #index(lease: Lease, signal: AbortSignal): Promise<void> {
    const { store } = this.#options;
    if (!(await store.clear(lease))) throw new WorkEnded("lost");
    const source = await openSource(lease, this.#options, this.#limits, signal);
    const chunker = new Chunker({ pages: source.pages });
    const batch = new Batch(lease, source, this.#options, this.#limits);
    for await (const { text, processedBytes } of source.pieces) {
      for (const passage of chunker.push(text)) await batch.add(passage, processedBytes, signal);
    }
    for (const passage of chunker.end()) await batch.add(passage, source.sizeBytes, signal);
    const about = await batch.finish(signal);
    this.#unsettled = true;
    if (!(await store.finish(lease, about))) throw new WorkEnded("lost");
  }

  async #afterFailure(lease: Lease, error: unknown, logger: Logger): Promise<void> {
    const { store, clock } = this.#options;
    try {
      if (error instanceof WorkEnded) {
        if (error.why === "closing") await store.release(lease);
      } else if (error instanceof TurnError && error.code === ErrorCode.UNAVAILABLE) {
        logger.warn({ err: error }, "indexing was interrupted and will be tried again");
        await clock.sleep(OUTAGE_PAUSE_MS, this.#closing.signal).catch(() => undefined);
        await store.release(lease);
      } else {
        const known = error instanceof UnreadableDocument ? error : unexpected(error);
        if (known !== error) logger.error({ err: error }, "indexing failed unexpectedly");
        await store.fail(lease, known.failure, known.message);
      }
    } catch (failure) {
      logger.warn({ err: failure }, "a document was left behind: it is begun anew when its lease is over");
    }
  }
}

/** Passages on their way to the index, and what their text says of the document. */
class Batch {
  readonly #lease: Lease;
  readonly #source: SourceText;
  readonly #store: DocumentStore;
  readonly #limits: IngestLimits;
  #passages: Passage[] = [];
  #processedBytes = 0;
  #about: ReadDocument | undefined;
  #hasText = false;

  constructor(lease: Lease, source: SourceText, { store }: IngestOptions, limits: IngestLimits) {
    this.#lease = lease;
    this.#source = source;
    this.#store = store;
    this.#limits = limits;
  }

  async add(passage: Passage, processedBytes: number, signal: AbortSignal): Promise<void> {
    this.#passages.push(passage);
    this.#processedBytes = processedBytes;
    if (this.#passages.length >= BATCH_PASSAGES) await this.#flush(signal);
  }

  async finish(signal: AbortSignal): Promise<ReadDocument> {
    await this.#flush(signal);
    if (this.#hasText && this.#about) return this.#about;
    const message = this.#source.pages
      ? "It has no text, as a scanned PDF has none. Run it through text recognition and add the result."
      : "It has no text. Add a document that has some.";
    throw new UnreadableDocument(DocumentFailure.EMPTY, message);
  }

  async #flush(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (this.#passages.length === 0) return;
    const batch = this.#passages;
    this.#passages = [];
    this.#hasText ||= batch.some(({ text }) => text.replace(PAGE_LINES, "").trim() !== "");
    this.#about ??= describe(this.#lease.document, this.#source, batch);
    const held = await this.#store.addPassages(
      this.#lease,
      batch,
      this.#about,
      this.#processedBytes,
      this.#limits.leaseMs,
    );
    if (!held) throw new WorkEnded("lost");
  }
}

function describe(document: DocumentRow, source: SourceText, passages: readonly Passage[]): ReadDocument {
  let sample = "";
  for (const { text } of passages) if (sample.length < LANGUAGE_SAMPLE_CHARS) sample += text;
  return {
    title: document.title || titleOf(source, passages[0]!),
    name: source.name,
    mediaType: source.mediaType || "text/plain",
    language: detectLanguage(sample),
    sizeBytes: source.sizeBytes,
  };
}

/** What the source says, else its first heading, else its first line. */
function titleOf(source: SourceText, { heading, text }: Passage): string {
  const line =
    text.split("\n").find((each) => each.trim() !== "" && !/^\[page \d+ of \d+\]$/.test(each)) ?? "";
  const title = source.title || heading.split(" > ")[0]! || line;
  return cutChars(title.replace(/[\u0000-\u001f\u007f]+/g, " ").trim(), TITLE_CHARS) || "Untitled";
}

function interrupted(): UnreadableDocument {
  return new UnreadableDocument(
    DocumentFailure.INTERRUPTED,
    "Indexing it was begun several times and never finished. Split it and add the parts.",
  );
}

function unexpected(cause: unknown): UnreadableDocument {
  return new UnreadableDocument(
    DocumentFailure.BROKEN,
    "It could not be indexed: a fault of this service, which is in its log.",
    { cause },
  );
}

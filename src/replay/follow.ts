/**
 * Owns the followers of this process and what it knows of the turns they follow. An adapter tells it what became durable
 * (`appended`: by this process, right after the ack; `heard`: by anybody, through the store's own feed) and what it may
 * have missed (`behind`, `resync`); followers take entries from memory while these connect and from the log when not.
 *
 * Invariants:
 * 1. A follower yields an entry from memory only if the entry's predecessor is the last entry it saw; otherwise it reads
 *    the log from there. So nothing depends on a feed being complete, and a feed that repeats is harmless.
 * 2. A feed may be silent only for a bounded time: a turn that this process does not write is watched, and its head is
 *    compared with the leader's when nothing was heard for a while. A turn whose local writer falls silent is watched.
 * 3. A follower holds at most `maxPendingBytes` of entries (more: dropped and read from the log when it comes back), and
 *    nobody waits for a follower.
 * 4. A follower that ends, fails or is aborted is forgotten at once, also when its consumer never comes back.
 */
import type { Clock } from "../lib/clock.js";
import type { TurnError } from "../lib/errors.js";
import type { Logger } from "../lib/log.js";
import { EntryReader, ReadCursor, type EntryStore } from "./entry-reader.js";
import { NOTHING, type LoggedEntry, type Position, type ReadOptions, type TurnLogKey } from "./replay-log.js";

/** What followers need of a store beside reads. */
export interface TailStore extends EntryStore {
  /** Positions of the last entries, from the leader; a turn without entries is missing. */
  heads(turns: readonly TurnLogKey[]): Promise<ReadonlyMap<string, Position>>;
  /** Begins to report the turn's entries by `heard` or `behind`; returns what ends it. */
  watch(turn: TurnLogKey): () => void;
}

export interface TurnTailsOptions {
  readonly store: TailStore;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Longest time between two comparisons of a silent watched turn with the leader. Default 5,000. */
  readonly verifyMs?: number;
  /** How long a local writer may be silent before its turn is watched. Default 1,000. */
  readonly localSilenceMs?: number;
  /** Default 1 MiB. */
  readonly maxPendingBytes?: number;
  /** How long a follower waits for a store that is away before it fails with UNAVAILABLE. Default 30,000. */
  readonly patienceMs?: number;
}

/** Pause between two looks at all feeds. */
const SWEEP_MS = 250;
/** First comparison after a watch began: interest may take a moment to spread over a cluster. */
const FIRST_VERIFY_MS = 500;
/** How long `read` waits for a store that is away. */
const READ_PATIENCE_MS = 3_000;

interface Feed {
  readonly turn: TurnLogKey;
  readonly followers: Set<Follower>;
  /** The last entry this process appended, while it writes the turn. */
  local: LoggedEntry | undefined;
  localAtMs: number;
  /** The highest position known to be durable. */
  seen: Position;
  unwatch: (() => void) | undefined;
  verifyAtMs: number;
  verifyEveryMs: number;
}

export class TurnTails {
  readonly #options: Required<TurnTailsOptions>;
  readonly #reader: EntryReader;
  readonly #feeds = new Map<string, Feed>();
  readonly #sweeper: NodeJS.Timeout;
  #verifying = false;

  constructor(options: TurnTailsOptions) {
    this.#options = {
      verifyMs: 5_000,
      localSilenceMs: 1_000,
      maxPendingBytes: 1024 * 1024,
      patienceMs: 30_000,
      ...options,
    };
    this.#reader = new EntryReader(options);
    this.#sweeper = setInterval(() => this.#sweep(), SWEEP_MS);
    this.#sweeper.unref();
  }

  /** For tests and metrics: turns known, of these watched, and followers. */
  get counts(): { readonly feeds: number; readonly watched: number; readonly followers: number } {
    const feeds = [...this.#feeds.values()];
    return {
      feeds: feeds.length,
      watched: feeds.filter((feed) => feed.unwatch !== undefined).length,
      followers: feeds.reduce((sum, feed) => sum + feed.followers.size, 0),
    };
  }

  /** `ReplayLog.read`. */
  async *read(
    turn: TurnLogKey,
    afterSeq: number,
    options: ReadOptions,
  ): AsyncGenerator<LoggedEntry, void, undefined> {
    const { hint, signal } = options;
    const head = await this.#reader.head(turn, READ_PATIENCE_MS, signal);
    yield* this.#reader.upTo(turn, new ReadCursor(afterSeq), head, {
      hint,
      patienceMs: READ_PATIENCE_MS,
      signal,
    });
  }

  /** `ReplayLog.follow`. */
  async *follow(
    turn: TurnLogKey,
    afterSeq: number,
    options: ReadOptions,
  ): AsyncGenerator<LoggedEntry, void, undefined> {
    const { hint, signal } = options;
    signal.throwIfAborted();
    const cursor = new ReadCursor(afterSeq);
    const follower = new Follower(this.#options.maxPendingBytes);
    const feed = this.#attach(turn, follower);
    const detach = (): void => this.#detach(feed, follower);
    const onAbort = (): void => {
      follower.fail(signal.reason);
      detach();
    };
    signal.addEventListener("abort", onAbort, { once: true });
    try {
      const patienceMs = this.#options.patienceMs;
      while (!cursor.ended) {
        follower.reset();
        const head = await this.#headFor(feed, cursor, patienceMs, signal);
        if (head) noteFound(feed, head.position, follower);
        yield* this.#reader.upTo(turn, cursor, head, { hint, patienceMs, signal });
        if (!cursor.ended) yield* live(follower, cursor);
      }
    } finally {
      signal.removeEventListener("abort", onAbort);
      detach();
    }
  }

  /** This process appended `entry` after `previous`, and the store acknowledged it. */
  appended(turn: TurnLogKey, entry: LoggedEntry, previous: Position): void {
    const feed = this.#feeds.get(turn.turnId) ?? this.#addFeed(turn);
    feed.local = entry;
    feed.localAtMs = this.#options.clock.monotonicMs();
    if (feed.unwatch) stopWatching(feed);
    this.#offer(feed, entry, previous);
    if (entry.terminal || entry.erased) this.#dropIfUnused(feed);
  }

  /** The store reported `entry` after `previous`: durable, whoever wrote it. */
  heard(turnId: string, entry: LoggedEntry, previous: Position): void {
    const feed = this.#feeds.get(turnId);
    if (!feed) return;
    feed.verifyAtMs = this.#options.clock.monotonicMs() + this.#options.verifyMs;
    this.#offer(feed, entry, previous);
  }

  /** There are or may be entries that were not reported: beyond `position`'s predecessor, or anywhere. */
  behind(turnId: string, position?: Position): void {
    const feed = this.#feeds.get(turnId);
    if (!feed || (position !== undefined && position <= feed.seen)) return;
    for (const follower of feed.followers) follower.rereads();
  }

  /** This process no longer writes the turn, or cannot tell: its followers must look at the log themselves. */
  localLost(turnId: string): void {
    const feed = this.#feeds.get(turnId);
    if (feed) this.#leaveLocal(feed);
  }

  /** The store's feed was interrupted: all followers look at the log. */
  resync(): void {
    for (const feed of this.#feeds.values()) {
      for (const follower of feed.followers) follower.rereads();
    }
  }

  /** Fails all followers, for example because the log was replaced. What local writers wrote is forgotten too. */
  fail(error: unknown): void {
    for (const feed of [...this.#feeds.values()]) {
      feed.local = undefined;
      for (const follower of [...feed.followers]) {
        follower.fail(error);
        this.#detach(feed, follower);
      }
      this.#dropIfUnused(feed);
    }
  }

  close(error: TurnError): void {
    clearInterval(this.#sweeper);
    this.fail(error);
  }

  #offer(feed: Feed, entry: LoggedEntry, previous: Position): void {
    if (entry.position > feed.seen) feed.seen = entry.position;
    for (const follower of feed.followers) follower.offer(entry, previous);
  }

  /** The head a follower may start from: what this process itself wrote last, else the leader's word. */
  #headFor(
    feed: Feed,
    cursor: ReadCursor,
    patienceMs: number,
    signal: AbortSignal,
  ): Promise<LoggedEntry | undefined> {
    const { local } = feed;
    const fits =
      local !== undefined && local.lastSeq >= cursor.seq && local.position >= (cursor.position ?? NOTHING);
    if (fits && !feed.unwatch) return Promise.resolve(local);
    return this.#reader.head(feed.turn, patienceMs, signal);
  }

  #addFeed(turn: TurnLogKey): Feed {
    const feed: Feed = {
      turn,
      followers: new Set(),
      local: undefined,
      localAtMs: 0,
      seen: NOTHING,
      unwatch: undefined,
      verifyAtMs: 0,
      verifyEveryMs: 0,
    };
    this.#feeds.set(turn.turnId, feed);
    return feed;
  }

  #attach(turn: TurnLogKey, follower: Follower): Feed {
    const feed = this.#feeds.get(turn.turnId) ?? this.#addFeed(turn);
    feed.followers.add(follower);
    if (!feed.local && !feed.unwatch) this.#watch(feed);
    return feed;
  }

  #detach(feed: Feed, follower: Follower): void {
    if (feed.followers.delete(follower) && feed.followers.size === 0) {
      stopWatching(feed);
      this.#dropIfUnused(feed);
    }
  }

  #dropIfUnused(feed: Feed): void {
    const writing = feed.local !== undefined && !feed.local.terminal && !feed.local.erased;
    if (feed.followers.size > 0 || writing) return;
    stopWatching(feed);
    if (this.#feeds.get(feed.turn.turnId) === feed) this.#feeds.delete(feed.turn.turnId);
  }

  #watch(feed: Feed): void {
    feed.unwatch = this.#options.store.watch(feed.turn);
    feed.verifyEveryMs = Math.min(FIRST_VERIFY_MS, this.#options.verifyMs);
    feed.verifyAtMs = this.#options.clock.monotonicMs() + feed.verifyEveryMs;
  }

  #leaveLocal(feed: Feed): void {
    feed.local = undefined;
    if (feed.followers.size === 0) {
      this.#dropIfUnused(feed);
      return;
    }
    if (!feed.unwatch) this.#watch(feed);
    for (const follower of feed.followers) follower.rereads();
  }

  #sweep(): void {
    const now = this.#options.clock.monotonicMs();
    const due: Feed[] = [];
    for (const feed of [...this.#feeds.values()]) {
      if (feed.local && now - feed.localAtMs > this.#options.localSilenceMs) this.#leaveLocal(feed);
      if (feed.unwatch && now >= feed.verifyAtMs) due.push(feed);
    }
    if (due.length > 0 && !this.#verifying) void this.#verify(due);
  }

  async #verify(due: readonly Feed[]): Promise<void> {
    this.#verifying = true;
    try {
      const seenBefore = due.map((feed) => feed.seen);
      const heads = await this.#options.store.heads(due.map((feed) => feed.turn));
      const now = this.#options.clock.monotonicMs();
      due.forEach((feed, index) => {
        feed.verifyEveryMs = Math.min(feed.verifyEveryMs * 2, this.#options.verifyMs);
        feed.verifyAtMs = now + feed.verifyEveryMs;
        const head = heads.get(feed.turn.turnId) ?? NOTHING;
        const lost = head < seenBefore[index]!;
        if (lost || head > feed.seen) for (const follower of feed.followers) follower.rereads();
      });
    } catch (error) {
      this.#options.logger.debug(
        { err: error },
        "heads of followed turns could not be compared; tried again",
      );
    } finally {
      this.#verifying = false;
    }
  }
}

/** Yields what the follower gets, as long as it connects; returns when the log must be read, or at the end of the turn. */
async function* live(follower: Follower, cursor: ReadCursor): AsyncGenerator<LoggedEntry, void, undefined> {
  while (!cursor.ended) {
    const next = follower.take();
    if (next === "reread") return;
    if (next === undefined) {
      await follower.wait();
      continue;
    }
    if (cursor.position !== undefined && next.entry.position <= cursor.position) continue;
    if (next.previous !== cursor.position) return;
    const packets = cursor.advance(next.entry);
    if (packets) yield packets;
  }
}

/** A follower found an entry in the log that no feed has told of: the others may be behind it, and no hint would say so. */
function noteFound(feed: Feed, position: Position, finder: Follower): void {
  if (position <= feed.seen) return;
  feed.seen = position;
  for (const follower of feed.followers) if (follower !== finder) follower.rereads();
}

function stopWatching(feed: Feed): void {
  feed.unwatch?.();
  feed.unwatch = undefined;
}

/** Taken entries are let go of in lots. */
const COMPACT_AT = 64;

interface Pending {
  readonly entry: LoggedEntry;
  readonly previous: Position;
}

/** One reader's queue: what came since it last looked, or the fact that it must look at the log. */
class Follower {
  readonly #maxBytes: number;
  #pending: Pending[] = [];
  #taken = 0;
  #bytes = 0;
  #reread = false;
  #failure: { readonly error: unknown } | undefined;
  #wake: (() => void) | undefined;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  offer(entry: LoggedEntry, previous: Position): void {
    if (this.#reread || this.#failure) return;
    this.#bytes += entry.batch.length;
    if (this.#bytes > this.#maxBytes) {
      this.rereads();
      return;
    }
    this.#pending.push({ entry, previous });
    this.#wake?.();
  }

  rereads(): void {
    this.#clear();
    this.#reread = true;
    this.#wake?.();
  }

  fail(error: unknown): void {
    this.#failure ??= { error };
    this.#clear();
    this.#wake?.();
  }

  /** The reader is about to look at the log: what comes from now on is kept. */
  reset(): void {
    this.#reread = false;
  }

  take(): Pending | "reread" | undefined {
    if (this.#failure) throw this.#failure.error;
    if (this.#reread) return "reread";
    const next = this.#pending[this.#taken];
    if (!next) {
      if (this.#taken > 0) this.#clear();
      return undefined;
    }
    this.#taken += 1;
    this.#bytes -= next.entry.batch.length;
    if (this.#taken === COMPACT_AT) {
      this.#pending.splice(0, COMPACT_AT);
      this.#taken = 0;
    }
    return next;
  }

  wait(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = () => {
        this.#wake = undefined;
        resolve();
      };
    });
  }

  #clear(): void {
    this.#pending = [];
    this.#taken = 0;
    this.#bytes = 0;
  }
}

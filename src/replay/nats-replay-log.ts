/**
 * The log on NATS JetStream: one stream, one subject per turn, appends fenced by the sequence of the subject's last message.
 *
 * Owns the connection, the inbox for answers and the live subscriptions. Invariants: no message carries a Nats-Msg-Id (the
 * duplicate check would run before the expectation); nothing subscribes to a log subject (that shows what the stream
 * refused); an append never waits longer than `ackTimeoutMs` for its answer and twice that in all.
 */
import { connect, Events, type ConnectionOptions, type Msg, type NatsConnection } from "nats";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { systemClock, type Clock } from "../lib/clock.js";
import { TurnError } from "../lib/errors.js";
import { newId } from "../lib/ids.js";
import type { Logger } from "../lib/log.js";
import { abortable } from "../lib/signals.js";
import { TurnTails } from "./follow.js";
import { decodeEntry, encodeEntryHeaders, liveSubject, logSubject } from "./nats-entry.js";
import { NatsInbox, NoAnswerError } from "./nats-inbox.js";
import { NatsReads } from "./nats-reads.js";
import { callJetStream, ensureStream, logIdOf, streamInfo, type StreamOptions } from "./nats-stream.js";
import {
  MAX_BATCH_BYTES,
  type AppendOutcome,
  type Entry,
  type LoggedEntry,
  type Position,
  type ReadOptions,
  type ReplayLog,
  type TurnLogKey,
} from "./replay-log.js";

export interface NatsReplayLogOptions {
  /** One or more server addresses, comma-separated; user and password (or a token) may stand in them. */
  readonly url: string;
  /** Name of the stream. Default "TURNWIRE_LOG". One server account holds one log. */
  readonly stream?: string;
  /** Copies of each entry in a cluster. Default 1. */
  readonly replicas?: number;
  /** Bound of the stream. Default 4 GiB or the most the server grants; an existing stream keeps its own. */
  readonly maxBytes?: number;
  /** Entries older than this go. Default 24 h; an existing stream keeps its own. A turn must end within a quarter of it. */
  readonly maxAgeMs?: number;
  /** How long an append waits for its acknowledgement. Default 1,000. */
  readonly ackTimeoutMs?: number;
  /** How long to wait for the server at the start. Default 10,000. */
  readonly connectTimeoutMs?: number;
  /** How long a follower waits for a server that is away before it fails. Default 30,000. */
  readonly patienceMs?: number;
  /** Longest silence of a followed turn before its head is compared with the leader's. Default 5,000. */
  readonly verifyMs?: number;
  readonly clock?: Clock;
  readonly logger: Logger;
}

/** The log, and what it holds on to, for metrics and leak tests. */
export interface NatsReplayLog extends ReplayLog {
  readonly counts: TurnTails["counts"] & { readonly waiting: number };
  /** "2.9.10": of the server that is connected. */
  readonly serverVersion: string;
}

const WRONG_LAST_SEQUENCE = [10071, 10164];
/** Resources of the account, the cluster, memory, storage. The bound of the stream itself has only a description. */
const NO_RESOURCES = [10002, 10023, 10028, 10047];
const STREAM_FULL = /maximum bytes exceeded|insufficient (storage )?resources/i;
const RETRY_FIRST_MS = 50;
const RETRY_MOST_MS = 500;
const PING_WITHIN_MS = 2_000;

interface PubAck {
  readonly seq?: number;
  readonly error?: { readonly code?: number; readonly err_code?: number; readonly description?: string };
}

/**
 * Connects, makes or checks the stream, and returns the log. Throws UNAVAILABLE when no server with JetStream answers in
 * time, INTERNAL (with the cause) when there is a stream of that name that cannot hold the log.
 */
export async function connectNatsReplayLog(options: NatsReplayLogOptions): Promise<NatsReplayLog> {
  const clock = options.clock ?? systemClock;
  const giveUpAt = clock.monotonicMs() + (options.connectTimeoutMs ?? 10_000);
  const connection = await untilThere(() => connect(connectionOptions(options)), giveUpAt, clock);
  if (connection.info?.jetstream !== true) {
    await connection.close();
    throw new TurnError(ErrorCode.NOT_FOUND, {
      message: "the nats-server has no JetStream: start it with -js",
    });
  }
  const log = new OnJetStream(connection, options, clock);
  try {
    await untilThere(() => log.open(), giveUpAt, clock);
  } catch (error) {
    await log.close();
    throw error;
  }
  return log;
}

function connectionOptions(options: NatsReplayLogOptions): ConnectionOptions {
  const urls = options.url
    .split(",")
    .map((part) => new URL(part.includes("://") ? part.trim() : `nats://${part.trim()}`));
  const user = decodeURIComponent(urls[0]!.username);
  const pass = decodeURIComponent(urls[0]!.password);
  const credentials = pass ? { user, pass } : user ? { token: user } : {};
  return {
    ...credentials,
    servers: urls.map((url) => url.host),
    ...(urls[0]!.protocol === "tls:" ? { tls: {} } : {}),
    name: "turnwire-log",
    maxReconnectAttempts: -1,
    reconnectTimeWait: 100,
    reconnectJitter: 50,
    pingInterval: 2_000,
    maxPingOut: 2,
    timeout: 2_000,
    noAsyncTraces: true,
  };
}

async function untilThere<T>(attempt: () => Promise<T>, giveUpAt: number, clock: Clock): Promise<T> {
  for (let pause = RETRY_FIRST_MS; ; pause = Math.min(pause * 2, RETRY_MOST_MS)) {
    try {
      return await attempt();
    } catch (error) {
      if (error instanceof TurnError && error.code !== ErrorCode.UNAVAILABLE) throw error;
      if (clock.monotonicMs() + pause >= giveUpAt) {
        throw new TurnError(ErrorCode.UNAVAILABLE, { message: "the log cannot be reached", cause: error });
      }
    }
    await clock.sleep(pause);
  }
}

class OnJetStream implements NatsReplayLog {
  readonly kind = "nats" as const;
  logId = "";
  readonly #connection: NatsConnection;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #streamOptions: StreamOptions;
  readonly #inbox: NatsInbox;
  readonly #reads: NatsReads;
  readonly #tails: TurnTails;
  readonly #closing = new AbortController();
  /** Settles when the connection is there; replaced at each loss. */
  #connected: { readonly promise: Promise<void>; readonly resolve: () => void } | undefined;
  #identifying: Promise<void> | undefined;

  constructor(connection: NatsConnection, options: NatsReplayLogOptions, clock: Clock) {
    this.#connection = connection;
    this.#clock = clock;
    this.#logger = options.logger;
    this.#streamOptions = {
      stream: options.stream ?? "TURNWIRE_LOG",
      replicas: options.replicas ?? 1,
      maxBytes: options.maxBytes,
      maxAgeMs: options.maxAgeMs,
      logger: options.logger,
    };
    this.#inbox = new NatsInbox(connection, { timeoutMs: options.ackTimeoutMs ?? 1_000 });
    this.#reads = new NatsReads(this.#inbox, this.#streamOptions.stream, () => this.#identify());
    this.#tails = new TurnTails({
      store: {
        head: (turn) => this.#reads.head(turn),
        locate: (turn, afterSeq, hint, head) => this.#reads.locate(turn, afterSeq, hint, head),
        page: (turn, after, upTo) => this.#reads.page(turn, after, upTo),
        heads: (turns) => this.#reads.heads(turns),
        watch: (turn) => this.#watch(turn),
      },
      clock,
      logger: options.logger,
      ...(options.patienceMs === undefined ? {} : { patienceMs: options.patienceMs }),
      ...(options.verifyMs === undefined ? {} : { verifyMs: options.verifyMs }),
    });
    void this.#watchConnection();
  }

  get counts(): NatsReplayLog["counts"] {
    return { ...this.#tails.counts, waiting: this.#inbox.waiting };
  }

  get serverVersion(): string {
    return this.#connection.info?.version ?? "";
  }

  /** Makes or checks the stream. */
  async open(): Promise<void> {
    this.logId = logIdOf(await ensureStream(this.#inbox, this.#streamOptions));
  }

  async append(
    turn: TurnLogKey,
    expected: Position,
    entry: Entry,
    signal: AbortSignal,
  ): Promise<AppendOutcome> {
    signal.throwIfAborted();
    if (entry.batch.length > MAX_BATCH_BYTES) throw new TurnError(ErrorCode.SIZE_LIMIT);
    return this.#append(turn, expected, entry);
  }

  async #append(
    turn: TurnLogKey,
    expected: Position,
    entry: Entry & { erased?: boolean },
  ): Promise<AppendOutcome> {
    const headers = encodeEntryHeaders(entry, expected);
    if (this.#connected && !(await this.#isBack())) {
      return { kind: "unknown", cause: new NoAnswerError("disconnected") };
    }
    let answer: Msg;
    try {
      answer = await this.#inbox.ask(logSubject(turn), entry.batch, headers);
    } catch (error) {
      if (!(error instanceof NoAnswerError)) throw error;
      if (error.reason === "no_responders") void this.#identify().catch(() => undefined); // it logs by itself
      return { kind: "unknown", cause: error };
    }
    const ack = JSON.parse(answer.string()) as PubAck;
    if (!ack.error && ack.seq) {
      const position = ack.seq as Position;
      this.#tails.appended(turn, { ...entry, position }, expected);
      return { kind: "appended", position };
    }
    return this.#notStored(turn, ack);
  }

  async #notStored(turn: TurnLogKey, ack: PubAck): Promise<AppendOutcome> {
    const { err_code: errCode = 0, code = 0, description = "" } = ack.error ?? {};
    if (WRONG_LAST_SEQUENCE.includes(errCode)) {
      this.#tails.localLost(turn.turnId);
      try {
        const last = await this.#reads.head(turn);
        this.#tails.behind(turn.turnId, last?.position);
        return { kind: "refused", last };
      } catch (error) {
        return { kind: "unknown", cause: error }; // repeated, it is refused again
      }
    }
    if (NO_RESOURCES.includes(errCode) || STREAM_FULL.test(description)) return { kind: "full" };
    return { kind: "unknown", cause: new Error(`append failed: ${errCode || code} ${description}`) };
  }

  async head(turn: TurnLogKey, signal: AbortSignal): Promise<LoggedEntry | undefined> {
    return abortable(this.#reads.head(turn), signal);
  }

  read(turn: TurnLogKey, afterSeq: number, options: ReadOptions): AsyncIterable<LoggedEntry> {
    return this.#tails.read(turn, afterSeq, options);
  }

  follow(turn: TurnLogKey, afterSeq: number, options: ReadOptions): AsyncIterable<LoggedEntry> {
    return this.#tails.follow(turn, afterSeq, options);
  }

  async erase(turn: TurnLogKey, signal: AbortSignal): Promise<void> {
    for (let pause = RETRY_FIRST_MS; ; pause = Math.min(pause * 2, RETRY_MOST_MS)) {
      const last = await this.head(turn, signal);
      if (!last) return;
      const tombstone = last.erased ? last.position : await this.#bury(turn, last);
      if (tombstone !== undefined) {
        const request = { filter: logSubject(turn), seq: tombstone };
        const purge = callJetStream(this.#inbox, `STREAM.PURGE.${this.#streamOptions.stream}`, request);
        await abortable(purge, signal).catch((error: unknown) => {
          throw error instanceof NoAnswerError
            ? new TurnError(ErrorCode.UNAVAILABLE, { cause: error })
            : error;
        });
        return;
      }
      await this.#clock.sleep(pause, signal);
    }
  }

  /** Appends the tombstone; undefined = look again. */
  async #bury(turn: TurnLogKey, last: LoggedEntry): Promise<Position | undefined> {
    const { epoch, lastSeq, position } = last;
    const batch = new Uint8Array(0);
    const incarnation = `erase-${newId()}`;
    const tombstone = {
      epoch,
      incarnation,
      firstSeq: lastSeq + 1,
      lastSeq,
      terminal: false,
      erased: true,
      batch,
    };
    const outcome = await this.#append(turn, position, tombstone);
    if (outcome.kind === "full") throw new TurnError(ErrorCode.OVERLOADED, { message: "the log is full" });
    return outcome.kind === "appended" ? outcome.position : undefined;
  }

  async fullness(signal: AbortSignal): Promise<number> {
    const info = await abortable(this.#streamInfo(), signal);
    return info && info.config.max_bytes > 0 ? info.state.bytes / info.config.max_bytes : 0;
  }

  async ping(signal: AbortSignal): Promise<void> {
    const within = AbortSignal.any([signal, AbortSignal.timeout(PING_WITHIN_MS)]);
    try {
      await abortable(this.#identify(), within);
    } catch (error) {
      signal.throwIfAborted();
      throw new TurnError(ErrorCode.UNAVAILABLE, { message: "the log cannot be reached", cause: error });
    }
  }

  async close(): Promise<void> {
    if (this.#closing.signal.aborted) return;
    const error = new TurnError(ErrorCode.UNAVAILABLE, { message: "the log was closed" });
    this.#closing.abort(error);
    this.#tails.close(error);
    this.#inbox.close();
    await this.#connection.close();
  }

  async #streamInfo(): ReturnType<typeof streamInfo> {
    try {
      return await streamInfo(this.#inbox, this.#streamOptions.stream);
    } catch (error) {
      throw error instanceof NoAnswerError ? new TurnError(ErrorCode.UNAVAILABLE, { cause: error }) : error;
    }
  }

  #watch(turn: TurnLogKey): () => void {
    const subscription = this.#connection.subscribe(liveSubject(turn), {
      callback: (error, message) => {
        if (!error) this.#onLive(turn, message);
      },
    });
    return () => subscription.unsubscribe();
  }

  #onLive(turn: TurnLogKey, message: Msg): void {
    try {
      const position = Number(message.headers?.get("Nats-Sequence"));
      const previous = Number(message.headers?.get("Nats-Last-Sequence")) as Position;
      this.#tails.heard(turn.turnId, decodeEntry(position, message.headers, message.data.slice()), previous);
    } catch (error) {
      this.#logger.warn(
        { err: error, turnId: turn.turnId },
        "a live entry could not be read; the log is asked",
      );
      this.#tails.behind(turn.turnId);
    }
  }

  async #watchConnection(): Promise<void> {
    for await (const status of this.#connection.status()) {
      if (status.type === Events.Disconnect) this.#onDisconnect();
      else if (status.type === Events.Reconnect) this.#onReconnect();
    }
    if (!this.#closing.signal.aborted) this.#logger.error("the connection to NATS was closed for good");
  }

  #onDisconnect(): void {
    if (!this.#connected) {
      let resolve!: () => void;
      const promise = new Promise<void>((done) => (resolve = done));
      this.#connected = { promise, resolve };
      this.#logger.warn("lost the connection to NATS");
    }
    this.#inbox.failAll("disconnected");
  }

  #onReconnect(): void {
    this.#connected?.resolve();
    this.#connected = undefined;
    this.#logger.info("connected to NATS again");
    this.#tails.resync();
    void this.#identifySurely();
  }

  /** Waits for a connection, about as long as for an answer. */
  async #isBack(): Promise<boolean> {
    const giveUp = new AbortController();
    const limit = this.#clock.sleep(1_000, giveUp.signal).catch(() => undefined);
    await Promise.race([this.#connected?.promise, limit]);
    giveUp.abort();
    return this.#connected === undefined;
  }

  async #identifySurely(): Promise<void> {
    for (
      let pause = RETRY_FIRST_MS;
      !this.#closing.signal.aborted;
      pause = Math.min(pause * 2, RETRY_MOST_MS)
    ) {
      try {
        await this.#identify();
        return;
      } catch {
        // the server is still coming up; `identify` logs what matters
      }
      await this.#clock.sleep(pause, this.#closing.signal).catch(() => undefined);
    }
  }

  /** Looks whether the stream is still the one it was; if not, makes or takes the new one and fails who reads the old. */
  #identify(): Promise<void> {
    this.#identifying ??= this.#identifyNow()
      .catch((error: unknown) => {
        const away = error instanceof TurnError && error.code === ErrorCode.UNAVAILABLE;
        if (!away) this.#logger.error({ err: error }, "the log's stream cannot be used");
        throw error;
      })
      .finally(() => (this.#identifying = undefined));
    return this.#identifying;
  }

  async #identifyNow(): Promise<void> {
    const found = await this.#streamInfo();
    if (found && logIdOf(found) === this.logId) return;
    const before = this.logId;
    this.logId = logIdOf(await ensureStream(this.#inbox, this.#streamOptions));
    this.#logger.error(
      { before, logId: this.logId },
      "the log was replaced: turns that were running have lost theirs",
    );
    this.#tails.fail(new TurnError(ErrorCode.LOG_REPLACED));
  }
}

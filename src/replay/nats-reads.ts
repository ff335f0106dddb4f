/** Plain reads of the stream: heads from the leader, everything else by direct gets. No consumer is ever made. */
import type { Msg } from "nats";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../lib/errors.js";
import { PAGE_BYTES, PAGE_ENTRIES } from "./entry-reader.js";
import { decodeEntry, logSubject, parseHeaderBlock } from "./nats-entry.js";
import { NoAnswerError, type NatsInbox } from "./nats-inbox.js";
import { callJetStream, JetStreamError, NO_MESSAGE_FOUND, STREAM_NOT_FOUND } from "./nats-stream.js";
import { NOTHING, type LoggedEntry, type Position, type TurnLogKey } from "./replay-log.js";
import { Slots } from "../lib/slots.js";

/** Turns whose heads are asked for at the same time. */
const HEADS_AT_ONCE = 32;
/**
 * Pages read at the same time. The server answers direct gets on the connection's own read loop, searching as it goes: what
 * comes behind them, appends and pings too, waits. For the same reason there are no batched gets: one of 64 entries in a
 * stream of 1,000 interleaved turns held the loop for 100 ms and more, and cost the server no less than 64 single ones.
 */
const PAGES_AT_ONCE = 16;

interface StoredMessage {
  readonly message: { readonly seq: number; readonly hdrs?: string; readonly data?: string };
}

export class NatsReads {
  readonly #inbox: NatsInbox;
  readonly #stream: string;
  readonly #onMissing: () => Promise<void>;
  readonly #pageSlots = new Slots(PAGES_AT_ONCE);

  /** `onMissing` is called (and waited for) when the stream is not there. */
  constructor(inbox: NatsInbox, stream: string, onMissing: () => Promise<void>) {
    this.#inbox = inbox;
    this.#stream = stream;
    this.#onMissing = onMissing;
  }

  /** The turn's last entry, from the leader. */
  head(turn: TurnLogKey): Promise<LoggedEntry | undefined> {
    return this.#fromLeader({ last_by_subj: logSubject(turn) });
  }

  async heads(turns: readonly TurnLogKey[]): Promise<ReadonlyMap<string, Position>> {
    const heads = new Map<string, Position>();
    for (let start = 0; start < turns.length; start += HEADS_AT_ONCE) {
      const lot = turns.slice(start, start + HEADS_AT_ONCE);
      const found = await Promise.all(lot.map((turn) => this.head(turn)));
      found.forEach((head, index) => {
        if (head) heads.set(lot[index]!.turnId, head.position);
      });
    }
    return heads;
  }

  /** Checks the hint, else halves the stretch of the stream before the head until the entry is found. */
  async locate(
    turn: TurnLogKey,
    afterSeq: number,
    hint: Position | undefined,
    head: LoggedEntry,
  ): Promise<Position> {
    const before = (position: number): Position => (position - 1) as Position;
    if (hint !== undefined && Number.isSafeInteger(hint) && hint > 0 && hint <= head.position) {
      const entry = await this.#next(turn, hint);
      if (entry?.position === hint && entry.firstSeq <= afterSeq + 1) return before(hint);
    }
    if (afterSeq === 0) return NOTHING;
    let low = 0;
    let high: number = head.position;
    while (low < high) {
      const middle = low + Math.ceil((high - low) / 2);
      const entry = await this.#next(turn, middle);
      if (!entry || entry.position > head.position || entry.firstSeq > afterSeq + 1) high = middle - 1;
      else if (entry.lastSeq > afterSeq) return before(entry.position);
      else low = entry.position;
    }
    return low > 0 ? before(low) : NOTHING;
  }

  /** See `EntryStore.page`. A replica that lags behind is made good by the leader. */
  async page(turn: TurnLogKey, after: Position, upTo: Position): Promise<readonly LoggedEntry[]> {
    const entries = await this.#pageSlots.run(() => this.#chain(turn, after, upTo));
    const wanted = entries.filter((entry) => entry.position <= upTo);
    if (wanted.length > 0 || entries.length > 0) return wanted;
    const entry = await this.#fromLeader({ seq: after + 1, next_by_subj: logSubject(turn) });
    return entry && entry.position <= upTo ? [entry] : [];
  }

  async #chain(turn: TurnLogKey, after: Position, upTo: Position): Promise<LoggedEntry[]> {
    const entries: LoggedEntry[] = [];
    let bytes = 0;
    for (let from = after + 1; from <= upTo && entries.length < PAGE_ENTRIES && bytes < PAGE_BYTES;) {
      const entry = await this.#next(turn, from);
      if (!entry) break;
      entries.push(entry);
      bytes += entry.batch.length;
      from = entry.position + 1;
    }
    return entries;
  }

  get #directGet(): string {
    return `$JS.API.DIRECT.GET.${this.#stream}`;
  }

  /** The turn's first entry at or after a stream sequence, from any replica. */
  async #next(turn: TurnLogKey, from: number): Promise<LoggedEntry | undefined> {
    const request = JSON.stringify({ seq: Math.max(from, 1), next_by_subj: logSubject(turn) });
    const message = await this.#answered(() => this.#inbox.ask(this.#directGet, request));
    const code = message.headers?.code ?? 0;
    if (code === 404) return undefined;
    if (code !== 0) throw new JetStreamError(code, message.headers?.description ?? "");
    return fromDirectGet(message);
  }

  async #fromLeader(request: object): Promise<LoggedEntry | undefined> {
    try {
      const { message } = await this.#answered(() =>
        callJetStream<StoredMessage>(this.#inbox, `STREAM.MSG.GET.${this.#stream}`, request),
      );
      const headers = parseHeaderBlock(Buffer.from(message.hdrs ?? "", "base64").toString());
      return decodeEntry(message.seq, headers, new Uint8Array(Buffer.from(message.data ?? "", "base64")));
    } catch (error) {
      if (error instanceof JetStreamError && error.errCode === NO_MESSAGE_FOUND) return undefined;
      throw error;
    }
  }

  /** Turns "no answer" into UNAVAILABLE and "no such stream" into LOG_REPLACED. */
  async #answered<T>(call: () => Promise<T>): Promise<T> {
    try {
      return await call();
    } catch (error) {
      if (error instanceof NoAnswerError) {
        if (error.reason === "no_responders") void this.#onMissing().catch(() => undefined); // it logs by itself
        throw new TurnError(ErrorCode.UNAVAILABLE, { cause: error });
      }
      if (error instanceof JetStreamError && error.errCode === STREAM_NOT_FOUND) {
        await this.#onMissing();
        throw new TurnError(ErrorCode.LOG_REPLACED, { cause: error });
      }
      throw error;
    }
  }
}

function fromDirectGet(message: Msg): LoggedEntry {
  // A copy: the message is a piece of a far larger receive buffer, which a kept entry would hold on to.
  return decodeEntry(Number(message.headers?.get("Nats-Sequence")), message.headers, message.data.slice());
}

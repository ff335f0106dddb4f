/** What the suites of the replay log share: entries made of real packets, and readers that collect what they get. */
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { PacketBatchSchema } from "../../gen/turnwire/log/v1/log_pb.js";
import { PacketSchema, type Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import { newId } from "../../src/lib/ids.js";
import { appendSurely } from "../../src/replay/claim.js";
import { trimEntry } from "../../src/replay/trim-entry.js";
import {
  NOTHING,
  type Entry,
  type LoggedEntry,
  type Position,
  type ReplayLog,
  type TurnLogKey,
} from "../../src/replay/replay-log.js";

export function newTurn(): TurnLogKey {
  return { turnId: newId(), partition: 3 };
}

export interface EntryShape {
  readonly epoch?: number;
  readonly incarnation?: string;
  readonly terminal?: boolean;
  /** Extra bytes of text in each packet. */
  readonly padding?: number;
}

/** Packets `firstSeq`..`lastSeq`, each with text that tells it apart. */
export function packets(firstSeq: number, lastSeq: number, padding = 0, mark = ""): Packet[] {
  const text = (seq: number): string => `${mark}packet ${seq} ${"x".repeat(padding)}`;
  return Array.from({ length: lastSeq - firstSeq + 1 }, (_, index) =>
    create(PacketSchema, {
      seq: firstSeq + index,
      placement: { turnIndex: 0 },
      payload: { case: "agentResponseDelta", value: { content: text(firstSeq + index) } },
    }),
  );
}

/** An entry with packets `firstSeq`..`lastSeq`. */
export function entryOf(firstSeq: number, lastSeq: number, shape: EntryShape = {}): Entry {
  const { epoch = 1, incarnation = "writer-1", terminal = false, padding = 0 } = shape;
  const mark = incarnation === "writer-1" ? "" : `${incarnation} `;
  const batch = toBinary(
    PacketBatchSchema,
    create(PacketBatchSchema, { packets: packets(firstSeq, lastSeq, padding, mark) }),
  );
  return { epoch, incarnation, firstSeq, lastSeq, terminal, batch };
}

/** A writer that holds its position, as the orchestrator does. */
export class Writer {
  position: Position;
  seq: number;

  constructor(
    readonly log: ReplayLog,
    readonly turn: TurnLogKey,
    readonly shape: EntryShape = {},
    from: { readonly position: Position; readonly seq: number } = { position: NOTHING, seq: 0 },
  ) {
    this.position = from.position;
    this.seq = from.seq;
  }

  /** Appends one entry of `count` packets; throws when it is not appended. */
  async write(
    count: number,
    shape: EntryShape = {},
    signal: AbortSignal = new AbortController().signal,
  ): Promise<Entry> {
    const entry = entryOf(this.seq + 1, this.seq + count, { ...this.shape, ...shape });
    const outcome = await appendSurely(this.log, this.turn, this.position, entry, signal);
    if (outcome.kind !== "appended") throw new Error(`not appended: ${outcome.kind}`);
    this.position = outcome.position;
    this.seq += count;
    return entry;
  }

  /** Appends a turn of `total` packets in batches of odd sizes, the last one terminal. */
  async writeTurn(total: number): Promise<void> {
    const sizes = [1, 3, 2, 7, 1, 5, 4];
    for (let at = 0; this.seq < total; at += 1) {
      const count = Math.min(sizes[at % sizes.length]!, total - this.seq);
      await this.write(count, { terminal: this.seq + count === total });
    }
  }
}

/** The packets of an entry beyond `afterSeq`, decoded. */
export function packetsAfter(entry: LoggedEntry, afterSeq: number): Packet[] {
  return fromBinary(PacketBatchSchema, trimEntry(entry, afterSeq).batch).packets;
}

/** Collects what an iteration yields beyond `afterSeq`, as a client would; the seqs must be dense. */
export async function collect(entries: AsyncIterable<LoggedEntry>, afterSeq: number): Promise<Packet[]> {
  const collected: Packet[] = [];
  let seq = afterSeq;
  for await (const entry of entries) {
    for (const packet of packetsAfter(entry, seq)) {
      if (packet.seq !== seq + 1) throw new Error(`seq ${packet.seq} came after ${seq}`);
      seq = packet.seq;
      collected.push(packet);
    }
  }
  return collected;
}

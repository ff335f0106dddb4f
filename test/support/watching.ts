/** A watcher for tests: takes a Watch as it comes and keeps what it told, so that tests wait for what they expect. */
import { fromBinary } from "@bufbuild/protobuf";
import {
  WatchResponseSchema,
  type SessionEvent,
  type WatchResponse,
} from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import type { Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import type { StreamFrame } from "../../src/lib/rpc/service-binding.js";

const PATIENCE_MS = 20_000;

export class Watching {
  readonly responses: WatchResponse[] = [];
  /** How the stream ended: an error, or that it just ended. */
  ended: { readonly error?: unknown } | undefined;
  readonly #cut: AbortController;
  readonly #done: Promise<void>;
  #wake: () => void = () => undefined;

  /** `open` starts the stream; the signal ends it. */
  constructor(open: (signal: AbortSignal) => AsyncIterable<WatchResponse>) {
    this.#cut = new AbortController();
    this.#done = this.#take(open(this.#cut.signal));
  }

  get events(): SessionEvent[] {
    return this.responses.flatMap((response) => response.events);
  }

  /** "turnStarted", "updated" ... of one session, or of all. */
  eventNames(sessionId?: string): string[] {
    const own = this.events.filter((event) => sessionId === undefined || event.sessionId === sessionId);
    return own.map((event) => event.event.case ?? "");
  }

  /** Packets of a turn, without heartbeats. */
  packets(turnId: string): Packet[] {
    return this.of(turnId).flatMap((response) => response.packets.filter((packet) => packet.seq > 0));
  }

  of(turnId: string): WatchResponse[] {
    return this.responses.filter((response) => response.turnId === turnId);
  }

  /** The last token told. */
  get token(): string {
    return this.responses.findLast((response) => response.eventToken !== "")?.eventToken ?? "";
  }

  hasEnd(turnId: string): boolean {
    return this.packets(turnId).at(-1)?.payload.case === "overallStop";
  }

  /** Waits until something was told; fails when the stream ends first, or after a while. */
  async until(told: (watching: Watching) => boolean, patienceMs = PATIENCE_MS): Promise<void> {
    const giveUpAt = performance.now() + patienceMs;
    while (!told(this)) {
      if (this.ended) throw new Error("the stream ended first", { cause: this.ended.error });
      const leftMs = giveUpAt - performance.now();
      if (leftMs <= 0) throw new Error(`not told: ${told.toString()}; told: ${this.eventNames().join()}`);
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, leftMs);
        this.#wake = () => (clearTimeout(timer), resolve());
      });
    }
  }

  /** Cuts the stream and waits for its end. */
  async close(): Promise<void> {
    this.#cut.abort();
    await this.#done;
  }

  /** Resolves when the stream has ended by itself. */
  get done(): Promise<void> {
    return this.#done;
  }

  async #take(stream: AsyncIterable<WatchResponse>): Promise<void> {
    try {
      for await (const response of stream) {
        this.responses.push(response);
        this.#wake();
      }
      this.ended = {};
    } catch (error) {
      this.ended = { error };
    }
    this.#wake();
  }
}

/** Frames as a client sees them. */
export async function* decoded(
  frames: AsyncIterable<StreamFrame<WatchResponse>>,
): AsyncGenerator<WatchResponse> {
  for await (const frame of frames)
    yield frame.kind === "bytes" ? fromBinary(WatchResponseSchema, frame.bytes) : frame.message;
}

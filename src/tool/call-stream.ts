/**
 * What one ExecuteTool stream sends: packets as they come, a keepalive when it was silent, then exactly one result. Every
 * source puts into one bounded queue that the stream drains, so the order is the queue's.
 */
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import {
  type ExecuteToolResponse,
  ExecuteToolResponseSchema,
  type ToolResult,
} from "../../gen/turnwire/tool/v1/tool_service_pb.js";
import { AsyncQueue } from "../lib/async-queue.js";
import type { Clock } from "../lib/clock.js";
import { TurnError } from "../lib/errors.js";
import type { PacketSink } from "./tool-run.js";

/** Packets that may wait for a slow caller before the tool has to wait too, bytes. */
const MAX_QUEUED_BYTES = 256 * 1024;

export class CallStream {
  readonly #queue = new AsyncQueue<ExecuteToolResponse>(MAX_QUEUED_BYTES);
  readonly #done = new AbortController();
  #lastSentMs: number;
  readonly #clock: Clock;

  /** Ends with CANCELLED as soon as `signal` aborts. Keepalives come every `keepaliveMs` of silence. */
  constructor(clock: Clock, keepaliveMs: number, signal: AbortSignal) {
    this.#clock = clock;
    this.#lastSentMs = clock.monotonicMs();
    if (signal.aborted) this.#abort();
    else signal.addEventListener("abort", this.#abort, { once: true, signal: this.#done.signal });
    void this.#keepAlive(keepaliveMs);
  }

  /** Takes the run's packets. */
  readonly sink: PacketSink = (packet, bytes) => {
    this.#lastSentMs = this.#clock.monotonicMs();
    return this.#queue.push(response({ case: "packet", value: { packet } }), bytes);
  };

  /** The last message; ends the stream. */
  finish(result: ToolResult): void {
    this.#queue.offer(response({ case: "result", value: result }), 0);
    this.close();
  }

  /** Ends the stream after what is queued and frees its timers. */
  close(): void {
    this.#done.abort();
    this.#queue.close();
  }

  /** Everything that is still queued is dropped: the caller has left. */
  discard(): void {
    this.close();
    this.#queue.drop();
  }

  /** Calls back once, when the stream ends in whatever way (at once if it has). */
  onClose(callback: () => void): void {
    if (this.#done.signal.aborted) callback();
    else this.#done.signal.addEventListener("abort", callback, { once: true });
  }

  [Symbol.asyncIterator](): AsyncGenerator<ExecuteToolResponse, void, undefined> {
    return this.#queue[Symbol.asyncIterator]();
  }

  readonly #abort = (): void => {
    this.#queue.drop();
    this.#queue.fail(new TurnError(ErrorCode.CANCELLED));
    this.#done.abort();
  };

  async #keepAlive(keepaliveMs: number): Promise<void> {
    const { signal } = this.#done;
    while (!signal.aborted) {
      const dueMs = this.#lastSentMs + keepaliveMs;
      const waitMs = dueMs - this.#clock.monotonicMs();
      if (waitMs > 0) {
        await this.#clock.sleep(waitMs, signal).catch(() => undefined); // the stream ended: the loop sees it
        continue;
      }
      this.#lastSentMs = this.#clock.monotonicMs();
      if (this.#queue.weight === 0) this.#queue.offer(response({ case: "keepalive", value: {} }), 1);
    }
  }
}

type Event = NonNullable<MessageInitShape<typeof ExecuteToolResponseSchema>["event"]>;

function response(event: Event): ExecuteToolResponse {
  return create(ExecuteToolResponseSchema, { event });
}

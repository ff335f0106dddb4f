/**
 * One turn as its reader sees it. Owns the cursor (last seq, log id, position), the TurnState as far as it is known, and
 * the RPC that is open at the moment; what to do when that RPC ends is decided by resume-policy.ts.
 *
 * 1. Packets are shown once each, in order, without a gap, over however many connections it takes.
 * 2. At most one RPC is open; leaving the loop (break, return, a thrown error) or the signal ends it at once, and nothing
 *    is delivered after that.
 * 3. The iteration ends after the terminal packet, or with a TurnwireClientError; an ended stream alone ends nothing.
 * 4. It waits for the network or for a back-off, never polls; a slow consumer slows the reading, nothing is piled up.
 */
import { clone, create } from "@bufbuild/protobuf";
import type { Client } from "@connectrpc/connect";
import {
  ResumeTurnRequestSchema,
  SendDisposition,
  SnapshotPolicy,
  type ChatService,
  type ResumeTurnResponse,
  type SendMessageRequest,
  type SendMessageResponse,
  type SendReceipt,
  type StopTurnResponse,
} from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import { TurnStateSchema, type TurnState } from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import { TurnStatus } from "../../gen/turnwire/chat/v1/types_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import type { Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import { abortable, deferred, type Deferred } from "../lib/signals.js";
import type { Clock } from "../lib/clock.js";
import { applyPacket, emptyTurnState } from "../turn/fold.js";
import { linkAbort } from "./cancellable-stream.js";
import { clientError, toClientError, TurnwireClientError } from "./errors.js";
import { siftPackets, SnapshotJoiner } from "./intake.js";
import {
  decide,
  endingError,
  RESUME_EXACT,
  type Approach,
  type Ending,
  type RetryLimits,
} from "./resume-policy.js";
import { Watchdog } from "../lib/watchdog.js";

/** What became of the connection. `attempt` counts the attempts since something new arrived. */
export interface ConnectionUpdate {
  readonly kind: "connection";
  readonly status: "connected" | "lost" | "resuming";
  readonly attempt: number;
  /** With "lost": why. */
  readonly error?: TurnwireClientError;
  /** With "lost": how long until the next attempt, milliseconds. */
  readonly delayMs?: number;
}

/** One step of a turn as the reader sees it. `state` is the stream's own, living state: read it, do not change it. */
export type TurnUpdate =
  | { readonly kind: "receipt"; readonly receipt: SendReceipt }
  | { readonly kind: "packets"; readonly packets: readonly Packet[]; readonly state: TurnState }
  /** The state was replaced as a whole; it stands at `seq`. Forget what earlier packets showed. */
  | { readonly kind: "snapshot"; readonly seq: number; readonly state: TurnState }
  | ConnectionUpdate;

/** What a stop is aimed at: a running turn, a send that may not have arrived yet, or whatever a session runs. */
export type StopTarget =
  { readonly turnId: string } | { readonly requestId: string } | { readonly sessionId: string };

/** What a stream needs from the client that makes it. */
export interface TurnStreamDeps {
  readonly api: Client<typeof ChatService>;
  readonly clock: Clock;
  readonly heartbeatTimeoutMs: number;
  readonly limits: RetryLimits;
  readonly random: () => number;
  readonly stop: (target: StopTarget) => Promise<StopTurnResponse>;
  readonly onEvent?: (
    event: ConnectionUpdate & { readonly turnId: string; readonly requestId: string },
  ) => void;
}

/** Where a stream begins. */
export type TurnStreamStart =
  | { readonly kind: "send"; readonly request: SendMessageRequest }
  | {
      readonly kind: "attach";
      readonly turnId: string;
      readonly afterSeq: number;
      readonly logId: string;
      readonly follow: boolean;
      readonly state?: TurnState;
    };

/** How long the RPC may take to close after the terminal packet, milliseconds, before it is cancelled. */
const CLOSE_GRACE_MS = 2_000;

type StreamMessage = SendMessageResponse | ResumeTurnResponse;
type Outcome = { readonly kind: "terminal" } | Ending;

/**
 * The updates of one turn. Lazy: nothing is sent before the first `next()` or `result()`. For one consumer: iterate it
 * once. Use `result()` beside the loop or instead of it.
 */
export class TurnStream implements AsyncIterable<TurnUpdate> {
  readonly #deps: TurnStreamDeps;
  readonly #start: TurnStreamStart;
  readonly #abort = new AbortController();
  readonly #signal: AbortSignal | undefined;
  readonly #outcome: Deferred<TurnState> = deferred();
  #unlink: () => void = () => undefined;
  #iterated = false;

  #turnId: string;
  #lastSeq: number;
  #logId: string;
  #logPosition = "0";
  #state: TurnState;
  #receipt: SendReceipt | undefined;
  #approach: Approach;
  #attempt = 0;
  #contacted = false;

  constructor(deps: TurnStreamDeps, start: TurnStreamStart, signal?: AbortSignal) {
    this.#deps = deps;
    this.#start = start;
    this.#signal = signal;
    const attached = start.kind === "attach" ? start : undefined;
    this.#turnId = attached?.turnId ?? "";
    this.#lastSeq = attached?.afterSeq ?? 0;
    this.#logId = attached?.logId ?? "";
    this.#state = attached?.state ? clone(TurnStateSchema, attached.state) : emptyTurnState();
    this.#approach = attached ? RESUME_EXACT : { via: "send" };
    this.#outcome.promise.catch(() => undefined); // whoever wants to know asks result()
  }

  /** The turn's id; empty until the receipt has arrived. */
  get turnId(): string {
    return this.#turnId;
  }

  /** The request_id of the send; empty for an attached stream. */
  get requestId(): string {
    return this.#start.kind === "send" ? this.#start.request.requestId : "";
  }

  /** Seq of the last packet shown: the cursor to attach with. */
  get lastSeq(): number {
    return this.#lastSeq;
  }

  /** The log that the cursor belongs to; empty until the server named it. */
  get logId(): string {
    return this.#logId;
  }

  /** The fold of what has been shown. Complete only if the stream began at 0, with a state, or with a snapshot. */
  get state(): TurnState {
    return this.#state;
  }

  get receipt(): SendReceipt | undefined {
    return this.#receipt;
  }

  /** Asks the server to stop the turn, also before its receipt has arrived. The terminal packet still comes by the stream. */
  stop(): Promise<StopTurnResponse> {
    return this.#deps.stop(this.#turnId ? { turnId: this.#turnId } : { requestId: this.requestId });
  }

  /**
   * The state at the end of the turn. Reads the stream itself if nobody iterates it. Rejects with a TurnwireClientError
   * when the stream is given up or left before the end; a turn that ended in an error resolves: see `state.stop`.
   */
  result(): Promise<TurnState> {
    if (!this.#iterated) void this.#drain();
    return this.#outcome.promise;
  }

  [Symbol.asyncIterator](): AsyncIterator<TurnUpdate, undefined> {
    if (this.#iterated) throw new TypeError("a TurnStream has one consumer: attach again for another");
    this.#iterated = true;
    this.#unlink = linkAbort(this.#signal, this.#abort);
    const updates = this.#run();
    let left = false;
    const leave = (): void => {
      left = true;
      this.#unlink();
    };
    return {
      next: async () => {
        if (left) return { done: true, value: undefined };
        try {
          this.#abort.signal.throwIfAborted();
          const step = await updates.next();
          if (left || step.done) {
            leave();
            this.#outcome.resolve(this.#state);
            return { done: true, value: undefined };
          }
          return step;
        } catch (thrown) {
          if (left) return { done: true, value: undefined };
          leave();
          void updates.return(undefined).catch(() => undefined);
          const error = this.#signal?.aborted
            ? clientError(ErrorCode.CANCELLED, undefined, this.#signal.reason)
            : toClientError(thrown);
          this.#outcome.reject(error);
          throw error;
        }
      },
      return: () => {
        leave();
        this.#outcome.reject(clientError(ErrorCode.CANCELLED, "the turn's reader left before its end"));
        this.#abort.abort(clientError(ErrorCode.CANCELLED, "the reader left"));
        void updates.return(undefined).catch(() => undefined);
        return Promise.resolve({ done: true, value: undefined });
      },
    };
  }

  async #drain(): Promise<void> {
    const updates = this[Symbol.asyncIterator]();
    try {
      while (!(await updates.next()).done);
    } catch {
      // result() rejects with it
    }
  }

  async *#run(): AsyncGenerator<TurnUpdate, undefined> {
    while (this.#state.stop === undefined) {
      this.#attempt += 1;
      const outcome = yield* this.#readOnce();
      if (outcome.kind === "terminal") return undefined;
      let decision = decide({
        ending: outcome,
        approach: this.#approach,
        turnKnown: this.#turnId !== "",
        contacted: this.#contacted,
        attempt: this.#attempt,
        follow: this.#start.kind === "send" || this.#start.follow,
        cursorSet: this.#lastSeq > 0,
        random: this.#deps.random(),
        limits: this.#deps.limits,
      });
      if (decision.kind === "check-ended") {
        const ended = await this.#endedAtCursor();
        if (ended && ended !== this.#state) yield this.#adopt(ended, this.#lastSeq);
        decision = ended ? { kind: "finish" } : decision.otherwise;
      }
      if (decision.kind === "finish") return undefined;
      if (decision.kind === "give-up") throw decision.error;
      const { delayMs } = decision;
      if (outcome.kind !== "steered")
        yield this.#connection("lost", { error: endingError(outcome), delayMs });
      if (delayMs > 0) await this.#deps.clock.sleep(delayMs, this.#abort.signal);
      this.#approach = decision.approach;
      yield this.#connection("resuming", { attempt: this.#attempt + 1 });
    }
    return undefined;
  }

  /** One RPC, from opening it to its end; yields what it brings. */
  async *#readOnce(): AsyncGenerator<TurnUpdate, Outcome> {
    const { clock, heartbeatTimeoutMs, limits } = this.#deps;
    const attempt = new AbortController();
    const unlink = linkAbort(this.#abort.signal, attempt);
    let silent = false;
    const watchdog = new Watchdog(clock, {
      ms: heartbeatTimeoutMs,
      expire() {
        silent = true;
        attempt.abort();
      },
    });
    const openedMs = clock.monotonicMs();
    const snapshot = new SnapshotJoiner();
    const messages = this.#open(attempt.signal)[Symbol.asyncIterator]();
    let connected = false;
    let nothingNew = true;
    let lingering = false;
    try {
      for (;;) {
        let step: IteratorResult<StreamMessage>;
        try {
          watchdog.waiting(true);
          step = await abortable(messages.next(), attempt.signal);
        } catch (thrown) {
          this.#abort.signal.throwIfAborted();
          return silent
            ? { kind: "silent", waitedMs: heartbeatTimeoutMs }
            : { kind: "failed", error: toClientError(thrown) };
        } finally {
          watchdog.arrived();
        }
        if (step.done) return { kind: "ended", nothingNew };
        if (!connected) {
          connected = this.#contacted = true;
          yield this.#connection("connected");
        }
        if (clock.monotonicMs() - openedMs >= limits.maxBackoffMs) this.#attempt = 1;

        const message = step.value;
        const seqBefore = this.#lastSeq;
        let ending: Outcome | undefined;
        try {
          ending = yield* this.#take(message, snapshot);
        } catch (thrown) {
          return { kind: "failed", error: ownFault(thrown) };
        }
        if (this.#lastSeq !== seqBefore) nothingNew = false;
        if (ending) {
          lingering = ending.kind === "terminal";
          return ending;
        }
      }
    } finally {
      watchdog.stop();
      if (lingering && !this.#abort.signal.aborted) {
        void closeQuietly(messages, attempt, clock).finally(unlink);
      } else {
        unlink();
        attempt.abort();
      }
    }
  }

  #open(signal: AbortSignal): AsyncIterable<StreamMessage> {
    const approach = this.#approach;
    if (approach.via === "send" && this.#start.kind === "send") {
      return this.#deps.api.sendMessage(this.#start.request, { signal });
    }
    const resume = approach.via === "resume" ? approach : RESUME_EXACT;
    const restart = resume.via === "resume" ? resume.fromStart : undefined;
    const request = create(ResumeTurnRequestSchema, {
      turnId: this.#turnId,
      afterSeq: restart ? 0 : this.#lastSeq,
      logId: restart?.logId ?? this.#logId,
      snapshot:
        resume.via === "resume" && resume.snapshot !== SnapshotPolicy.NEVER ? resume.snapshot : undefined,
      noFollow: this.#start.kind === "attach" && !this.#start.follow,
      logPositionHint: restart ? "0" : this.#logPosition,
    });
    return this.#deps.api.resumeTurn(request, { signal });
  }

  /** Takes in one message: header fields, receipt, snapshot parts, packets. Returns why the attempt is over, if it is. */
  *#take(message: StreamMessage, joiner: SnapshotJoiner): Generator<TurnUpdate, Outcome | undefined> {
    if (message.logId) this.#logId = message.logId;
    if (message.logPosition !== "0" && message.logPosition !== "") this.#logPosition = message.logPosition;

    if ("receipt" in message && message.receipt && !this.#receipt) {
      const { receipt } = message;
      this.#receipt = receipt;
      this.#turnId = receipt.turnId;
      this.#progress();
      yield { kind: "receipt", receipt };
      if (receipt.disposition === SendDisposition.STEERED) return { kind: "steered" };
    }

    if ("snapshot" in message && message.snapshot) {
      const joined = joiner.take(message.snapshot);
      if (joined) {
        yield this.#adopt(joined.state, joined.seq);
        if (joined.state.stop) return { kind: "terminal" };
      }
    }

    if (message.packets.length === 0) return undefined;
    const restarted = this.#approach.via === "resume" && this.#approach.fromStart !== undefined;
    if (restarted) yield this.#adopt(emptyTurnState(), 0); // the whole log comes, not a snapshot: begin anew
    const { fresh, terminal, trouble } = siftPackets(message.packets, this.#lastSeq);
    if (fresh.length > 0) {
      for (const packet of fresh) this.#apply(packet);
      this.#progress();
      yield { kind: "packets", packets: fresh, state: this.#state };
    }
    return terminal ? { kind: "terminal" } : trouble;
  }

  #apply(packet: Packet): void {
    this.#lastSeq = packet.seq;
    if (packet.payload.case === "turnStarted" && !this.#turnId) this.#turnId = packet.payload.value.turnId;
    applyPacket(this.#state, packet);
  }

  #adopt(state: TurnState, seq: number): TurnUpdate {
    this.#state = state;
    this.#lastSeq = seq;
    this.#progress();
    return { kind: "snapshot", seq, state };
  }

  /** Something new arrived: failures are counted from here, and the next question is the usual one. */
  #progress(): void {
    this.#attempt = 1;
    this.#approach = this.#turnId ? RESUME_EXACT : this.#approach;
  }

  #connection(
    status: ConnectionUpdate["status"],
    more: { readonly attempt?: number; readonly error?: TurnwireClientError; readonly delayMs?: number } = {},
  ): ConnectionUpdate {
    const update: ConnectionUpdate = { kind: "connection", status, attempt: this.#attempt, ...more };
    this.#deps.onEvent?.({ ...update, turnId: this.#turnId, requestId: this.requestId });
    return update;
  }

  /** The turn's final state if the server says that it ended exactly at the cursor. */
  async #endedAtCursor(): Promise<TurnState | undefined> {
    try {
      const { turn, state } = await this.#deps.api.getTurn(
        { turnId: this.#turnId },
        { signal: this.#abort.signal },
      );
      if (turn?.status !== TurnStatus.ENDED || turn.headSeq !== this.#lastSeq) return undefined;
      return state?.seq === this.#lastSeq ? state : this.#state;
    } catch {
      this.#abort.signal.throwIfAborted();
      return undefined; // the resume that follows will tell what is wrong
    }
  }
}

/** A message that could not be taken in: trying again would not help. */
function ownFault(thrown: unknown): TurnwireClientError {
  return thrown instanceof TurnwireClientError
    ? thrown
    : clientError(ErrorCode.INTERNAL, "a packet could not be taken in", thrown);
}

/** Reads the rest of an RPC whose turn is over, so that its connection can serve again; cancels it if it does not close. */
async function closeQuietly(
  messages: AsyncIterator<unknown>,
  attempt: AbortController,
  clock: Clock,
): Promise<void> {
  const closed = new AbortController();
  clock.sleep(CLOSE_GRACE_MS, closed.signal).then(
    () => attempt.abort(),
    () => undefined, // closed in time
  );
  try {
    while (!(await abortable(messages.next(), attempt.signal)).done);
  } catch {
    // the turn is complete: how its last RPC ended does not matter
  } finally {
    closed.abort();
  }
}

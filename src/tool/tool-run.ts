/**
 * One execution of a tool: its packets, its end, its cancellation.
 *
 * Owns the tool's generator and its AbortController. Invariants:
 * R1 `settled` resolves exactly once and never rejects.
 * R2 after `settled` no packet of the tool gets anywhere.
 * R3 `ended` resolves when the tool has really ended, or `graceMs` after it was told to: an abandoned tool is cut off.
 */
import type { ToolResult } from "../../gen/turnwire/tool/v1/tool_service_pb.js";
import { ToolOutcome } from "../../gen/turnwire/tool/v1/tool_service_pb.js";
import type { Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import type { Clock } from "../lib/clock.js";
import { TurnError } from "../lib/errors.js";
import type { Logger } from "../lib/log.js";
import { boundPacket, boundResult } from "./output-limits.js";
import { errorResult, publicFailureText, type ToolDefinition, type ToolInput } from "./tool.js";

/** Where a run's packets go: resolves when there is room for more; false = nobody takes packets any more. */
export type PacketSink = (packet: Packet, bytes: number) => Promise<boolean>;

export type CancelReason = "caller_left" | "cancelled";

/** How a run ended. `inDoubt`: it was cut off, and whether it had an effect is not known. */
export interface Settlement {
  readonly result: ToolResult;
  readonly inDoubt: boolean;
}

export interface ToolRunOptions {
  readonly definition: ToolDefinition;
  readonly input: ToolInput;
  /** Takes the packets; undefined when nobody wants them. */
  readonly sink: PacketSink | undefined;
  /** After this the run settles with TIMEOUT, ms. */
  readonly timeoutMs: number;
  /** How long a tool may take to end once it was told to, ms. */
  readonly graceMs: number;
  readonly maxOutputBytes: number;
  /** Packets beyond these are dropped. */
  readonly maxPackets: number;
  readonly maxPacketBytes: number;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** After so many packets in a row the event loop gets its turn, so that timers and cancellation reach a busy tool. */
const PACKETS_PER_TICK = 32;

type Ended =
  | { readonly kind: "returned"; readonly result: ToolResult }
  | { readonly kind: "threw"; readonly error: unknown };
type First = Ended | { readonly kind: "timeout" } | { readonly kind: "cancel" };

export class ToolRun {
  readonly settled: Promise<Settlement>;
  readonly ended: Promise<void>;
  readonly #options: ToolRunOptions;
  readonly #abort = new AbortController();
  #cancelReason: CancelReason | undefined;
  #onCancel: () => void = () => undefined;
  #stopped = false;
  #markEnded!: () => void;

  constructor(options: ToolRunOptions) {
    this.#options = options;
    this.ended = new Promise((resolve) => (this.#markEnded = resolve));
    this.settled = this.#drive();
  }

  /** Why the run was cancelled, if it was. */
  get cancelReason(): CancelReason | undefined {
    return this.#cancelReason;
  }

  /** Tells the tool to stop, at once. The first reason counts. */
  cancel(reason: CancelReason): void {
    if (this.#cancelReason || this.#stopped) return;
    this.#cancelReason = reason;
    this.#abort.abort(new TurnError(ErrorCode.CANCELLED));
    this.#onCancel();
  }

  async #drive(): Promise<Settlement> {
    const { clock, timeoutMs, graceMs, definition } = this.#options;
    const timers = new AbortController();
    const tool = this.#consume();
    const first = await Promise.race<First>([
      tool,
      clock.sleep(timeoutMs, timers.signal).then(
        () => ({ kind: "timeout" }),
        () => new Promise<never>(() => undefined),
      ),
      new Promise((resolve) => (this.#onCancel = () => resolve({ kind: "cancel" }))),
    ]);
    timers.abort();
    if (first.kind === "returned" || first.kind === "threw")
      return this.#finish(this.#settle(first), this.#cancelReason !== undefined);

    const endsInTime = this.#endsWithin(tool, graceMs);
    if (first.kind === "timeout") {
      this.#stopped = true;
      this.#abort.abort(new TurnError(ErrorCode.TOOL_TIMEOUT));
      void endsInTime.then(this.#markEnded);
      return { result: timeoutResult(definition, timeoutMs), inDoubt: !definition.tool.idempotent };
    }
    const late = await endsInTime;
    return this.#finish(this.#settle(late), true);
  }

  #finish(settlement: Settlement, cancelled: boolean): Settlement {
    this.#stopped = true;
    this.#markEnded();
    if (cancelled)
      this.#options.logger.info({ outcome: ToolOutcome[settlement.result.outcome] }, "tool call cancelled");
    return settlement;
  }

  /** undefined: the tool was abandoned. */
  #settle(end: Ended | undefined): Settlement {
    const { definition, input, maxOutputBytes, logger } = this.#options;
    if (end?.kind === "returned") {
      return { result: boundResult(end.result, maxOutputBytes, input.maxModelChars), inDoubt: false };
    }
    if (this.#abort.signal.aborted) {
      return { result: cancelledResult(definition), inDoubt: !definition.tool.idempotent };
    }
    logger.warn({ err: end?.error }, "tool failed");
    const text = publicFailureText(end?.error);
    const code =
      end?.error instanceof TurnError && end.error.code !== ErrorCode.INTERNAL
        ? end.error.code
        : ErrorCode.TOOL_FAILED;
    return { result: boundResult(errorResult(text, code), maxOutputBytes, 0), inDoubt: false };
  }

  async #endsWithin(tool: Promise<Ended>, ms: number): Promise<Ended | undefined> {
    const timer = new AbortController();
    const grace = this.#options.clock.sleep(ms, timer.signal).then(
      () => undefined,
      () => undefined,
    );
    const end = await Promise.race([tool, grace]);
    timer.abort();
    if (!end) this.#options.logger.warn("tool ignored its cancellation and was abandoned");
    this.#stopped = true;
    return end;
  }

  /** Pulls the tool's packets until it ends. What comes after the run was stopped or nobody listens is discarded. */
  async #consume(): Promise<Ended> {
    const { definition, input, logger } = this.#options;
    const budget = { packets: this.#options.maxPackets, bytes: this.#options.maxPacketBytes };
    try {
      const packets = definition.run(input, { signal: this.#abort.signal, logger });
      for (let count = 1; ; count++) {
        const step = await packets.next();
        if (step.done) return { kind: "returned", result: step.value };
        if (this.#stopped) {
          void packets.return(undefined as never).catch(() => undefined); // an abandoned tool's failure interests nobody
          return { kind: "threw", error: new TurnError(ErrorCode.CANCELLED) };
        }
        if (!this.#abort.signal.aborted) await this.#forward(step.value, budget);
        if (count % PACKETS_PER_TICK === 0 || this.#abort.signal.aborted) await new Promise(setImmediate);
      }
    } catch (error) {
      return { kind: "threw", error };
    }
  }

  async #forward(
    payload: Parameters<typeof boundPacket>[0],
    budget: { packets: number; bytes: number },
  ): Promise<void> {
    const { sink, logger } = this.#options;
    if (!sink || budget.packets <= 0) return;
    const bounded = boundPacket(payload);
    if (!bounded || bounded.bytes > budget.bytes) {
      logger.warn({ payload: payload.case }, "a tool's packet was too large and was left out");
      return;
    }
    budget.packets--;
    budget.bytes -= bounded.bytes;
    await sink(bounded.packet, bounded.bytes);
  }
}

/** What a model is told when a call may or may not have had its effect. */
export const IN_DOUBT_TEXT = "Whether it had an effect is not known; it was not run again.";

function timeoutResult(definition: ToolDefinition, timeoutMs: number): ToolResult {
  const { name, idempotent } = definition.tool;
  const seconds = Math.max(1, Math.round(timeoutMs / 1000));
  const text = `The call to ${name} took longer than ${seconds} s and was ended.`;
  return errorResult(
    idempotent ? text : `${text} ${IN_DOUBT_TEXT}`,
    ErrorCode.TOOL_TIMEOUT,
    ToolOutcome.TIMEOUT,
  );
}

function cancelledResult(definition: ToolDefinition): ToolResult {
  const { name, idempotent } = definition.tool;
  const text = `The call to ${name} was cancelled.`;
  return errorResult(
    idempotent ? text : `${text} ${IN_DOUBT_TEXT}`,
    ErrorCode.CANCELLED,
    ToolOutcome.CANCELLED,
  );
}

/**
 * The calls of one tool peer: admitted, run once, watched, cancelled, remembered.
 *
 * Owns the ledger of calls and the count of what runs. Invariants:
 * T1 one key, one execution at a time; a settled key replays its result and runs nothing (I8).
 * T2 a call of an epoch below the newest seen for its turn or key is refused.
 * T3 ExecuteTool sends exactly one ToolResult, last, or ends with a status.
 * T4 an execution whose last caller left is cancelled at once.
 * What a repeated call gets: the result, without the packets of the first.
 */
import { createHash } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import { timestampMs } from "@bufbuild/protobuf/wkt";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import {
  type CancelToolCallRequest,
  type CancelToolCallResponse,
  CancelToolCallResponseSchema,
  type ExecuteToolRequest,
  type ExecuteToolResponse,
  type GetToolCallRequest,
  type GetToolCallResponse,
  GetToolCallResponseSchema,
  type ToolCaller,
  ToolCallState,
  ToolOutcome,
  type ToolResult,
  ToolResultSchema,
} from "../../gen/turnwire/tool/v1/tool_service_pb.js";
import type { Clock } from "../lib/clock.js";
import { TurnError } from "../lib/errors.js";
import type { Logger } from "../lib/log.js";
import { type CallContext, messageFrame, type StreamFrame } from "../lib/rpc/service-binding.js";
import { type CallEntry, CallLedger, type CallScope, type CallState } from "./call-ledger.js";
import { CallStream } from "./call-stream.js";
import { boundResult } from "./output-limits.js";
import type { RegisteredTool, ToolRegistry } from "./registry.js";
import { errorResult, type ToolDefinition, type ToolInput } from "./tool.js";
import type { ToolServiceLimits } from "./tool-limits.js";
import { IN_DOUBT_TEXT, ToolRun } from "./tool-run.js";

const MAX_KEY_BYTES = 256;
/** A caller's deadline is met so much early, so that the TIMEOUT result still reaches it: a fifth of it, at most 1 s. */
const marginMs = (timeoutMs: number): number => Math.min(1_000, timeoutMs / 5);
/** Whatever a tool asks for: text and JSON of this size still fit a message of 4 MiB. */
const MAX_OUTPUT_BYTES = 1.5 * 1024 * 1024;
const RETRY_AFTER_MS = 500;
const CHARS_PER_TOKEN = 4;

/** A run and the streams that wait for it. */
interface LiveRun {
  readonly run: ToolRun;
  watchers: number;
}

export interface ToolCallsOptions {
  readonly registry: ToolRegistry;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly limits: Required<ToolServiceLimits>;
}

/** See the file's head for what holds. One instance per peer. */
export class ToolCalls {
  readonly #registry: ToolRegistry;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #limits: Required<ToolServiceLimits>;
  readonly #ledger: CallLedger;
  readonly #live = new Map<ToolRun, LiveRun>();
  readonly #running = new Counter();

  constructor(options: ToolCallsOptions) {
    this.#registry = options.registry;
    this.#clock = options.clock;
    this.#logger = options.logger;
    this.#limits = options.limits;
    this.#ledger = new CallLedger({
      clock: options.clock,
      maxEntries: this.#limits.ledgerEntries,
      ttlMs: this.#limits.ledgerTtlMs,
    });
  }

  /** ExecuteTool. */
  async *execute(
    request: ExecuteToolRequest,
    context: CallContext,
  ): AsyncGenerator<StreamFrame<ExecuteToolResponse>> {
    if (context.signal.aborted) throw new TurnError(ErrorCode.CANCELLED);
    const stream = new CallStream(this.#clock, this.#limits.keepaliveMs, context.signal);
    try {
      const admitted = await this.#admit(request, context, stream);
      if (admitted.kind === "result") stream.finish(admitted.result);
      else this.#watch(admitted.run, stream);
      for await (const message of stream) yield messageFrame(message);
    } finally {
      stream.discard();
    }
  }

  /** GetToolCall. */
  get(request: GetToolCallRequest, context: CallContext): GetToolCallResponse {
    const entry = this.#ledger.get(scopeOf(request.caller, context), requireKey(request.idempotencyKey));
    const result = entry?.state.kind === "settled" ? entry.state.result : undefined;
    return create(GetToolCallResponseSchema, { state: publicState(entry?.state), result });
  }

  /** CancelToolCall: answers when the call has ended, or was abandoned. */
  async cancel(request: CancelToolCallRequest, context: CallContext): Promise<CancelToolCallResponse> {
    const scope = scopeOf(request.caller, context);
    const entry = this.#ledger.get(scope, requireKey(request.idempotencyKey));
    this.#checkEpoch(scope, request.caller, entry);
    if (entry?.state.kind === "running") {
      const { run } = entry.state;
      run.cancel("cancelled");
      await run.settled;
    }
    return create(CancelToolCallResponseSchema, { state: publicState(entry?.state) });
  }

  /** Decides what a call gets: an earlier result, a run that goes on, or a run of its own. */
  async #admit(
    request: ExecuteToolRequest,
    context: CallContext,
    stream: CallStream,
  ): Promise<{ kind: "result"; result: ToolResult } | { kind: "run"; run: ToolRun }> {
    const scope = scopeOf(request.caller, context);
    const key = requireKey(request.idempotencyKey);
    const registered = this.#registry.get(request.toolId);
    for (;;) {
      const entry = this.#ledger.get(scope, key);
      this.#checkEpoch(scope, request.caller, entry);
      if (!registered)
        throw new TurnError(ErrorCode.TOOL_NOT_FOUND, { details: { tool_id: request.toolId } });
      if (!entry) break;
      if (entry.toolId !== request.toolId || entry.fingerprint !== fingerprint(request)) {
        throw new TurnError(ErrorCode.REQUEST_CONFLICT, {
          message: "this idempotency_key was used for a different call",
        });
      }
      entry.epoch = Math.max(entry.epoch, request.caller?.epoch ?? 0);
      if (entry.state.kind === "settled") return { kind: "result", result: entry.state.result };
      if (entry.state.kind === "in_doubt") {
        if (entry.state.mayRunAgain) break;
        return { kind: "result", result: unknownOutcome(registered.definition) };
      }
      const { run } = entry.state;
      if (run.cancelReason !== "caller_left") return { kind: "run", run };
      await Promise.all([run.settled, run.ended]); // its caller died: see how it ends, then decide again
      context.signal.throwIfAborted();
    }
    const refused = this.#refusal(registered, request, context);
    if ("result" in refused) return { kind: "result", result: refused.result };
    return { kind: "run", run: this.#start(registered, refused.args, request, context, stream, scope) };
  }

  /** What a call is refused with before anything runs, as a result the model reads; else its checked arguments. */
  #refusal(
    { definition, checkArguments }: RegisteredTool,
    request: ExecuteToolRequest,
    context: CallContext,
  ): { result: ToolResult } | { args: ToolInput["args"] } {
    const { tool } = definition;
    if (this.#timeoutMs(definition, request, context) <= 0) {
      const text = `The time for the call to ${tool.name} was over before it began. It was not run.`;
      return { result: errorResult(text, ErrorCode.TOOL_TIMEOUT, ToolOutcome.TIMEOUT) };
    }
    if (tool.needsApproval && request.approvedBy === "") {
      const text = `The call to ${tool.name} needs a person's approval, and nobody has approved it. It was not run.`;
      return { result: errorResult(text, ErrorCode.PERMISSION_DENIED, ToolOutcome.DENIED) };
    }
    const checked = checkArguments(request.argumentsJson);
    if (checked.kind === "ok") return { args: checked.args };
    return {
      result: boundResult(
        errorResult(checked.text, ErrorCode.INVALID_ARGUMENT),
        this.#maxOutputBytes(definition),
        0,
      ),
    };
  }

  #start(
    { definition }: RegisteredTool,
    args: ToolInput["args"],
    request: ExecuteToolRequest,
    context: CallContext,
    stream: CallStream,
    scope: CallScope,
  ): ToolRun {
    const slots = this.#takeSlots(definition, scope, request.caller?.turnId ?? "");
    const run = new ToolRun({
      definition,
      input: toInput(request, args),
      sink: request.resultOnly ? undefined : stream.sink,
      timeoutMs: this.#timeoutMs(definition, request, context),
      graceMs: this.#limits.graceMs,
      maxOutputBytes: this.#maxOutputBytes(definition),
      maxPackets: this.#limits.maxPacketsPerCall,
      maxPacketBytes: this.#limits.maxPacketBytesPerCall,
      clock: this.#clock,
      logger: this.#logger.child({
        toolId: request.toolId,
        callId: request.callId,
        turnId: request.caller?.turnId,
      }),
    });
    this.#live.set(run, { run, watchers: 0 });
    void run.ended.then(() => {
      this.#live.delete(run);
      for (const slot of slots) this.#running.leave(slot);
    });
    this.#record(scope, request, run, definition);
    return run;
  }

  #record(scope: CallScope, request: ExecuteToolRequest, run: ToolRun, definition: ToolDefinition): void {
    const key = request.idempotencyKey;
    const entry: CallEntry = {
      toolId: request.toolId,
      fingerprint: fingerprint(request),
      epoch: request.caller?.epoch ?? 0,
      state: { kind: "running", run },
    };
    this.#ledger.put(scope, key, entry);
    const incognito = request.caller?.incognito ?? false;
    void run.settled.then(({ result: full, inDoubt }) => {
      const result = incognito ? withoutContent(full) : full;
      const { idempotent } = definition.tool;
      const mayRunAgain =
        idempotent && run.cancelReason === "caller_left" && result.outcome === ToolOutcome.CANCELLED;
      const state: CallState =
        inDoubt || mayRunAgain ? { kind: "in_doubt", result, mayRunAgain } : { kind: "settled", result };
      this.#ledger.settle(scope, key, entry, state);
    });
  }

  /** Sends the run's result to the stream; the last stream that leaves takes the run with it. */
  #watch(run: ToolRun, stream: CallStream): void {
    const live = this.#live.get(run);
    let watching = true;
    if (live) live.watchers++;
    const leave = (): void => {
      if (!watching) return;
      watching = false;
      if (live && --live.watchers === 0) run.cancel("caller_left");
    };
    stream.onClose(leave);
    void run.settled.then(({ result }) => {
      watching = false;
      stream.finish(result);
    });
  }

  #checkEpoch(scope: CallScope, caller: ToolCaller | undefined, entry: CallEntry | undefined): void {
    const epoch = caller?.epoch ?? 0;
    if (this.#ledger.admitEpoch(scope, caller?.turnId ?? "", epoch) && epoch >= (entry?.epoch ?? 0)) return;
    throw new TurnError(ErrorCode.PERMISSION_DENIED, {
      message: "a newer owner of this turn has made calls since",
    });
  }

  /** Counts a call that begins; returns what to count down when it has ended. Refuses with OVERLOADED. */
  #takeSlots({ tool }: ToolDefinition, scope: CallScope, turnId: string): readonly string[] {
    const perTool = JSON.stringify([tool.toolId]);
    const perTurn = JSON.stringify([tool.toolId, scope.tenantId, scope.userId, turnId]);
    if (this.#live.size >= this.#limits.maxConcurrency) {
      throw overloaded("the tool service runs as many calls as it can, try again later", tool.toolId);
    }
    if (this.#running.count(perTool) >= this.#limits.maxConcurrencyPerTool) {
      throw overloaded(`too many calls to "${tool.name}" are running, try again later`, tool.toolId);
    }
    if (tool.maxConcurrency > 0 && this.#running.count(perTurn) >= tool.maxConcurrency) {
      throw overloaded(
        `a turn may run at most ${tool.maxConcurrency} calls to "${tool.name}" at once`,
        tool.toolId,
      );
    }
    const slots = [perTool, perTurn];
    for (const slot of slots) this.#running.enter(slot);
    return slots;
  }

  #timeoutMs({ tool }: ToolDefinition, request: ExecuteToolRequest, context: CallContext): number {
    const own = tool.timeout
      ? Number(tool.timeout.seconds) * 1000 + tool.timeout.nanos / 1e6
      : this.#limits.defaultTimeoutMs;
    const deadline = request.deadline
      ? timestampMs(request.deadline) - this.#clock.now().getTime()
      : Infinity;
    const { timeoutMs } = context;
    const rpc = timeoutMs === undefined ? Infinity : timeoutMs - marginMs(timeoutMs);
    return Math.min(own, deadline, rpc);
  }

  #maxOutputBytes({ tool }: ToolDefinition): number {
    return Math.min(tool.maxOutputBytes || this.#limits.defaultMaxOutputBytes, MAX_OUTPUT_BYTES);
  }
}

/** Counts by name; names at zero are forgotten. */
class Counter {
  readonly #counts = new Map<string, number>();

  count(name: string): number {
    return this.#counts.get(name) ?? 0;
  }

  enter(name: string): void {
    this.#counts.set(name, this.count(name) + 1);
  }

  leave(name: string): void {
    if (this.count(name) <= 1) this.#counts.delete(name);
    else this.#counts.set(name, this.count(name) - 1);
  }
}

function overloaded(message: string, toolId: string): TurnError {
  return new TurnError(ErrorCode.OVERLOADED, {
    message,
    retryAfterMs: RETRY_AFTER_MS,
    details: { tool_id: toolId },
  });
}

function toInput(request: ExecuteToolRequest, args: ToolInput["args"]): ToolInput {
  return {
    args,
    caller: request.caller,
    callId: request.callId,
    files: request.files,
    credentials: request.credentials,
    firstCitationNumber: request.firstCitationNumber,
    userQuery: request.userQuery,
    searchScope: request.searchScope,
    maxModelChars: request.maxModelTokens * CHARS_PER_TOKEN,
  };
}

function scopeOf(caller: ToolCaller | undefined, context: CallContext): CallScope {
  return {
    tenantId: caller?.tenantId || context.principal.tenantId,
    userId: caller?.userId || context.principal.userId,
  };
}

function requireKey(key: string): string {
  if (key === "") throw invalid("idempotency_key", "it must not be empty");
  if (Buffer.byteLength(key) > MAX_KEY_BYTES)
    throw invalid("idempotency_key", `at most ${MAX_KEY_BYTES} bytes`);
  return key;
}

function invalid(field: string, problem: string): TurnError {
  return new TurnError(ErrorCode.INVALID_ARGUMENT, { message: `${field}: ${problem}`, details: { field } });
}

/** Tells two calls under one key apart. Of an incognito call nothing is kept, not even this. */
function fingerprint(request: ExecuteToolRequest): string {
  if (request.caller?.incognito) return "";
  return createHash("sha256").update(request.argumentsJson).digest("base64");
}

function publicState(state: CallState | undefined): ToolCallState {
  switch (state?.kind) {
    case undefined:
      return ToolCallState.NOT_SEEN;
    case "running":
      return ToolCallState.DISPATCHING;
    case "settled":
      return ToolCallState.SETTLED;
    case "in_doubt":
      return ToolCallState.IN_DOUBT;
  }
}

/** What the ledger keeps of an incognito call: how it ended. */
function withoutContent({ outcome }: ToolResult): ToolResult {
  return create(ToolResultSchema, {
    outcome,
    modelText: "The call was made in private: its result was not kept and it was not run again.",
  });
}

function unknownOutcome({ tool }: ToolDefinition): ToolResult {
  const text = `An earlier attempt of this call to ${tool.name} was cut off. ${IN_DOUBT_TEXT}`;
  return errorResult(text, ErrorCode.TOOL_FAILED, ToolOutcome.UNKNOWN_OUTCOME);
}

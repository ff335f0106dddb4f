/**
 * The tool peer: ToolService over a registry.
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
  CancelToolCallResponseSchema,
  type ExecuteToolRequest,
  type ExecuteToolResponse,
  type GetToolCallRequest,
  GetToolCallResponseSchema,
  type ListToolsRequest,
  ListToolsResponseSchema,
  type ToolCaller,
  ToolCallState,
  ToolOutcome,
  type ToolResult,
  ToolService,
} from "../../gen/turnwire/tool/v1/tool_service_pb.js";
import type { Clock } from "../lib/clock.js";
import { TurnError } from "../lib/errors.js";
import type { Logger } from "../lib/log.js";
import {
  bindService,
  type CallContext,
  messageFrame,
  type ServiceBinding,
  type StreamFrame,
} from "../lib/rpc/service-binding.js";
import { type CallEntry, CallLedger, type CallScope, type CallState } from "./call-ledger.js";
import { CallStream } from "./call-stream.js";
import { boundResult } from "./output-limits.js";
import type { RegisteredTool, ToolRegistry } from "./registry.js";
import { errorResult, type ToolDefinition, type ToolInput } from "./tool.js";
import { IN_DOUBT_TEXT, ToolRun } from "./tool-run.js";

export interface ToolServiceLimits {
  /** Calls that may run at once. Default 64. */
  readonly maxConcurrency?: number;
  /** Calls of one tool that may run at once, unless the tool names its own number. Default 16. */
  readonly maxConcurrencyPerTool?: number;
  /** How long a call may take unless the tool or the caller says less, ms. Default 120,000. */
  readonly defaultTimeoutMs?: number;
  /** Silence after which a keepalive is sent, ms. Default 10,000. */
  readonly keepaliveMs?: number;
  /** How long a cancelled tool may take to end before it is abandoned, ms. Default 1,000. */
  readonly graceMs?: number;
  /** Model text of a tool that does not name its own limit, bytes. Default 1 MiB. */
  readonly defaultMaxOutputBytes?: number;
  /** Packets one call may send. Default 10,000. */
  readonly maxPacketsPerCall?: number;
  /** Bytes of packets one call may send. Default 8 MiB. */
  readonly maxPacketBytesPerCall?: number;
  /** Calls remembered by key. Default 10,000, for at most `ledgerTtlMs` (default 1 h) and 64 MiB of results. */
  readonly ledgerEntries?: number;
  readonly ledgerTtlMs?: number;
}

export interface ToolServiceOptions {
  readonly registry: ToolRegistry;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly limits?: ToolServiceLimits;
}

const DEFAULT_LIMITS: Required<ToolServiceLimits> = {
  maxConcurrency: 64,
  maxConcurrencyPerTool: 16,
  defaultTimeoutMs: 120_000,
  keepaliveMs: 10_000,
  graceMs: 1_000,
  defaultMaxOutputBytes: 1024 * 1024,
  maxPacketsPerCall: 10_000,
  maxPacketBytesPerCall: 8 * 1024 * 1024,
  ledgerEntries: 10_000,
  ledgerTtlMs: 3_600_000,
};

const DEFAULT_PAGE_SIZE = 100;
const MAX_PAGE_SIZE = 200;
const MAX_KEY_BYTES = 256;
/** A caller's deadline is met this much early, so that the TIMEOUT result still reaches it, ms. */
const DEADLINE_MARGIN_MS = 100;
const RETRY_AFTER_MS = 500;
const CHARS_PER_TOKEN = 4;

/** Implements ToolService. Calls are scoped to the tenant and user of `caller`, or of the connection when it names none. */
export function createToolService(options: ToolServiceOptions): ServiceBinding {
  const calls = new ToolCalls(options);
  return bindService(ToolService, {
    listTools: async (request) => listTools(options.registry, request),
    executeTool: (request, context) => calls.execute(request, context),
    getToolCall: async (request, context) => calls.get(request, context),
    cancelToolCall: async (request, context) => calls.cancel(request, context),
  });
}

function listTools(registry: ToolRegistry, request: ListToolsRequest) {
  const size = Math.min(request.pageSize || DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE);
  const after = request.pageToken;
  const rest = after === "" ? registry.tools : registry.tools.filter((tool) => tool.toolId > after);
  const tools = rest.slice(0, size);
  return create(ListToolsResponseSchema, {
    tools,
    nextPageToken: rest.length > size ? tools.at(-1)!.toolId : "",
    revision: registry.revision,
  });
}

/** A run and the streams that wait for it. */
interface LiveRun {
  readonly run: ToolRun;
  watchers: number;
}

class ToolCalls {
  readonly #registry: ToolRegistry;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #limits: Required<ToolServiceLimits>;
  readonly #ledger: CallLedger;
  readonly #live = new Map<ToolRun, LiveRun>();
  readonly #runningByTool = new Map<string, number>();

  constructor(options: ToolServiceOptions) {
    this.#registry = options.registry;
    this.#clock = options.clock;
    this.#logger = options.logger;
    this.#limits = { ...DEFAULT_LIMITS, ...options.limits };
    this.#ledger = new CallLedger({
      clock: options.clock,
      maxEntries: this.#limits.ledgerEntries,
      ttlMs: this.#limits.ledgerTtlMs,
    });
  }

  async *execute(
    request: ExecuteToolRequest,
    context: CallContext,
  ): AsyncGenerator<StreamFrame<ExecuteToolResponse>> {
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

  get(request: GetToolCallRequest, context: CallContext) {
    const entry = this.#ledger.get(scopeOf(request.caller, context), requireKey(request.idempotencyKey));
    const result = entry && entry.state.kind !== "running" ? entry.state.result : undefined;
    return create(GetToolCallResponseSchema, { state: publicState(entry?.state), result });
  }

  async cancel(request: CancelToolCallRequest, context: CallContext) {
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
    const key = request.idempotencyKey;
    if (Buffer.byteLength(key) > MAX_KEY_BYTES)
      throw invalid("idempotency_key", `at most ${MAX_KEY_BYTES} bytes`);
    const registered = this.#registry.get(request.toolId);
    for (;;) {
      const entry = key === "" ? undefined : this.#ledger.get(scope, key);
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
    const { toolId } = definition.tool;
    this.#checkConcurrency(definition);
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
      logger: this.#logger.child({ toolId, callId: request.callId, turnId: request.caller?.turnId }),
    });
    this.#live.set(run, { run, watchers: 0 });
    this.#runningByTool.set(toolId, (this.#runningByTool.get(toolId) ?? 0) + 1);
    void run.ended.then(() => {
      this.#live.delete(run);
      this.#runningByTool.set(toolId, this.#runningByTool.get(toolId)! - 1);
    });
    if (request.idempotencyKey !== "") this.#record(scope, request, run, definition);
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
    void run.settled.then(({ result, inDoubt }) => {
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

  #checkConcurrency({ tool }: ToolDefinition): void {
    const perTool = tool.maxConcurrency || this.#limits.maxConcurrencyPerTool;
    const busy = this.#live.size >= this.#limits.maxConcurrency;
    if (!busy && (this.#runningByTool.get(tool.toolId) ?? 0) < perTool) return;
    throw new TurnError(ErrorCode.OVERLOADED, {
      message: busy
        ? "the tool service runs as many calls as it can, try again later"
        : `too many calls to "${tool.name}" are running`,
      retryAfterMs: RETRY_AFTER_MS,
      details: { tool_id: tool.toolId },
    });
  }

  #timeoutMs({ tool }: ToolDefinition, request: ExecuteToolRequest, context: CallContext): number {
    const own = tool.timeout
      ? Number(tool.timeout.seconds) * 1000 + tool.timeout.nanos / 1e6
      : this.#limits.defaultTimeoutMs;
    const deadline = request.deadline
      ? timestampMs(request.deadline) - this.#clock.now().getTime()
      : Infinity;
    const rpc = context.timeoutMs === undefined ? Infinity : context.timeoutMs - DEADLINE_MARGIN_MS;
    return Math.min(own, deadline, rpc);
  }

  #maxOutputBytes({ tool }: ToolDefinition): number {
    return tool.maxOutputBytes || this.#limits.defaultMaxOutputBytes;
  }
}

function toInput(request: ExecuteToolRequest, args: ToolInput["args"]): ToolInput {
  return {
    args,
    caller: request.caller,
    callId: request.callId,
    files: request.files,
    credentials: request.credentials,
    firstCitationNumber: Math.max(1, request.firstCitationNumber),
    userQuery: request.userQuery,
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

function fingerprint(request: ExecuteToolRequest): string {
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

function unknownOutcome({ tool }: ToolDefinition): ToolResult {
  const text = `An earlier attempt of this call to ${tool.name} was cut off. ${IN_DOUBT_TEXT}`;
  return errorResult(text, ErrorCode.TOOL_FAILED, ToolOutcome.UNKNOWN_OUTCOME);
}

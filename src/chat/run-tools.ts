/**
 * The tools of one step: all calls run side by side, their packets merged as they arrive, one result each. A call is
 * dispatched at most once (I8): `dispatching` is stored before ExecuteTool, the result before its ToolCallResult is shown.
 */
import { create, toBinary, type MessageInitShape } from "@bufbuild/protobuf";
import { durationMs, timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { SearchFilters } from "../../gen/turnwire/chat/v1/types_pb.js";
import {
  AttachmentSchema,
  DocumentSchema,
  ErrorCode,
  type Attachment,
  type Document,
} from "../../gen/turnwire/packet/v1/common_pb.js";
import { SectionStatus } from "../../gen/turnwire/packet/v1/control_pb.js";
import { PacketSchema, type Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import {
  ToolCallResultSchema,
  ToolCallStatus,
  type ToolCallResult,
} from "../../gen/turnwire/packet/v1/tools_pb.js";
import {
  ExecuteToolRequestSchema,
  type SearchScopeSchema,
  ToolOutcome,
  type ExecuteToolRequest,
  type Tool,
  type ToolResult,
} from "../../gen/turnwire/tool/v1/tool_service_pb.js";
import { AsyncQueue } from "../lib/async-queue.js";
import type { Clock } from "../lib/clock.js";
import { TurnError } from "../lib/errors.js";
import { abortable, deferred } from "../lib/signals.js";
import type { DecodedCall } from "../turn/decode.js";
import { MAX_PACKET_BYTES } from "../turn/batch.js";
import { cutText, packet } from "../turn/packets.js";
import { placeToolPacket } from "../turn/placement.js";
import { INLINE_TEXT_BYTES, type LanePlan, type TurnPlan } from "./resolve-plan.js";
import type { TurnContext } from "./active-turn.js";
import type { LaneSources } from "./lane-sources.js";
import { ToolPacketGate } from "./tool-packet-gate.js";

/** A tool peer that says nothing for this long is taken for gone; it sends keepalives every 10 s. */
const SILENCE_MS = 45_000;
/** How much longer than the call's time we wait: the tool's own deadline answers first. */
const GRACE_MS = 2_000;
/** What a tool's packet may have, bytes: the rest is for seq, time and placement. */
const TOOL_PACKET_BYTES = MAX_PACKET_BYTES - 64;
/** Documents and files of one result, bytes: with the inline text they fit into one packet. */
const ATTACHED_BYTES = 48 * 1024;
const MESSAGE_BYTES = 1_024;

export interface ToolRun {
  readonly turn: TurnContext;
  readonly plan: TurnPlan;
  readonly lane: LanePlan;
  readonly cycle: number;
  readonly calls: readonly DecodedCall[];
  /** Gives each call that is dispatched its citation numbers. */
  readonly sources: LaneSources;
  readonly signal: AbortSignal;
}

/** How a call ended, for the model and the cycle policy. */
export interface CallResult {
  readonly callId: string;
  readonly status: ToolCallStatus;
  /** What the model reads, whole. */
  readonly modelText: string;
  /** What the answer may cite. */
  readonly documents: readonly Document[];
  readonly stopsTurn: boolean;
}

/**
 * Yields the packets of all calls until each has its ToolCallResult and SectionEnd; returns the results in call order. When
 * it is ended, by its signal, by the failure of one call's own bookkeeping or by its consumer, no further call begins and
 * those that run are cancelled.
 */
export async function* runTools(run: ToolRun): AsyncGenerator<readonly Packet[], readonly CallResult[]> {
  run.signal.throwIfAborted();
  const step = new AbortController();
  const results = new Array<CallResult | undefined>(run.calls.length);
  const resultOf = new Map(run.calls.map(({ callId }) => [callId, deferred<CallResult>()]));
  const queue = new AsyncQueue<readonly Packet[]>(64);
  const own = { ...run, signal: step.signal };
  const waiting = run.calls.map((call, index) => ({ call, index }));
  const worker = async (): Promise<void> => {
    for (let next = waiting.shift(); next; next = waiting.shift()) {
      const { call, index } = next;
      // A call runs after those it may be merged into, so the wait for them ends.
      const into = await resultOf.get(call.mergedIntoCallId ?? "")?.promise;
      const result = await runCall(own, call, index, into, (packets) => queue.push(packets));
      results[index] = result;
      resultOf.get(call.callId)?.resolve(result);
      step.signal.throwIfAborted();
    }
  };
  const onAbort = (): void => {
    step.abort(run.signal.reason);
    queue.fail(run.signal.reason);
  };
  run.signal.addEventListener("abort", onAbort, { once: true });
  const workers = Array.from(
    { length: Math.min(run.calls.length, run.turn.deps.limits.maxParallelTools) },
    worker,
  );
  Promise.all(workers).then(
    () => queue.close(),
    (error: unknown) => queue.fail(error),
  );
  try {
    yield* queue;
  } finally {
    run.signal.removeEventListener("abort", onAbort);
    step.abort(new TurnError(ErrorCode.CANCELLED));
    queue.close();
    queue.drop();
  }
  return results.filter((result) => result !== undefined);
}

type Emit = (packets: readonly Packet[]) => Promise<boolean>;

/** `into`: the result of the call that has run for this one too. */
async function runCall(
  run: ToolRun,
  call: DecodedCall,
  index: number,
  into: CallResult | undefined,
  emit: Emit,
): Promise<CallResult> {
  const { turn } = run;
  const startedMs = turn.deps.clock.monotonicMs();
  const tool = run.plan.tools.find((known) => known.toolId === call.toolId);
  const refusal = refuse(run, call, index, tool);
  const ended = refusal ?? (into ? ranTogether(into) : await execute(run, call, index, tool!, emit));
  const result = await toCallResult(turn, call, ended);
  await turn.checkpoint({
    kind: "result",
    modelIndex: run.lane.modelIndex,
    cycle: run.cycle,
    callId: call.callId,
    data: toBinary(ToolCallResultSchema, result),
  });
  const tookMs = Math.round(turn.deps.clock.monotonicMs() - startedMs);
  await emit([
    packet("toolCallResult", result, call.placement),
    packet(
      "sectionEnd",
      {
        status: sectionStatus(result.status),
        message: cutText(ended.error?.message ?? "", MESSAGE_BYTES),
        durationMs: tookMs,
      },
      call.placement,
    ),
  ]);
  return {
    callId: call.callId,
    status: result.status,
    modelText: ended.modelText,
    documents: ended.documents,
    stopsTurn: tool?.stopsTurn ?? false,
  };
}

/** What the model reads of a call whose work another one did; the status is that one's. */
function ranTogether(into: CallResult): ToolResult {
  return failed(
    into.status as number as ToolOutcome,
    "This call ran together with the first call of the same tool in this step. Its results are in the result of that call.",
  );
}

/** A call that must not be dispatched is answered here, so that every provider call id has its answer. */
function refuse(
  run: ToolRun,
  call: DecodedCall,
  index: number,
  tool: Tool | undefined,
): ToolResult | undefined {
  const { maxCallsPerStep } = run.turn.deps.limits;
  if (index >= maxCallsPerStep)
    return failed(
      ToolOutcome.DENIED,
      `Only ${maxCallsPerStep} calls can be made at once. Ask again with fewer.`,
    );
  if (!tool) {
    const names = run.plan.tools.map((known) => known.name).join(", ");
    return failed(
      ToolOutcome.ERROR,
      `There is no tool called "${call.toolName.slice(0, 128)}". ${names ? `The tools are: ${names}.` : "No tools can be used."}`,
    );
  }
  if (!call.argumentsValid)
    return failed(
      ToolOutcome.ERROR,
      `The arguments of ${tool.name} are not valid JSON. Send one JSON object that fits the tool's schema.`,
    );
  return undefined;
}

async function execute(
  run: ToolRun,
  call: DecodedCall,
  index: number,
  tool: Tool,
  emit: Emit,
): Promise<ToolResult> {
  const { turn } = run;
  const timeoutMs = tool.timeout ? durationMs(tool.timeout) : turn.deps.limits.toolTimeoutMs;
  await turn.checkpoint({
    kind: "dispatching",
    modelIndex: run.lane.modelIndex,
    cycle: run.cycle,
    callId: call.callId,
    data: toBinary(
      ExecuteToolRequestSchema,
      create(ExecuteToolRequestSchema, {
        callId: call.callId,
        toolId: tool.toolId,
        idempotencyKey: idempotencyKey(turn, call),
      }),
    ),
  });
  run.signal.throwIfAborted();
  const request = toolRequest(run, call, index, tool, timeoutMs); // its deadline counts from now
  const own = new AbortController();
  const onAbort = (): void => own.abort(run.signal.reason);
  run.signal.addEventListener("abort", onAbort, { once: true });
  try {
    return await readTool(turn, request, call, own, timeoutMs, emit);
  } catch (error) {
    run.signal.throwIfAborted();
    return resultOfFailure(error, tool);
  } finally {
    run.signal.removeEventListener("abort", onAbort);
    own.abort(new TurnError(ErrorCode.CANCELLED));
  }
}

/** Reads one ExecuteTool stream up to its result, within the call's time and never longer silent than SILENCE_MS. */
async function readTool(
  turn: TurnContext,
  request: ExecuteToolRequest,
  call: DecodedCall,
  own: AbortController,
  timeoutMs: number,
  emit: Emit,
): Promise<ToolResult> {
  const { clock } = turn.deps;
  const deadline = clock.monotonicMs() + timeoutMs + GRACE_MS;
  const gate = new ToolPacketGate();
  const events = turn.deps.tools.executeTool(request, own.signal)[Symbol.asyncIterator]();
  try {
    for (;;) {
      const next = await nextEvent(
        events,
        Math.min(SILENCE_MS, deadline - clock.monotonicMs()),
        clock,
        own.signal,
      );
      if (next.done)
        throw new TurnError(ErrorCode.TOOL_FAILED, { message: "the tool ended without a result" });
      const { event } = next.value;
      if (event.case === "result") return event.value;
      if (event.case !== "packet" || !event.value.packet || !gate.admits(event.value.packet)) continue;
      if (toBinary(PacketSchema, event.value.packet).length > TOOL_PACKET_BYTES)
        throw new TurnError(ErrorCode.TOOL_FAILED, { message: "the tool sent a packet over 128 KiB" });
      await emit([placeToolPacket(event.value.packet, call.placement)]);
    }
  } finally {
    // Not waited for: it stands behind a pending next(), and its failure is of no interest any more.
    void events.return?.()?.catch(() => undefined);
  }
}

/** The next event of a tool's stream; TOOL_TIMEOUT when it takes longer than `patienceMs`. */
async function nextEvent<T>(
  events: AsyncIterator<T>,
  patienceMs: number,
  clock: Clock,
  signal: AbortSignal,
): Promise<IteratorResult<T>> {
  const timer = new AbortController();
  const timedOut = clock.sleep(Math.max(patienceMs, 0), timer.signal).then(() => {
    throw new TurnError(ErrorCode.TOOL_TIMEOUT);
  });
  timedOut.catch(() => undefined);
  try {
    return await abortable(Promise.race([events.next(), timedOut]), signal);
  } finally {
    timer.abort();
  }
}

/** The same for every attempt at a call, whoever owns the turn by then. */
function idempotencyKey(turn: TurnContext, call: DecodedCall): string {
  return `${turn.row.turnId}:${call.callId}`;
}

function toolRequest(
  run: ToolRun,
  call: DecodedCall,
  index: number,
  tool: Tool,
  timeoutMs: number,
): ExecuteToolRequest {
  const { row, epoch, deps } = run.turn;
  return create(ExecuteToolRequestSchema, {
    caller: {
      tenantId: row.tenantId,
      userId: row.userId,
      sessionId: row.sessionId,
      turnId: row.turnId,
      epoch,
    },
    callId: call.callId,
    toolId: tool.toolId,
    argumentsJson: call.mergedArgumentsJson ?? (call.argumentsJson === "" ? "{}" : call.argumentsJson),
    idempotencyKey: idempotencyKey(run.turn, call),
    deadline: timestampFromMs(deps.clock.now().getTime() + timeoutMs),
    firstCitationNumber: run.sources.reserveNumbers(),
    userQuery: run.plan.input.text.slice(0, 8_192),
    searchScope: run.plan.searchFilters && searchScope(run.plan.searchFilters),
  });
}

/** The filters of a send, in the words of tool peers. */
function searchScope(filters: SearchFilters): MessageInitShape<typeof SearchScopeSchema> {
  const { sources, tags, documentIds, after, before } = filters;
  return { sources, tags, documentIds, after, before, projectIds: filters.documentSetIds };
}

function resultOfFailure(error: unknown, tool: Tool): ToolResult {
  const failure = TurnError.from(error);
  switch (failure.code) {
    case ErrorCode.TOOL_TIMEOUT:
    case ErrorCode.DEADLINE_EXCEEDED:
      return failed(ToolOutcome.TIMEOUT, `The call to ${tool.name} took too long and was ended.`);
    case ErrorCode.UNAVAILABLE:
      // Whether it ran is not known: said, never re-run (I8).
      return failed(
        tool.idempotent ? ToolOutcome.ERROR : ToolOutcome.UNKNOWN_OUTCOME,
        `The connection to ${tool.name} was lost; whether it took effect is not known.`,
      );
    default:
      return failed(ToolOutcome.ERROR, `The tool ${tool.name} failed: ${failure.message}`);
  }
}

function failed(outcome: ToolOutcome, text: string): ToolResult {
  return {
    $typeName: "turnwire.tool.v1.ToolResult",
    outcome,
    modelText: text,
    truncated: false,
    documents: [],
    files: [],
    resultJson: "",
  };
}

/** The packet's form of a result: text beyond 64 KiB goes to a file, its head stays inline; documents as far as they fit. */
async function toCallResult(
  turn: TurnContext,
  call: DecodedCall,
  ended: ToolResult,
): Promise<ToolCallResult> {
  const text = ended.modelText;
  const whole = Buffer.byteLength(text) <= INLINE_TEXT_BYTES;
  const { documents, files, cut } = boundAttached(ended);
  return create(ToolCallResultSchema, {
    callId: call.callId,
    status: callStatus(ended.outcome),
    modelText: cutText(text, INLINE_TEXT_BYTES),
    truncated: ended.truncated || !whole || cut,
    resultFileId: whole ? "" : await turn.saveTextFile(`${call.toolName}-result.txt`, text),
    documents,
    files,
  });
}

/** The first documents and files that fit into a packet. */
function boundAttached(ended: ToolResult): { documents: Document[]; files: Attachment[]; cut: boolean } {
  let room = ATTACHED_BYTES;
  const fits = (bytes: Uint8Array): boolean => (room -= bytes.length + 8) >= 0;
  const documents = ended.documents.filter((each) => fits(toBinary(DocumentSchema, each)));
  const files = ended.files.filter((each) => fits(toBinary(AttachmentSchema, each)));
  const cut = documents.length < ended.documents.length || files.length < ended.files.length;
  return { documents, files, cut };
}

function callStatus(outcome: ToolOutcome): ToolCallStatus {
  // The two enums have the same values by design; a test compares them.
  return outcome === ToolOutcome.UNSPECIFIED ? ToolCallStatus.ERROR : (outcome as number as ToolCallStatus);
}

function sectionStatus(status: ToolCallStatus): SectionStatus {
  switch (status) {
    case ToolCallStatus.OK:
      return SectionStatus.OK;
    case ToolCallStatus.TIMEOUT:
      return SectionStatus.TIMEOUT;
    case ToolCallStatus.CANCELLED:
      return SectionStatus.CANCELLED;
    case ToolCallStatus.DENIED:
      return SectionStatus.DENIED;
    case ToolCallStatus.UNKNOWN_OUTCOME:
      return SectionStatus.UNKNOWN_OUTCOME;
    default:
      return SectionStatus.ERROR;
  }
}

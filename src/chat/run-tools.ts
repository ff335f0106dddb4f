/**
 * The tools of one step: all calls run side by side, their packets merged as they arrive, one result each. A call is
 * dispatched at most once (I8): `dispatching` is stored before ExecuteTool, the result before its ToolCallResult is shown.
 */
import { create, toBinary } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import { SectionStatus } from "../../gen/turnwire/packet/v1/control_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import {
  ToolCallResultSchema,
  ToolCallStatus,
  type ToolCallResult,
} from "../../gen/turnwire/packet/v1/tools_pb.js";
import {
  ExecuteToolRequestSchema,
  ToolOutcome,
  type ExecuteToolRequest,
  type Tool,
  type ToolResult,
} from "../../gen/turnwire/tool/v1/tool_service_pb.js";
import { AsyncQueue } from "../lib/async-queue.js";
import { TurnError } from "../lib/errors.js";
import { abortable } from "../lib/signals.js";
import type { DecodedCall } from "../turn/decode.js";
import { packet, splitText } from "../turn/packets.js";
import { isToolPayload, placeToolPacket } from "../turn/placement.js";
import { INLINE_TEXT_BYTES, type LanePlan, type TurnPlan } from "./accept-turn.js";
import type { TurnContext } from "./active-turn.js";

/** Citation numbers of the calls of a step are this far apart (contract.md 3). */
const CITATION_RANGE = 100;
/** A tool peer that says nothing for this long is taken for gone; it sends keepalives every 10 s. */
const SILENCE_MS = 45_000;

export interface ToolRun {
  readonly turn: TurnContext;
  readonly plan: TurnPlan;
  readonly lane: LanePlan;
  readonly cycle: number;
  readonly calls: readonly DecodedCall[];
  readonly signal: AbortSignal;
}

/** How a call ended, for the model and the cycle policy. */
export interface CallResult {
  readonly callId: string;
  readonly status: ToolCallStatus;
  /** What the model reads, whole. */
  readonly modelText: string;
  readonly stopsTurn: boolean;
}

/** Yields the packets of all calls until each has its ToolCallResult and SectionEnd; returns the results in call order. */
export async function* runTools(run: ToolRun): AsyncGenerator<readonly Packet[], readonly CallResult[]> {
  const results = new Array<CallResult | undefined>(run.calls.length);
  const queue = new AsyncQueue<readonly Packet[]>(64);
  const waiting = run.calls.map((call, index) => ({ call, index }));
  const worker = async (): Promise<void> => {
    for (let next = waiting.shift(); next; next = waiting.shift()) {
      results[next.index] = await runCall(run, next.call, next.index, (packets) => queue.push(packets));
    }
  };
  const onAbort = (): void => queue.fail(run.signal.reason);
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
    queue.close();
  }
  return results.filter((result) => result !== undefined);
}

type Emit = (packets: readonly Packet[]) => Promise<boolean>;

async function runCall(run: ToolRun, call: DecodedCall, index: number, emit: Emit): Promise<CallResult> {
  const { turn } = run;
  const startedMs = turn.deps.clock.monotonicMs();
  const tool = run.plan.tools.find((known) => known.toolId === call.toolId);
  const refusal = refuse(run, call, tool);
  const ended = refusal ?? (await execute(run, call, index, tool!, emit));
  const result = await toCallResult(turn, call, ended);
  await turn.checkpoint({
    kind: "result",
    modelIndex: run.lane.modelIndex,
    cycle: run.cycle,
    callId: call.callId,
    data: toBinary(ToolCallResultSchema, result),
  });
  const durationMs = Math.round(turn.deps.clock.monotonicMs() - startedMs);
  await emit([
    packet("toolCallResult", result, call.placement),
    packet(
      "sectionEnd",
      { status: sectionStatus(result.status), message: ended.error?.message ?? "", durationMs },
      call.placement,
    ),
  ]);
  return {
    callId: call.callId,
    status: result.status,
    modelText: ended.modelText,
    stopsTurn: tool?.stopsTurn ?? false,
  };
}

/** A call that must not be dispatched is answered here, so that every provider call id has its answer. */
function refuse(run: ToolRun, call: DecodedCall, tool: Tool | undefined): ToolResult | undefined {
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
  const timeoutMs = tool.timeout ? Number(tool.timeout.seconds) * 1000 : turn.deps.limits.toolTimeoutMs;
  const request = toolRequest(run, call, index, tool, timeoutMs);
  const stored = await turn.checkpoint({
    kind: "dispatching",
    modelIndex: run.lane.modelIndex,
    cycle: run.cycle,
    callId: call.callId,
    data: toBinary(
      ExecuteToolRequestSchema,
      create(ExecuteToolRequestSchema, {
        callId: call.callId,
        toolId: tool.toolId,
        idempotencyKey: request.idempotencyKey,
      }),
    ),
  });
  if (!stored) throw turn.fenced();
  run.signal.throwIfAborted();
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
  const deadline = clock.monotonicMs() + timeoutMs + 2_000; // the tool's own deadline answers first
  const events = turn.deps.tools.executeTool(request, own.signal)[Symbol.asyncIterator]();
  for (;;) {
    const patienceMs = Math.min(SILENCE_MS, deadline - clock.monotonicMs());
    const timer = new AbortController();
    const timedOut = clock.sleep(Math.max(patienceMs, 0), timer.signal).then(() => {
      throw new TurnError(ErrorCode.TOOL_TIMEOUT);
    });
    timedOut.catch(() => undefined);
    const next = await abortable(Promise.race([events.next(), timedOut]), own.signal).finally(() =>
      timer.abort(),
    );
    if (next.done) throw new TurnError(ErrorCode.TOOL_FAILED, { message: "the tool ended without a result" });
    const { event } = next.value;
    if (event.case === "result") return event.value;
    if (event.case !== "packet" || !event.value.packet || !isToolPayload(event.value.packet)) continue;
    await emit([placeToolPacket(event.value.packet, call.placement)]);
  }
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
    argumentsJson: call.argumentsJson === "" ? "{}" : call.argumentsJson,
    idempotencyKey: `${row.turnId}:${call.callId}`,
    deadline: timestampFromMs(deps.clock.now().getTime() + timeoutMs),
    firstCitationNumber: run.turn.reserveCitations(CITATION_RANGE),
    userQuery: run.plan.input.text.slice(0, 8_192),
  });
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

/** The packet's form of a result: text beyond 64 KiB goes to a file, its head stays inline. */
async function toCallResult(
  turn: TurnContext,
  call: DecodedCall,
  ended: ToolResult,
): Promise<ToolCallResult> {
  const text = ended.modelText;
  const whole = Buffer.byteLength(text) <= INLINE_TEXT_BYTES;
  return create(ToolCallResultSchema, {
    callId: call.callId,
    status: callStatus(ended.outcome),
    modelText: whole ? text : (splitText(text, INLINE_TEXT_BYTES)[0] ?? ""),
    truncated: ended.truncated || !whole,
    resultFileId: whole ? "" : await turn.saveTextFile(`${call.toolName}-result.txt`, text),
    documents: ended.documents,
    files: ended.files,
  });
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

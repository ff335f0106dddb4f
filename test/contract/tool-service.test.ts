/** ToolService through its binding: admission, ledger, epochs, cancellation, limits, with tools released by hand. */
import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { Code } from "@connectrpc/connect";
import { expect, onTestFinished, test } from "vitest";
import { DocumentSchema, ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import {
  type CancelToolCallResponse,
  type ExecuteToolRequest,
  ExecuteToolRequestSchema,
  type ExecuteToolResponse,
  ExecuteToolResponseSchema,
  type GetToolCallResponse,
  type ListToolsResponse,
  type Tool,
  ToolCallState,
  ToolOutcome,
  type ToolResult,
  ToolResultSchema,
  ToolSchema,
} from "../../gen/turnwire/tool/v1/tool_service_pb.js";
import { TurnError } from "../../src/lib/errors.js";
import { silentLogger } from "../../src/lib/log.js";
import type { CallContext, ServerStreamImpl, UnaryImpl } from "../../src/lib/rpc/service-binding.js";
import { deferred } from "../../src/lib/signals.js";
import { createToolRegistry } from "../../src/tool/registry.js";
import { createToolService } from "../../src/tool/service.js";
import type { ToolServiceLimits } from "../../src/tool/tool-limits.js";
import type { ToolContext, ToolDefinition, ToolInput, ToolPayload } from "../../src/tool/tool.js";
import { ManualClock } from "../support/manual-clock.js";

const CALLER = { tenantId: "t1", userId: "u1", sessionId: "s1", turnId: "turn1", epoch: 1 };

type Run = (input: ToolInput, context: ToolContext) => AsyncGenerator<ToolPayload, ToolResult, undefined>;

function tool(run: Run, about: Partial<Omit<Tool, "$typeName">> = {}): ToolDefinition {
  return {
    tool: create(ToolSchema, {
      toolId: "probe",
      name: "probe",
      parametersJsonSchema: '{"type":"object"}',
      ...about,
    }),
    run,
  };
}

const ok = (modelText: string): ToolResult =>
  create(ToolResultSchema, { outcome: ToolOutcome.OK, modelText });
const delta = (data: string): ToolPayload => ({
  case: "customToolDelta",
  value: { toolName: "probe", data },
});

/** A tool that counts its runs, tells when it began and ends when it is let go. */
function gatedTool(about: Partial<Omit<Tool, "$typeName">> = {}, ignoresCancel = false) {
  const state = { runs: 0, aborted: 0, begun: deferred(), gate: deferred() };
  const definition = tool(async function* (_input, { signal }) {
    state.runs++;
    signal.addEventListener("abort", () => state.aborted++);
    yield delta("begun");
    state.begun.resolve();
    const left = new Promise<never>((_, reject) => {
      if (!ignoresCancel) signal.addEventListener("abort", () => reject(signal.reason as Error));
    });
    await Promise.race([state.gate.promise, left]);
    yield delta("late");
    return ok(`run ${state.runs}`);
  }, about);
  return { definition, state };
}

function start(definitions: ToolDefinition[], limits: ToolServiceLimits = {}) {
  const clock = new ManualClock();
  const binding = createToolService({
    registry: createToolRegistry(definitions),
    clock,
    logger: silentLogger,
    limits,
  });
  const method = <T>(name: string): T => binding.methods.get(name) as T;
  const execute = method<ServerStreamImpl<ExecuteToolRequest, ExecuteToolResponse>>("executeTool");
  const context = (signal = new AbortController().signal, timeoutMs?: number): CallContext => ({
    principal: { tenantId: "peer", userId: "peer", admin: false },
    signal,
    protocol: "test",
    ...(timeoutMs === undefined ? {} : { timeoutMs }),
  });
  let keys = 0;
  const unary = <O>(name: string, request: object): Promise<O> =>
    method<UnaryImpl<object, O>>(name)({ caller: CALLER, ...request }, context());
  return {
    clock,
    call(
      request: Omit<MessageInitShape<typeof ExecuteToolRequestSchema>, "$typeName" | "$unknown">,
      signal?: AbortSignal,
      timeoutMs?: number,
    ) {
      const message = create(ExecuteToolRequestSchema, {
        caller: CALLER,
        callId: "c",
        toolId: "probe",
        idempotencyKey: `own-${keys++}`,
        ...request,
      });
      return new Call(execute(message, context(signal, timeoutMs)));
    },
    get: (key: string, caller: object = CALLER) =>
      unary<GetToolCallResponse>("getToolCall", { idempotencyKey: key, caller }),
    cancel: (key: string, caller: object = CALLER) =>
      unary<CancelToolCallResponse>("cancelToolCall", { idempotencyKey: key, caller }),
    list: (pageSize: number, pageToken: string) =>
      unary<ListToolsResponse>("listTools", { pageSize, pageToken }),
  };
}

/** A stream that is being read: what came so far, and its end. */
class Call {
  readonly events: ExecuteToolResponse[] = [];
  readonly done: Promise<void>;
  #arrived = deferred();

  constructor(stream: ReturnType<ServerStreamImpl<ExecuteToolRequest, ExecuteToolResponse>>) {
    this.done = this.#read(stream);
    this.done.catch(() => undefined);
  }

  /** Kinds of the messages, in order. */
  get kinds(): (string | undefined)[] {
    return this.events.map(({ event }) => event.case);
  }

  /** The result, which must be the last message and the only one of its kind. */
  async result(): Promise<ToolResult> {
    await this.done;
    expect(this.kinds.filter((kind) => kind === "result")).toHaveLength(1);
    const { event } = this.events.at(-1)!;
    if (event.case !== "result") throw new Error("the last message is not the result");
    return event.value;
  }

  async error(): Promise<TurnError> {
    const error: unknown = await this.done.then(
      () => undefined,
      (reason: unknown) => reason,
    );
    if (!(error instanceof TurnError)) throw new Error("the call did not fail as expected", { cause: error });
    return error;
  }

  /** Resolves when there are `count` messages. */
  async has(count: number): Promise<void> {
    while (this.events.length < count) await this.#arrived.promise;
  }

  async #read(stream: ReturnType<ServerStreamImpl<ExecuteToolRequest, ExecuteToolResponse>>): Promise<void> {
    for await (const frame of stream) {
      if (frame.kind !== "message") throw new Error("bytes were not expected");
      this.events.push(frame.message);
      this.#arrived.resolve();
      this.#arrived = deferred();
    }
  }
}

const tick = (): Promise<void> => new Promise(setImmediate);

test("execute - packets with placement and seq 0, then exactly one result", async () => {
  const { definition, state } = gatedTool();
  state.gate.resolve();
  const peer = start([definition]);
  const call = peer.call({});
  const result = await call.result();
  expect(result.modelText).toBe("run 1");
  expect(call.kinds).toEqual(["packet", "packet", "result"]);
  for (const { event } of call.events.slice(0, 2)) {
    if (event.case !== "packet") throw new Error("not a packet");
    expect(event.value.packet).toMatchObject({ seq: 0, placement: { turnIndex: 0, tabIndex: 0 } });
    expect(event.value.packet?.placement?.modelIndex).toBeUndefined();
  }
  await tick();
  expect(peer.clock.sleeping).toBe(0);
});

test("execute - result_only sends the result alone", async () => {
  const { definition, state } = gatedTool();
  state.gate.resolve();
  const call = start([definition]).call({ resultOnly: true });
  await call.result();
  expect(call.kinds).toEqual(["result"]);
});

test("execute - a keepalive comes with each ten seconds of silence, none while packets flow", async () => {
  const { definition, state } = gatedTool();
  const { clock, call: begin } = start([definition]);
  const call = begin({});
  await call.has(1);
  clock.advance(9_999);
  await tick();
  expect(call.kinds).toEqual(["packet"]);
  clock.advance(1);
  await call.has(2);
  await tick();
  clock.advance(10_000);
  await call.has(3);
  state.gate.resolve();
  await call.result();
  expect(call.kinds).toEqual(["packet", "keepalive", "keepalive", "packet", "result"]);
});

test("execute - an unknown tool is TOOL_NOT_FOUND", async () => {
  const error = await start([gatedTool().definition]).call({ toolId: "no_such_tool" }).error();
  expect([error.code, error.status]).toEqual([ErrorCode.TOOL_NOT_FOUND, Code.NotFound]);
});

const STRICT = {
  parametersJsonSchema: JSON.stringify({
    type: "object",
    properties: {
      city: { type: "string" },
      unit: { enum: ["c", "f"] },
      days: { type: "array", items: { type: "string" } },
    },
    required: ["city"],
    additionalProperties: false,
  }),
};

test.each([
  ["{", "not valid JSON"],
  ["[]", "must be a JSON object"],
  ["null", "must be a JSON object"],
  ["", 'lacks the property "city"'],
  ['{"city":5}', '"city" must be string'],
  ['{"city":"x","town":"y"}', 'unknown property "town"'],
  ['{"city":"x","unit":"k"}', '"unit" must be one of ["c","f"]'],
  ['{"city":"x","__proto__":{"polluted":1}}', 'unknown property "__proto__"'],
  [`{"city":${"[".repeat(50_000)}`, "nested more than 100 levels"],
  [JSON.stringify({ city: "x".repeat(256 * 1024) }), "at most 262144 are allowed"],
])("arguments - %.40s is told to the model: %s", async (argumentsJson, problem) => {
  const { definition, state } = gatedTool(STRICT);
  const result = await start([definition]).call({ argumentsJson }).result();
  expect(result.outcome).toBe(ToolOutcome.ERROR);
  expect(result.error?.code).toBe(ErrorCode.INVALID_ARGUMENT);
  expect(result.modelText).toContain(problem);
  expect(result.modelText).toContain("JSON schema");
  expect(state.runs).toBe(0);
  expect(({} as Record<string, unknown>)["polluted"]).toBeUndefined();
});

test("arguments - one bare value of the merge argument stands for a list of one", async () => {
  const seen: unknown[] = [];
  const definition = tool(
    async function* ({ args }) {
      seen.push(args);
      yield delta("x");
      return ok("done");
    },
    { ...STRICT, mergeArgument: "days" },
  );
  await start([definition]).call({ argumentsJson: '{"city":"x","days":"mon"}' }).result();
  expect(seen).toEqual([{ city: "x", days: ["mon"] }]);
});

test("arguments - 256 KiB of hostile text is checked within 50 ms of CPU time", async () => {
  const { definition } = gatedTool(STRICT);
  const peer = start([definition]);
  for (const text of ["[", '{"a":', "\\", '"', " ", "{]"].map((piece) =>
    piece.repeat(Math.floor(262_000 / piece.length)),
  )) {
    const times: number[] = [];
    for (let round = 0; round < 3; round++) {
      const before = process.cpuUsage();
      const result = await peer.call({ argumentsJson: `{"city":${text}` }).result();
      times.push(process.cpuUsage(before).user / 1_000);
      expect(result.outcome).toBe(ToolOutcome.ERROR);
    }
    expect(Math.min(...times)).toBeLessThan(50);
  }
});

test("approval - a call that needs it and has none is denied", async () => {
  const { definition, state } = gatedTool({ needsApproval: true });
  const peer = start([definition]);
  expect((await peer.call({}).result()).outcome).toBe(ToolOutcome.DENIED);
  state.gate.resolve();
  expect((await peer.call({ approvedBy: "u1" }).result()).outcome).toBe(ToolOutcome.OK);
  expect(state.runs).toBe(1);
});

test("ledger - two calls of one key at once run the tool once and both get its result", async () => {
  const { definition, state } = gatedTool();
  const peer = start([definition]);
  const first = peer.call({ idempotencyKey: "k" });
  await state.begun.promise;
  expect((await peer.get("k")).state).toBe(ToolCallState.DISPATCHING);
  const second = peer.call({ idempotencyKey: "k" });
  await tick();
  state.gate.resolve();
  expect((await first.result()).modelText).toBe("run 1");
  expect((await second.result()).modelText).toBe("run 1");
  expect(second.kinds).toEqual(["result"]);
  expect(state.runs).toBe(1);
});

test("ledger - a settled key replays its result; another call under the key is a conflict", async () => {
  const { definition, state } = gatedTool();
  state.gate.resolve();
  const peer = start([definition]);
  expect((await peer.get("k")).state).toBe(ToolCallState.NOT_SEEN);
  await peer.call({ idempotencyKey: "k", argumentsJson: '{"a":1}' }).result();
  const again = peer.call({ idempotencyKey: "k", argumentsJson: '{"a":1}' });
  expect((await again.result()).modelText).toBe("run 1");
  expect(await peer.get("k")).toMatchObject({ state: ToolCallState.SETTLED, result: { modelText: "run 1" } });
  const other = await peer.call({ idempotencyKey: "k", argumentsJson: '{"a":2}' }).error();
  expect(other.code).toBe(ErrorCode.REQUEST_CONFLICT);
  expect(state.runs).toBe(1);
});

test("ledger - keys belong to their tenant and user", async () => {
  const { definition, state } = gatedTool();
  state.gate.resolve();
  const peer = start([definition]);
  await peer.call({ idempotencyKey: "k" }).result();
  for (const other of [
    { ...CALLER, tenantId: "t2" },
    { ...CALLER, userId: "u2" },
  ]) {
    expect((await peer.get("k", other)).state).toBe(ToolCallState.NOT_SEEN);
    expect((await peer.cancel("k", other)).state).toBe(ToolCallState.NOT_SEEN);
    await peer.call({ idempotencyKey: "k", caller: other }).result();
  }
  expect(state.runs).toBe(3);
});

test("ledger - forgets by age and by number, never a call that runs", async () => {
  const gated = gatedTool({ toolId: "slow", name: "slow" });
  const quick = gatedTool();
  quick.state.gate.resolve();
  const peer = start([gated.definition, quick.definition], {
    ledgerEntries: 2,
    ledgerTtlMs: 1_000,
    keepaliveMs: 1e9,
  });
  const slow = peer.call({ toolId: "slow", idempotencyKey: "slow" });
  await gated.state.begun.promise;
  for (const key of ["a", "b", "c"]) await peer.call({ idempotencyKey: key }).result();
  expect((await peer.get("a")).state).toBe(ToolCallState.NOT_SEEN);
  expect((await peer.get("c")).state).toBe(ToolCallState.SETTLED);
  expect((await peer.get("slow")).state).toBe(ToolCallState.DISPATCHING);
  peer.clock.advance(1_001);
  expect((await peer.get("c")).state).toBe(ToolCallState.NOT_SEEN);
  gated.state.gate.resolve();
  await slow.result();
});

test("epoch - a call of an older owner is refused, of the turn and of the key", async () => {
  const { definition, state } = gatedTool();
  state.gate.resolve();
  const peer = start([definition]);
  await peer.call({ idempotencyKey: "k", caller: { ...CALLER, epoch: 3 } }).result();
  const stale = await peer.call({ idempotencyKey: "other", caller: { ...CALLER, epoch: 2 } }).error();
  expect(stale.status).toBe(Code.PermissionDenied);
  const sameKey = await peer
    .call({ idempotencyKey: "k", caller: { ...CALLER, turnId: "", epoch: 2 } })
    .error();
  expect(sameKey.status).toBe(Code.PermissionDenied);
  await expect(peer.cancel("k", { ...CALLER, epoch: 2 })).rejects.toMatchObject({
    code: ErrorCode.PERMISSION_DENIED,
  });
  expect((await peer.call({ caller: { ...CALLER, turnId: "turn2", epoch: 1 } }).result()).outcome).toBe(
    ToolOutcome.OK,
  );
  expect(state.runs).toBe(2);
});

test("cancel - the RPC's end reaches the tool at once; an idempotent call may run again under its key", async () => {
  const { definition, state } = gatedTool({ idempotent: true });
  const peer = start([definition]);
  const abort = new AbortController();
  const call = peer.call({ idempotencyKey: "k" }, abort.signal);
  await state.begun.promise;
  abort.abort(new Error("client left"));
  expect(state.aborted).toBe(1);
  expect((await call.error()).code).toBe(ErrorCode.CANCELLED);
  await tick();
  expect((await peer.get("k")).state).toBe(ToolCallState.IN_DOUBT);
  state.gate.resolve();
  expect((await peer.call({ idempotencyKey: "k" }).result()).modelText).toBe("run 2");
  expect(peer.clock.sleeping).toBe(0);
});

test("cancel - a reader that breaks off cancels the tool too", async () => {
  const { definition, state } = gatedTool();
  const stream = gatedStream(definition);
  await stream.next();
  await state.begun.promise;
  await stream.return(undefined);
  expect(state.aborted).toBe(1);
});

function gatedStream(definition: ToolDefinition): AsyncGenerator<unknown> {
  const binding = createToolService({
    registry: createToolRegistry([definition]),
    clock: new ManualClock(),
    logger: silentLogger,
  });
  const execute = binding.methods.get("executeTool") as unknown as ServerStreamImpl<
    ExecuteToolRequest,
    ExecuteToolResponse
  >;
  const principal = { tenantId: "t", userId: "u", admin: false };
  const context = { principal, signal: new AbortController().signal, protocol: "test" };
  return execute(
    create(ExecuteToolRequestSchema, { toolId: "probe", idempotencyKey: "k" }),
    context,
  ) as AsyncGenerator<unknown>;
}

test("cancel - a call not declared idempotent is not run again: its outcome is unknown", async () => {
  const { definition, state } = gatedTool();
  const peer = start([definition]);
  const abort = new AbortController();
  const call = peer.call({ idempotencyKey: "k" }, abort.signal);
  await state.begun.promise;
  abort.abort();
  await call.error();
  const again = await peer.call({ idempotencyKey: "k", caller: { ...CALLER, epoch: 2 } }).result();
  expect(again.outcome).toBe(ToolOutcome.UNKNOWN_OUTCOME);
  expect(again.modelText).toContain("not known");
  expect((await peer.get("k")).state).toBe(ToolCallState.IN_DOUBT);
  expect(state.runs).toBe(1);
});

test("cancel - the tool goes on while another caller waits for it", async () => {
  const { definition, state } = gatedTool();
  const peer = start([definition]);
  const abort = new AbortController();
  const first = peer.call({ idempotencyKey: "k" }, abort.signal);
  await state.begun.promise;
  const second = peer.call({ idempotencyKey: "k", caller: { ...CALLER, epoch: 2 } });
  await tick();
  abort.abort();
  await first.error();
  expect(state.aborted).toBe(0);
  state.gate.resolve();
  expect((await second.result()).modelText).toBe("run 1");
});

test("cancel - CancelToolCall ends the call with CANCELLED for everybody who waits", async () => {
  const { definition, state } = gatedTool({ idempotent: true });
  const peer = start([definition]);
  const call = peer.call({ idempotencyKey: "k" });
  await state.begun.promise;
  expect((await peer.cancel("k")).state).toBe(ToolCallState.SETTLED);
  expect((await call.result()).outcome).toBe(ToolOutcome.CANCELLED);
  expect((await peer.call({ idempotencyKey: "k" }).result()).outcome).toBe(ToolOutcome.CANCELLED);
  expect(state.runs).toBe(1);
  expect((await peer.cancel("k")).state).toBe(ToolCallState.SETTLED);
  expect((await peer.cancel("unknown")).state).toBe(ToolCallState.NOT_SEEN);
  await expect(peer.cancel("")).rejects.toMatchObject({ code: ErrorCode.INVALID_ARGUMENT });
});

test("cancel - a tool that ignores it is abandoned after a second and its packets are discarded", async () => {
  const { definition, state } = gatedTool({ idempotent: true, maxConcurrency: 1 }, true);
  const peer = start([definition]);
  const call = peer.call({ idempotencyKey: "k" });
  await call.has(1);
  const grace = peer.clock.sleepBegins(1_000);
  const cancelling = peer.cancel("k");
  await grace;
  expect((await peer.call({ idempotencyKey: "k2" }).error()).code).toBe(ErrorCode.OVERLOADED); // it still has its place
  peer.clock.advance(1_000);
  expect((await cancelling).state).toBe(ToolCallState.SETTLED);
  expect((await call.result()).outcome).toBe(ToolOutcome.CANCELLED);
  state.gate.resolve();
  await tick();
  expect(call.kinds).toEqual(["packet", "result"]);
  expect((await peer.call({ idempotencyKey: "k2" }).result()).outcome).toBe(ToolOutcome.OK);
});

test("cancel - a tool that ends in time keeps its result, but not the packets it sent after the cancellation", async () => {
  const begun = deferred();
  const definition = tool(async function* (_input, { signal }) {
    yield delta("begun");
    begun.resolve();
    await new Promise((resolve) => signal.addEventListener("abort", resolve));
    yield delta("late");
    return ok("it was already done");
  });
  const peer = start([definition]);
  const call = peer.call({ idempotencyKey: "k" });
  await begun.promise;
  expect((await peer.cancel("k")).state).toBe(ToolCallState.SETTLED);
  expect((await call.result()).modelText).toBe("it was already done");
  expect(call.kinds).toEqual(["packet", "result"]);
});

test("deadline - the caller's ends the call with TIMEOUT and tells the tool", async () => {
  const { definition, state } = gatedTool();
  const peer = start([definition]);
  const call = peer.call({
    deadline: timestampFromMs(peer.clock.now().getTime() + 3_000),
    idempotencyKey: "k",
  });
  await call.has(1);
  peer.clock.advance(2_999);
  await tick();
  expect(state.aborted).toBe(0);
  peer.clock.advance(1);
  const result = await call.result();
  expect(result).toMatchObject({
    outcome: ToolOutcome.TIMEOUT,
    error: { code: ErrorCode.TOOL_TIMEOUT, retryable: true },
  });
  expect(result.modelText).toContain("longer than 3 s");
  expect(state.aborted).toBe(1);
  expect((await peer.get("k")).state).toBe(ToolCallState.IN_DOUBT); // it was not idempotent: who knows
});

test("deadline - the shortest of tool, caller and RPC counts; one that has passed runs nothing", async () => {
  const { definition, state } = gatedTool({
    timeout: { $typeName: "google.protobuf.Duration", seconds: 2n, nanos: 0 },
  });
  const peer = start([definition]);
  const own = peer.call({});
  const rpc = peer.call({}, undefined, 1_100);
  await Promise.all([own.has(1), rpc.has(1)]);
  peer.clock.advance(1_000);
  expect((await rpc.result()).outcome).toBe(ToolOutcome.TIMEOUT);
  expect(own.kinds).toEqual(["packet"]);
  peer.clock.advance(1_000);
  expect((await own.result()).outcome).toBe(ToolOutcome.TIMEOUT);
  const late = peer.call({ deadline: timestampFromMs(peer.clock.now().getTime() - 1) });
  expect((await late.result()).outcome).toBe(ToolOutcome.TIMEOUT);
  expect(state.runs).toBe(2);
});

test("failure - what a tool throws is not shown, a TurnError's message is", async () => {
  const secret = "connect ECONNREFUSED 10.1.2.3:5432 key=sk-canary";
  const throwing = (error: unknown): ToolDefinition =>
    tool(async function* () {
      yield delta("x");
      throw error;
    });
  const hidden = await start([throwing(new Error(secret))])
    .call({})
    .result();
  expect(hidden).toMatchObject({ outcome: ToolOutcome.ERROR, modelText: "the tool failed" });
  const seen = JSON.stringify(hidden, (_, value: unknown) =>
    typeof value === "bigint" ? String(value) : value,
  );
  expect(seen).not.toMatch(/ECONN|canary|at .*\.ts/);
  const told = await start([
    throwing(new TurnError(ErrorCode.TOOL_FAILED, { message: "no such city", cause: secret })),
  ])
    .call({})
    .result();
  expect(told.modelText).toBe("no such city");
});

test("limits - too many calls in a turn, of a tool or of all are refused with a time to come back", async () => {
  const { definition, state } = gatedTool({ maxConcurrency: 1 });
  const other = gatedTool({ toolId: "other", name: "other" });
  const peer = start([definition, other.definition], { maxConcurrency: 3, maxConcurrencyPerTool: 2 });
  const running = [peer.call({})];
  await state.begun.promise;
  const perTurn = await peer.call({}).error();
  expect([perTurn.status, perTurn.retryAfterMs > 0]).toEqual([Code.ResourceExhausted, true]);
  running.push(peer.call({ caller: { ...CALLER, turnId: "turn2" } }));
  await running[1]!.has(1);
  const perTool = await peer.call({ caller: { ...CALLER, turnId: "turn3" } }).error();
  expect([perTool.code, perTool.details["tool_id"]]).toEqual([ErrorCode.OVERLOADED, "probe"]);
  running.push(peer.call({ toolId: "other" }));
  await other.state.begun.promise;
  expect((await peer.call({ toolId: "other" }).error()).code).toBe(ErrorCode.OVERLOADED);
  state.gate.resolve();
  other.state.gate.resolve();
  for (const call of running) await call.result();
  expect((await peer.call({}).result()).outcome).toBe(ToolOutcome.OK);
});

test("ledger - of an incognito call only its end is kept", async () => {
  const { definition, state } = gatedTool();
  state.gate.resolve();
  const peer = start([definition]);
  const caller = { ...CALLER, incognito: true };
  expect((await peer.call({ caller, idempotencyKey: "k" }).result()).modelText).toBe("run 1");
  const again = await peer.call({ caller, idempotencyKey: "k" }).result();
  expect(again).toMatchObject({ outcome: ToolOutcome.OK, documents: [] });
  expect(again.modelText).not.toContain("run 1");
  expect((await peer.get("k")).result?.modelText).not.toContain("run 1");
  expect(state.runs).toBe(1);
});

test("limits - text, JSON and documents are cut and marked, no message beyond its size", async () => {
  const documents = Array.from({ length: 150 }, (_, i) =>
    create(DocumentSchema, {
      documentId: `d${i}`,
      title: "t".repeat(5_000),
      snippet: "\u00fc".repeat(50_000),
      citationNumber: i + 1,
    }),
  );
  const definition = tool(
    async function* () {
      yield { case: "openUrlDocuments", value: { documents } };
      yield { case: "customToolDelta", value: { toolName: "probe", data: "\ud83d\ude00".repeat(100_000) } };
      yield { case: "bashToolDelta", value: { stdout: "o".repeat(1e6), stderr: "e".repeat(1e6) } };
      yield {
        case: "openUrlUrls",
        value: { urls: Array.from({ length: 10_000 }, () => "http://example.com/long") },
      };
      return create(ToolResultSchema, {
        outcome: ToolOutcome.OK,
        modelText: "\ud83d\ude00".repeat(1000),
        resultJson: JSON.stringify("x".repeat(5_000)),
        documents,
      });
    },
    { maxOutputBytes: 1_001 },
  );
  const call = start([definition]).call({});
  const result = await call.result();
  expect(call.kinds).toEqual(["packet", "packet", "packet", "result"]); // the list of URLs cannot be cut and is left out
  for (const event of call.events.slice(0, 3)) {
    expect(toBinary(ExecuteToolResponseSchema, event).length).toBeLessThanOrEqual(128 * 1024 + 64);
  }
  expect(Buffer.byteLength(result.modelText)).toBe(1_000);
  expect(result.modelText).toBe("\ud83d\ude00".repeat(250));
  expect(result).toMatchObject({ truncated: true, resultJson: "" });
  expect(result.documents.length).toBeGreaterThan(10);
  expect(result.documents[0]?.truncated).toBe(true);
  expect(toBinary(ToolResultSchema, result).length).toBeLessThan(64 * 1024);
  const model = await start([definition]).call({ maxModelTokens: 10 }).result();
  expect(model.modelText.length).toBe(40);
});

test("limits - a tool that never stops sending is held by its packet budget and can be cancelled", async () => {
  const definition = tool(async function* () {
    for (;;) yield delta("more");
  });
  const peer = start([definition], { maxPacketsPerCall: 100 });
  const call = peer.call({ idempotencyKey: "k" });
  await call.has(100);
  const grace = peer.clock.sleepBegins(1_000);
  const cancelling = peer.cancel("k");
  await grace;
  peer.clock.advance(1_000);
  await cancelling;
  expect((await call.result()).outcome).toBe(ToolOutcome.CANCELLED);
  expect(call.kinds.filter((kind) => kind === "packet")).toHaveLength(100);
});

test("limits - a reader that does not read makes the tool wait", async () => {
  let sent = 0;
  const definition = tool(async function* () {
    for (; sent < 1_000; sent++) yield delta("x".repeat(10_000));
    return ok("done");
  });
  const stream = gatedStream(definition);
  onTestFinished(() => void stream.return(undefined));
  await stream.next();
  for (let i = 0; i < 50; i++) await tick();
  expect(sent).toBeLessThan(60);
});

test("list - pages in one order, one revision", async () => {
  const ids = ["d", "a", "c", "b", "e"];
  const definitions = ids.map((id) => gatedTool({ toolId: id, name: id }).definition);
  const peer = start(definitions);
  const seen: string[] = [];
  let page = await peer.list(2, "");
  const { revision } = page;
  for (; ; page = await peer.list(2, page.nextPageToken)) {
    seen.push(...page.tools.map((each) => each.toolId));
    expect(page.revision).toBe(revision);
    if (page.nextPageToken === "") break;
  }
  expect(seen).toEqual(["a", "b", "c", "d", "e"]);
  expect((await start(definitions.slice(1)).list(0, "")).revision).not.toBe(revision);
});

test("registry - refuses double names, broken schemas and client-side tools", () => {
  const { definition } = gatedTool();
  expect(() => createToolRegistry([definition, definition])).toThrow("two tools");
  expect(() =>
    createToolRegistry([gatedTool({ parametersJsonSchema: '{"type":"nonsense"}' }).definition]),
  ).toThrow();
  expect(() => createToolRegistry([gatedTool({ clientSide: true }).definition])).toThrow("client");
});

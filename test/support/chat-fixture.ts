/**
 * The orchestrator on a real Postgres and the memory log, with models and tools scripted in the process: what its suites
 * stand on. Also the judge of a whole turn: grammar, rows, archive and log agree.
 */
import { create, fromBinary, type MessageInitShape } from "@bufbuild/protobuf";
import { expect } from "vitest";
import {
  SendMessageRequestSchema,
  type SendMessageRequest,
} from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import type { TurnState } from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import {
  ModelSchema,
  StreamCompletionResponseSchema,
  type CompletionDelta,
  type Model,
  type StreamCompletionRequest,
  type StreamCompletionResponse,
} from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { PacketBatchSchema } from "../../gen/turnwire/log/v1/log_pb.js";
import { FinishReason } from "../../gen/turnwire/packet/v1/common_pb.js";
import type { Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import {
  ExecuteToolResponseSchema,
  ToolOutcome,
  ToolResultSchema,
  ToolSchema,
  type ExecuteToolRequest,
  type ExecuteToolResponse,
  type Tool,
  type ToolResult,
} from "../../gen/turnwire/tool/v1/tool_service_pb.js";
import { acceptTurn, type Accepted } from "../../src/chat/accept-turn.js";
import { ActiveTurns } from "../../src/chat/active-turns.js";
import type { ActiveTurn } from "../../src/chat/active-turn.js";
import { assembleHistory } from "../../src/chat/assemble-history.js";
import { defaultChatLimits, type ChatDeps, type ModelPort, type ToolPort } from "../../src/chat/ports.js";
import { systemClock } from "../../src/lib/clock.js";
import { newId } from "../../src/lib/ids.js";
import { silentLogger } from "../../src/lib/log.js";
import { LoopTick } from "../../src/lib/loop-tick.js";
import { createMemoryReplayLog, type MemoryReplayLogOptions } from "../../src/replay/memory-replay-log.js";
import type { LoggedEntry, ReplayLog } from "../../src/replay/replay-log.js";
import type { Store } from "../../src/store/store.js";
import { call, content, finish } from "../../src/turn/test-support.js";
import { expectGrammar, expectRowsEqualFold } from "./e2e-fixture.js";
import { ALICE, collect } from "./store-fixtures.js";

export const never: AbortSignal = new AbortController().signal;

// ---- models

/** What one model call answers, delta by delta (each a response of its own), or in batches. */
export type ModelScript = (
  request: StreamCompletionRequest,
  signal: AbortSignal,
) => AsyncIterable<CompletionDelta | readonly CompletionDelta[]> | Iterable<CompletionDelta>;

export interface ScriptedModels extends ModelPort {
  readonly requests: StreamCompletionRequest[];
  /** Streams that have begun and not ended. */
  open: number;
  models: Model[];
  /** Of the calls that no other script takes. */
  script: ModelScript;
}

export function scriptedModels(script: ModelScript = () => answer("hello")): ScriptedModels {
  const models: ScriptedModels = {
    requests: [],
    open: 0,
    models: [model("m-one"), model("m-two")],
    script,
    listModels: () => Promise.resolve(models.models),
    async *streamCompletion(request, signal) {
      models.requests.push(request);
      models.open++;
      try {
        for await (const next of models.script(request, signal)) yield response(next);
      } finally {
        models.open--;
      }
    },
  };
  return models;
}

export function model(modelId: string, fields: MessageInitShape<typeof ModelSchema> = {}): Model {
  return create(ModelSchema, { modelId, displayName: modelId, tools: true, ...fields });
}

function response(next: CompletionDelta | readonly CompletionDelta[]): StreamCompletionResponse {
  return create(StreamCompletionResponseSchema, { deltas: Array.isArray(next) ? [...next] : [next] });
}

/** A plain answer, a word a delta. */
export function answer(text: string): CompletionDelta[] {
  return [...text.split(/(?<= )/).map((word) => content(word)), finish(FinishReason.STOP)];
}

/** A step that calls tools: name and arguments of each. */
export function calls(...wanted: readonly (readonly [name: string, json: string])[]): CompletionDelta[] {
  const deltas = wanted.flatMap(([name, json], index) => [
    call(index + 1, { callId: `c${index}`, name }),
    call(index + 1, { argumentsFragment: json, complete: true }),
  ]);
  return [...deltas, finish(FinishReason.TOOL_CALLS)];
}

/** True for the model call that is given tool results. */
export function hasResults(request: StreamCompletionRequest): boolean {
  return request.input!.messages.some((message) =>
    message.parts.some((part) => part.part.case === "toolResult"),
  );
}

/** Resolves never; rejects when the signal aborts. */
export function untilStopped(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    if (signal.aborted) reject(signal.reason as Error);
    signal.addEventListener("abort", () => reject(signal.reason as Error), { once: true });
  });
}

// ---- tools

export type ToolScript = (
  request: ExecuteToolRequest,
  signal: AbortSignal,
) => AsyncIterable<ExecuteToolResponse> | Iterable<ExecuteToolResponse>;

export interface ScriptedTools extends ToolPort {
  readonly requests: ExecuteToolRequest[];
  open: number;
  tools: Tool[];
  scripts: Record<string, ToolScript>;
}

export function scriptedTools(scripts: Record<string, ToolScript> = {}): ScriptedTools {
  const tools: ScriptedTools = {
    requests: [],
    open: 0,
    tools: Object.keys(scripts).map((name) => tool(name)),
    scripts,
    listTools: () => Promise.resolve(tools.tools),
    async *executeTool(request, signal) {
      tools.requests.push(request);
      tools.open++;
      try {
        yield* tools.scripts[request.toolId]!(request, signal);
      } finally {
        tools.open--;
      }
    },
  };
  return tools;
}

export function tool(name: string, fields: MessageInitShape<typeof ToolSchema> = {}): Tool {
  return create(ToolSchema, { toolId: name, name, displayName: name, parametersJsonSchema: "{}", ...fields });
}

export function toolPacket(packet: Packet): ExecuteToolResponse {
  return create(ExecuteToolResponseSchema, { event: { case: "packet", value: { packet } } });
}

export function toolResult(
  modelText: string,
  fields: Partial<Omit<ToolResult, "$typeName" | "$unknown">> = {},
): ExecuteToolResponse {
  const value = create(ToolResultSchema, { outcome: ToolOutcome.OK, modelText, ...fields });
  return create(ExecuteToolResponseSchema, { event: { case: "result", value } });
}

// ---- the orchestrator

export interface ChatOptions {
  readonly store: Store;
  readonly databaseUrl: string;
  readonly models?: ScriptedModels | ModelPort;
  readonly tools?: ScriptedTools | ToolPort;
  readonly log?: ReplayLog;
  readonly onAppend?: MemoryReplayLogOptions["onAppend"];
  readonly deps?: Partial<ChatDeps>;
}

export interface Chat {
  readonly deps: ChatDeps;
  readonly turns: ActiveTurns;
  accept(fields?: SendFields): Promise<Accepted>;
  /** Accepts and starts; resolves when the turn has its claim. */
  start(fields?: SendFields): Promise<ActiveTurn>;
  /** Accepts, starts and waits for the end, then judges the turn. */
  run(fields?: SendFields): Promise<JudgedTurn>;
  judge(turnId: string): Promise<JudgedTurn>;
}

export type SendFields = Partial<Omit<SendMessageRequest, "$typeName" | "$unknown">>;

export interface JudgedTurn {
  readonly turnId: string;
  readonly packets: readonly Packet[];
  readonly state: TurnState;
  readonly entries: readonly LoggedEntry[];
}

/** Another `Chat` on the same stores is another process: it has an incarnation of its own. */
export function chat(options: ChatOptions): Chat {
  const deps: ChatDeps = {
    log: options.log ?? createMemoryReplayLog({ onAppend: options.onAppend }),
    store: options.store,
    models: options.models ?? scriptedModels(),
    tools: options.tools ?? scriptedTools(),
    clock: systemClock,
    tick: new LoopTick(),
    logger: silentLogger,
    limits: defaultChatLimits,
    incarnation: newId(),
    newId,
    ...options.deps,
  };
  const turns = new ActiveTurns(deps);

  const accept = (fields: SendFields = {}): Promise<Accepted> =>
    turns.accepting(() => acceptTurn(deps, ALICE, sendRequest(fields), turns, never));

  const start = async (fields: SendFields = {}): Promise<ActiveTurn> => {
    const accepted = await accept(fields);
    if (accepted.kind !== "accepted") throw new Error(`not accepted: ${accepted.kind}`);
    const { turn, plan, stopRequested } = accepted;
    turns.start(turn, plan, () => assembleHistory(deps, ALICE, plan, turns.life), stopRequested);
    return (await turns.find(turn.turnId))!;
  };

  const judge = (turnId: string): Promise<JudgedTurn> => judgeTurn(deps, options.databaseUrl, turnId);
  const run = async (fields: SendFields = {}): Promise<JudgedTurn> => {
    const turn = await start(fields);
    await turn.ended;
    return judge(turn.row.turnId);
  };
  return { deps, turns, accept, start, run, judge };
}

export function sendRequest(fields: SendFields = {}): SendMessageRequest {
  return create(SendMessageRequestSchema, { text: "what is up?", ...fields });
}

/** A turn that has ended: legal order, rows = fold, archive + terminal = log, byte for byte, dense, closed. */
async function judgeTurn(
  deps: Pick<ChatDeps, "log" | "store">,
  databaseUrl: string,
  turnId: string,
): Promise<JudgedTurn> {
  const row = (await deps.store.loadTurn(turnId))!;
  expect(row.phase).toBe("closed");
  const entries = await collect(deps.log.read({ turnId, partition: row.partition }, 0, { signal: never }));
  const logged = Buffer.concat(entries.map((entry) => entry.batch));
  const packets = fromBinary(PacketBatchSchema, logged).packets;
  expectGrammar(packets);
  for (const entry of entries) expect(entry.batch.length).toBeLessThanOrEqual(256 * 1024);
  const parts = await collect(deps.store.readArchive(turnId, 0));
  let seq = 0;
  for (const part of parts) {
    expect(part.firstSeq).toBe(seq + 1);
    expect(fromBinary(PacketBatchSchema, part.batch).packets.at(-1)!.seq).toBe(part.lastSeq);
    seq = part.lastSeq;
  }
  const archived = Buffer.concat([...parts.map((part) => part.batch), row.terminalBatch!]);
  expect(archived.equals(logged)).toBe(true);
  const state = await expectRowsEqualFold(databaseUrl, turnId, packets);
  return { turnId, packets, state, entries };
}

/** Payload names of packets, for short comparisons. */
export function cases(packets: readonly Packet[]): (string | undefined)[] {
  return packets.map((packet) => packet.payload.case);
}

/** Packets that show something of the answer: none may have a seq beyond a stop's. */
export function isContent(packet: Packet): boolean {
  switch (packet.payload.case) {
    case "agentResponseStart":
    case "agentResponseDelta":
    case "reasoningStart":
    case "reasoningDelta":
    case "toolCallStart":
    case "toolCallArgumentDelta":
    case "cycleStarted":
    case "laneStarted":
    case "customToolDelta":
      return true;
    default:
      return false;
  }
}

/** Lets everything that is ready run. */
export const turnOfTheLoop = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** Waits, without a timer, until something that is under way has happened. */
export async function until(happened: () => boolean): Promise<void> {
  const giveUpAt = performance.now() + 10_000;
  while (!happened()) {
    if (performance.now() > giveUpAt) throw new Error(`did not happen in 10 s: ${happened.toString()}`);
    await turnOfTheLoop();
  }
}

/** The same store; `on` is called around each of its calls, and may throw or wait in the call's place. */
export function tapStore(
  store: Store,
  on: (method: keyof Store, when: "before" | "after", args: readonly unknown[]) => void | Promise<void>,
): Store {
  return new Proxy(store, {
    get(target, name: keyof Store) {
      const method = Reflect.get(target, name, target) as (...args: unknown[]) => unknown;
      if (
        name === "onCommand" ||
        name === "onSessionEvent" ||
        name === "readArchive" ||
        name === "readFile" ||
        typeof method !== "function"
      )
        return typeof method === "function" ? method.bind(target) : method;
      return async (...args: unknown[]) => {
        await on(name, "before", args);
        const result = await method.apply(target, args);
        await on(name, "after", args);
        return result;
      };
    },
  });
}

/** A turn from its claim to its terminal, with models and tools that do everything that models and tools do. */
import { create } from "@bufbuild/protobuf";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  DocumentSchema,
  ErrorCode,
  FinishReason,
  StopReason,
  TurnErrorSchema,
  TurnOutcome,
} from "../../gen/turnwire/packet/v1/common_pb.js";
import type { Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import { ToolCallStatus } from "../../gen/turnwire/packet/v1/tools_pb.js";
import { ToolChoiceMode } from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ToolOutcome } from "../../gen/turnwire/tool/v1/tool_service_pb.js";
import { defaultChatLimits, type ModelPort } from "../../src/chat/ports.js";
import { deferred, type Deferred } from "../../src/lib/signals.js";
import { TurnError } from "../../src/lib/errors.js";
import { packet, type PayloadCase } from "../../src/turn/packets.js";
import { placementOf } from "../../src/turn/placement.js";
import { content, delta, finish, reasoning } from "../../src/turn/test-support.js";
import {
  answer,
  calls,
  cases,
  chat,
  hasResults,
  isContent,
  scriptedModels,
  scriptedTools,
  tapStore,
  tool,
  toolPacket,
  toolResult,
  turnOfTheLoop,
  until,
  untilStopped,
  type Chat,
  type ChatOptions,
  type JudgedTurn,
  type ModelScript,
  type ToolScript,
} from "../support/chat-fixture.js";
import { ManualClock } from "../support/manual-clock.js";
import { runSql, usePostgres } from "../support/postgres.js";
import { ALICE, collect, useStore } from "../support/store-fixtures.js";

const postgres = usePostgres();
const stores = useStore(postgres);

function newChat(options: Partial<ChatOptions> = {}): Chat {
  return chat({ store: stores.store, databaseUrl: postgres.url, ...options });
}

type Wanted = readonly [name: string, json: string];

/** Calls `wanted` in the first cycle, answers in the next. */
function callsThenAnswers(...wanted: Wanted[]): ModelScript {
  return (request) => (hasResults(request) ? answer("so it is") : calls(...wanted));
}

const results = (packets: readonly Packet[]) =>
  packets.flatMap(({ payload }) => (payload.case === "toolCallResult" ? [payload.value] : []));
const line = (text: string): ReturnType<typeof toolPacket> =>
  toolPacket(packet("customToolDelta", { toolName: "t", data: text }, undefined));

const TOOL_PAYLOADS: readonly PayloadCase[] = [
  "pythonToolStart",
  "pythonToolDelta",
  "bashToolStart",
  "bashToolDelta",
  "customToolStart",
  "customToolArgs",
  "customToolDelta",
  "searchToolStart",
  "searchToolQueriesDelta",
  "searchToolDocumentsDelta",
  "openUrlStart",
  "openUrlDocuments",
  "imageGenerationStart",
  "imageGenerationHeartbeat",
  "fileReaderStart",
  "memoryToolDelta",
  "codingAgentStart",
  "codingAgentThinkingDelta",
  "codingAgentFinal",
  "researchAgentStart",
  "intermediateReportStart",
  "intermediateReportDelta",
  "intermediateReportCitedDocs",
  "statusUpdate",
  "sourceInfo",
  "extension",
];

describe("a turn", () => {
  test("an answer: rows, archive and log say the same", async () => {
    const models = scriptedModels(() => [reasoning("hm "), ...answer("all is well")]);
    const { state, packets } = await newChat({ models }).run({ text: "how is it?" });
    expect([state.stop!.outcome, state.lanes[0]!.text]).toEqual([TurnOutcome.COMPLETED, "all is well"]);
    expect(cases(packets).slice(0, 3)).toEqual(["turnStarted", "laneStarted", "cycleStarted"]);
    expect(cases(packets).at(-1)).toBe("overallStop");
    expect(models.open).toBe(0);
  });

  test("a step that ended inside a reasoning tag tells the next one, and only that one", async () => {
    const open = delta("finish", { reason: FinishReason.TOOL_CALLS, reasoningOpen: true });
    const steps = [[...calls(["t", "{}"]).slice(0, -1), open], calls(["t", "{}"]), answer("done")];
    const models = scriptedModels(() => steps.shift()!);
    await newChat({ models, tools: scriptedTools({ t: () => [toolResult("r")] }) }).run();
    expect(models.requests.map(({ input }) => input!.reasoningOpen)).toEqual([false, true, false]);
  });

  test("tools run side by side, their packets in between; results go to the model in the order of the calls", async () => {
    const gates = { slow: deferred(), quick: deferred() };
    const bothRun = deferred();
    let running = 0;
    const script = (name: "slow" | "quick"): ToolScript =>
      async function* () {
        if (++running === 2) bothRun.resolve();
        yield line(`${name} 1`);
        await gates[name].promise;
        yield line(`${name} 2`);
        yield toolResult(`${name} is done`);
      };
    const tools = scriptedTools({ slow: script("slow"), quick: script("quick") });
    const models = scriptedModels(callsThenAnswers(["slow", "{}"], ["quick", '{"a":1}']));
    const fixture = newChat({ models, tools });
    const turn = await fixture.start();
    await bothRun.promise;
    gates.quick.resolve();
    gates.slow.resolve();
    await turn.ended;
    const { packets, state } = await fixture.judge(turn.row.turnId);
    expect(results(packets).map((result) => result.status)).toEqual([ToolCallStatus.OK, ToolCallStatus.OK]);
    const given = models.requests[1]!.input!.messages.flatMap((message) => message.parts).flatMap(
      ({ part }) => (part.case === "toolResult" ? [part.value.text] : []),
    );
    expect(given[0]).toContain("slow is done");
    expect(given[1]).toContain("quick is done");
    expect(state.lanes[0]!.text).toBe("so it is");
    expect(tools.requests.map((request) => request.argumentsJson).sort()).toEqual(['{"a":1}', "{}"]);
    // ranges of citation numbers do not overlap
    expect(Math.abs(tools.requests[0]!.firstCitationNumber - tools.requests[1]!.firstCitationNumber)).toBe(
      100,
    );
  });

  test("more calls than may run at once wait for each other", async () => {
    let most = 0;
    const full = deferred();
    const tools = scriptedTools({
      t: async function* () {
        most = Math.max(most, tools.open);
        if (tools.requests.length === 3) full.resolve();
        await full.promise;
        yield toolResult("ok");
      },
    });
    const wanted = Array.from({ length: 7 }, (): Wanted => ["t", "{}"]);
    const models = scriptedModels(callsThenAnswers(...wanted));
    const limits = { ...defaultChatLimits, maxParallelTools: 3 };
    const { packets } = await newChat({ models, tools, deps: { limits } }).run();
    expect([most, results(packets).length]).toEqual([3, 7]);
  });

  test.each<[string, Wanted, RegExp]>([
    ["an unknown tool", ["nothing_known", "{}"], /no tool called "nothing_known".*The tools are: t\./s],
    ["arguments that are no JSON", ["t", '{"a":'], /not valid JSON/],
    ["arguments that are no object", ["t", "[1]"], /not valid JSON/],
  ])("%s is answered and not run", async (_name, wanted, says) => {
    const tools = scriptedTools({ t: () => [toolResult("ran")] });
    const models = scriptedModels(callsThenAnswers(wanted));
    const { packets, state } = await newChat({ models, tools }).run();
    expect(tools.requests).toEqual([]);
    expect(results(packets)[0]).toMatchObject({ status: ToolCallStatus.ERROR });
    expect(results(packets)[0]!.modelText).toMatch(says);
    expect(state.stop!.outcome).toBe(TurnOutcome.COMPLETED);
  });

  test.each<[string, ToolScript, ToolCallStatus, RegExp]>([
    [
      "says it failed",
      () => [toolResult("no such page", { outcome: ToolOutcome.ERROR })],
      ToolCallStatus.ERROR,
      /no such page/,
    ],
    [
      "is denied",
      () => [toolResult("not you", { outcome: ToolOutcome.DENIED })],
      ToolCallStatus.DENIED,
      /not you/,
    ],
    [
      "breaks",
      failing(new TurnError(ErrorCode.TOOL_FAILED, { message: "it broke" })),
      ToolCallStatus.ERROR,
      /it broke/,
    ],
    [
      "breaks in an unknown way",
      failing(new RangeError("secret")),
      ToolCallStatus.ERROR,
      /something went wrong/,
    ],
    ["is lost", failing(new TurnError(ErrorCode.UNAVAILABLE)), ToolCallStatus.UNKNOWN_OUTCOME, /not known/],
    [
      "passes its deadline",
      failing(new TurnError(ErrorCode.DEADLINE_EXCEEDED)),
      ToolCallStatus.TIMEOUT,
      /too long/,
    ],
    ["ends without a result", () => [line("and then?")], ToolCallStatus.ERROR, /without a result/],
  ])("a tool that %s: the model hears of it and the turn goes on", async (_name, script, status, says) => {
    const tools = scriptedTools({ t: script });
    const models = scriptedModels(callsThenAnswers(["t", "{}"]));
    const { packets, state } = await newChat({ models, tools }).run();
    expect(results(packets)).toHaveLength(1);
    expect(results(packets)[0]!.status).toBe(status);
    expect(results(packets)[0]!.modelText).toMatch(says);
    expect(results(packets)[0]!.modelText).not.toContain("secret");
    expect(state.stop!.outcome).toBe(TurnOutcome.COMPLETED);
    expect(tools.open).toBe(0);
  });

  test("an idempotent tool that is lost has failed, no more", async () => {
    const tools = scriptedTools({ t: failing(new TurnError(ErrorCode.UNAVAILABLE)) });
    tools.tools = [tool("t", { idempotent: true })];
    const { packets } = await newChat({ models: scriptedModels(callsThenAnswers(["t", "{}"])), tools }).run();
    expect(results(packets)[0]!.status).toBe(ToolCallStatus.ERROR);
  });

  test("a silent tool is given up after 45 s, one that says it lives after its time and a little", async () => {
    const clock = new ManualClock();
    const silent: ToolScript = async function* (_request, signal) {
      await untilStopped(signal);
    };
    const tools = scriptedTools({ silent, brief: silent });
    tools.tools = [
      tool("silent"),
      tool("brief", { timeout: { $typeName: "google.protobuf.Duration", seconds: 1n, nanos: 500_000_000 } }),
    ];
    const models = scriptedModels(callsThenAnswers(["silent", "{}"], ["brief", "{}"]));
    const fixture = newChat({ models, tools, deps: { clock } });
    const sleeps = Promise.all([clock.sleepBegins(45_000), clock.sleepBegins(3_500)]);
    const turn = await fixture.start();
    await sleeps;
    const deadlines = tools.requests.map((request) =>
      Number(request.deadline!.seconds - tools.requests[0]!.deadline!.seconds),
    );
    clock.advance(3_500);
    await turnOfTheLoop();
    clock.advance(41_500);
    await turn.ended;
    const { packets } = await fixture.judge(turn.row.turnId);
    expect(results(packets).map((result) => result.status)).toEqual([
      ToolCallStatus.TIMEOUT,
      ToolCallStatus.TIMEOUT,
    ]);
    expect([tools.open, clock.sleeping, deadlines.length]).toEqual([0, 0, 2]);
  });

  test("a result over 64 KiB: its head inline, all of it in a file, the model reads it whole", async () => {
    const text = "päckchen ".repeat(12_000);
    const tools = scriptedTools({ t: () => [toolResult(text)] });
    const models = scriptedModels(callsThenAnswers(["t", "{}"]));
    const { packets } = await newChat({ models, tools }).run();
    const [result] = results(packets);
    expect(result!.truncated).toBe(true);
    expect(Buffer.byteLength(result!.modelText)).toBeLessThanOrEqual(64 * 1024);
    expect(text.startsWith(result!.modelText)).toBe(true);
    const parts = await collect(stores.store.readFile(ALICE, result!.resultFileId, 0n));
    expect(Buffer.concat(parts).toString("utf8")).toBe(text);
    const given = models.requests[1]!.input!.messages.at(-1)!.parts[0]!.part;
    expect(given.case === "toolResult" && given.value.text).toBe(text);
  });

  test("more documents than a packet holds are left out, and the cut is marked", async () => {
    const documents = Array.from({ length: 40 }, (_, index) =>
      create(DocumentSchema, {
        documentId: `d${index}`,
        citationNumber: index + 1,
        snippet: "x".repeat(8_000),
      }),
    );
    const tools = scriptedTools({ t: () => [toolResult("y".repeat(64 * 1024), { documents })] });
    const { packets, state } = await newChat({
      models: scriptedModels(callsThenAnswers(["t", "{}"])),
      tools,
    }).run();
    const [result] = results(packets);
    expect(result!.documents.length).toBeGreaterThan(3);
    expect(result!.documents.length).toBeLessThan(40);
    expect([result!.truncated, state.stop!.outcome]).toEqual([true, TurnOutcome.COMPLETED]);
  });

  test("a tool that sends what no packet may hold has failed; the turn goes on", async () => {
    const tools = scriptedTools({ t: () => [line("x".repeat(300 * 1024)), toolResult("never read")] });
    const { packets, state } = await newChat({
      models: scriptedModels(callsThenAnswers(["t", "{}"])),
      tools,
    }).run();
    expect(results(packets)[0]!.modelText).toMatch(/128 KiB/);
    expect(state.stop!.outcome).toBe(TurnOutcome.COMPLETED);
  });

  test("a tool may not start, answer or end anything that is the turn's", async () => {
    const forbidden = [
      "overallStop",
      "laneEnd",
      "toolCallResult",
      "sectionEnd",
      "turnStarted",
      "agentResponseDelta",
    ] as const;
    const tools = scriptedTools({
      t: () => [
        ...forbidden.map((name) => toolPacket(packet(name, {} as never, undefined))),
        line("mine"),
        toolResult("ok"),
      ],
    });
    const { packets } = await newChat({ models: scriptedModels(callsThenAnswers(["t", "{}"])), tools }).run();
    expect(cases(packets).filter((name) => name === "customToolDelta")).toHaveLength(1);
    expect(cases(packets).filter((name) => name === "laneEnd")).toHaveLength(1);
  });

  test("a tool that sends whatever it may in any order, at any place: the turn stays legal", async () => {
    const text = fc.constantFrom("", "a", "x".repeat(30_000), "x".repeat(70_000));
    const inner: fc.Arbitrary<Packet> = fc
      .record({
        name: fc.constantFrom(...TOOL_PAYLOADS),
        text,
        sub: fc.option(fc.nat(2)),
        tab: fc.option(fc.nat(2)),
      })
      .map(({ name, text, sub, tab }) => {
        const value = { content: text, stdout: text, stderr: text, data: text };
        const placement = placementOf(9, 9, sub ?? undefined, 9, tab ?? undefined);
        return packet(name, value as never, placement);
      });
    await fc.assert(
      fc.asyncProperty(fc.array(inner, { maxLength: 25 }), async (packets) => {
        const tools = scriptedTools({ t: () => [...packets.map(toolPacket), toolResult("ok")] });
        const models = scriptedModels(callsThenAnswers(["t", "{}"], ["t", "{}"]));
        const { state } = await newChat({ models, tools }).run();
        expect(state.stop!.outcome).toBe(TurnOutcome.COMPLETED);
      }),
      { numRuns: 25 },
    );
  });

  test("a message of a failure that is as long as a book is cut", async () => {
    const error = create(TurnErrorSchema, { code: ErrorCode.TOOL_FAILED, message: "é".repeat(200_000) });
    const tools = scriptedTools({ t: () => [toolResult("failed", { outcome: ToolOutcome.ERROR, error })] });
    const { packets } = await newChat({ models: scriptedModels(callsThenAnswers(["t", "{}"])), tools }).run();
    const end = packets.find(({ payload }) => payload.case === "sectionEnd")!.payload;
    expect(Buffer.byteLength(end.case === "sectionEnd" ? end.value.message : "")).toBeLessThanOrEqual(1_024);
  });

  test("a forced tool is forced in the first cycle only", async () => {
    const tools = scriptedTools({ t: () => [toolResult("ok")], other: () => [toolResult("ok")] });
    const models = scriptedModels(callsThenAnswers(["t", "{}"]));
    await newChat({ models, tools }).run({ options: options({ forcedToolId: "t" }) });
    const choices = models.requests.map((request) => [
      request.input!.toolChoice!.mode,
      request.input!.toolChoice!.toolName,
    ]);
    expect(choices).toEqual([
      [ToolChoiceMode.ONE, "t"],
      [ToolChoiceMode.AUTO, ""],
    ]);
  });

  test("a model that never stops calling ends at the cycle limit, its last calls refused", async () => {
    const tools = scriptedTools({ t: () => [toolResult("again")] });
    const models = scriptedModels(() => calls(["t", "{}"]));
    const { state, packets } = await newChat({ models, tools }).run({ options: options({ maxCycles: 3 }) });
    expect([models.requests.length, tools.requests.length]).toEqual([3, 2]);
    expect(models.requests.at(-1)!.input!.tools).toEqual([]);
    expect(state.lanes[0]!.end!.error!.code).toBe(ErrorCode.CYCLE_LIMIT);
    expect(results(packets)).toHaveLength(3);
  });

  test("a tool that ends the turn leaves one more answer, without tools", async () => {
    const tools = scriptedTools({ t: () => [toolResult("enough")] });
    tools.tools = [tool("t", { stopsTurn: true })];
    const models = scriptedModels(callsThenAnswers(["t", "{}"]));
    await newChat({ models, tools }).run();
    expect(models.requests.map((request) => request.input!.tools.length)).toEqual([1, 0]);
  });

  test("a stream that ends without saying so was cut off: partial text kept, typed end", async () => {
    const { state } = await newChat({ models: scriptedModels(() => [content("half an")]) }).run();
    expect(state.lanes[0]!.text).toBe("half an");
    expect(state.lanes[0]!.end!.error!.code).toBe(ErrorCode.UPSTREAM_TRUNCATED);
    expect(state.stop!.outcome).toBe(TurnOutcome.ERROR);
  });

  test("a model that says nothing at all, an error delta, a failure in the middle", async () => {
    const code = async (script: ModelScript): Promise<ErrorCode> =>
      (await newChat({ models: scriptedModels(script) }).run()).state.stop!.error!.code;
    expect(await code(() => [finish(FinishReason.STOP)])).toBe(ErrorCode.EMPTY_RESPONSE);
    const refused = create(TurnErrorSchema, { code: ErrorCode.UPSTREAM_AUTH, message: "no" });
    expect(await code(() => [content("a"), delta("error", refused)])).toBe(ErrorCode.UPSTREAM_AUTH);
    expect(await code(failingModel(new TurnError(ErrorCode.UPSTREAM_STALLED)))).toBe(
      ErrorCode.UPSTREAM_STALLED,
    );
    expect(await code(failingModel(new RangeError("internal detail")))).toBe(ErrorCode.INTERNAL);
  });

  test("a model port that throws before it streams", async () => {
    const models: ModelPort = {
      ...scriptedModels(),
      streamCompletion: () => {
        throw new TurnError(ErrorCode.UNAVAILABLE);
      },
    };
    const { state } = await newChat({ models }).run();
    expect(state.stop!.error!.code).toBe(ErrorCode.UNAVAILABLE);
  });

  test("history that cannot be had ends the turn with a typed error, nobody asked", async () => {
    const models = scriptedModels();
    const fixture = newChat({ models });
    const accepted = await fixture.accept();
    if (accepted.kind !== "accepted") throw new Error("not accepted");
    fixture.turns.start(accepted.turn, accepted.plan, () => Promise.reject(new TypeError("bug")), false);
    await (await fixture.turns.find(accepted.turn.turnId))!.ended;
    const { state } = await fixture.judge(accepted.turn.turnId);
    expect([state.stop!.outcome, state.stop!.error!.code]).toEqual([TurnOutcome.ERROR, ErrorCode.INTERNAL]);
    expect(models.requests).toEqual([]);
  });
});

describe("stores that are away now and then", () => {
  const everything = () => ({
    models: scriptedModels(callsThenAnswers(["t", "{}"], ["long", "{}"])),
    tools: scriptedTools({
      t: () => [line("a"), toolResult("ok")],
      long: () => [toolResult("x".repeat(70_000))],
    }),
  });

  const limits = { ...defaultChatLimits, turnDeadlineMs: 10 ** 9 };

  /** Moves time on until the turn has ended. */
  async function untilEnded(fixture: Chat, clock: ManualClock): Promise<JudgedTurn> {
    let turn: Awaited<ReturnType<Chat["start"]>> | undefined;
    let over = false;
    const running = fixture.start({ text: "x".repeat(70_000) }).then(async (started) => {
      turn = started;
      await started.ended;
      over = true;
    });
    while (!over) {
      await turnOfTheLoop();
      clock.advance(10);
    }
    await running;
    return fixture.judge(turn!.row.turnId);
  }

  test("Postgres: every call fails twice, before or after it did its work", async () => {
    for (const when of ["before", "after"] as const) {
      const clock = new ManualClock();
      const failed = new Map<string, number>();
      const store = tapStore(stores.store, (method, moment, args) => {
        if (moment !== when || method === "acceptTurn" || method === "loadTurn") return;
        const name = `${method} ${JSON.stringify(args, (_key, value: unknown) => (typeof value === "bigint" ? 0 : value)).slice(0, 200)}`;
        failed.set(name, (failed.get(name) ?? 0) + 1);
        if (failed.get(name)! <= 2) throw new TurnError(ErrorCode.UNAVAILABLE);
      });
      const { state, turnId } = await untilEnded(
        newChat({ ...everything(), store, deps: { clock, limits } }),
        clock,
      );
      expect([state.stop!.outcome, state.lanes[0]!.text]).toEqual([TurnOutcome.COMPLETED, "so it is"]);
      expect(failed.size).toBeGreaterThan(8);
      const files = await runSql(postgres.url, "select 1 from turnwire.files where turn_id = $1", [turnId]);
      expect(files).toHaveLength(2); // the long message and the long result, once each
    }
  });

  test("the log: any append may stay without an answer, stored or not", async () => {
    const fates = fc.array(fc.constantFrom("normal", "stored_unknown", "lost_unknown"), {
      minLength: 40,
      maxLength: 40,
    });
    await fc.assert(
      fc.asyncProperty(fates, async (plan) => {
        const clock = new ManualClock();
        let appends = 0;
        const onAppend = () => plan[appends++] ?? ("normal" as const);
        const { state } = await untilEnded(
          newChat({ ...everything(), onAppend, deps: { clock, limits } }),
          clock,
        );
        expect([state.stop!.outcome, state.lanes[0]!.text]).toEqual([TurnOutcome.COMPLETED, "so it is"]);
      }),
      { numRuns: 15 },
    );
  });
});

describe("lanes", () => {
  test("two answer side by side; one that fails ends alone, the turn is completed", async () => {
    const models = scriptedModels((request) =>
      request.input!.modelId === "m-one" ? answer("one speaks") : [content("two st")],
    );
    const { state } = await newChat({ models }).run({ models: lanes("m-one", "m-two") });
    expect(state.lanes.map((lane) => [lane.text, lane.end!.outcome])).toEqual([
      ["one speaks", TurnOutcome.COMPLETED],
      ["two st", TurnOutcome.ERROR],
    ]);
    expect(state.stop!.outcome).toBe(TurnOutcome.COMPLETED);
  });

  test("a lane whose bookkeeping fails ends alone, and its tools are called off", async () => {
    const store: typeof stores.store = Object.assign(Object.create(stores.store) as typeof stores.store, {
      saveCheckpoint: (
        turnId: string,
        epoch: number,
        checkpoint: { kind: string; modelIndex: number; callId?: string },
      ) =>
        checkpoint.kind === "result" && checkpoint.modelIndex === 1
          ? Promise.reject(new TurnError(ErrorCode.INTERNAL, { cause: new Error("disk") }))
          : stores.store.saveCheckpoint(turnId, epoch, checkpoint as never),
    });
    const begun = deferred();
    const tools = scriptedTools({
      quick: async function* () {
        await begun.promise;
        yield toolResult("ok");
      },
      endless: async function* (_request, signal) {
        begun.resolve();
        await untilStopped(signal);
      },
    });
    const models = scriptedModels((request) =>
      request.input!.modelId === "m-one"
        ? answer("fine")
        : calls(["quick", "{}"], ["endless", "{}"], ["quick", "{}"]),
    );
    const limits = { ...defaultChatLimits, maxParallelTools: 2 };
    const { state } = await newChat({ store, models, tools, deps: { limits } }).run({
      models: lanes("m-one", "m-two"),
    });
    expect(state.lanes.map((lane) => lane.end!.outcome)).toEqual([TurnOutcome.COMPLETED, TurnOutcome.ERROR]);
    await turnOfTheLoop();
    expect([tools.open, tools.requests.length]).toEqual([0, 2]);
  });

  test("one is stopped: it keeps its text, the other goes on", async () => {
    const gate = deferred();
    const models = scriptedModels(async function* (request, signal) {
      if (request.input!.modelId === "m-one") {
        await gate.promise;
        return yield answer("one goes on");
      }
      yield content("two was ");
      await untilStopped(signal);
    });
    const fixture = newChat({ models });
    const turn = await fixture.start({ models: lanes("m-one", "m-two") });
    await until(() => turn.state.lanes[1]?.text === "two was ");
    const stopSeq = await turn.stop(StopReason.USER_CANCELLED, 1);
    gate.resolve();
    await turn.ended;
    const { state, packets } = await fixture.judge(turn.row.turnId);
    expect(state.lanes.map((lane) => [lane.text, lane.end!.outcome])).toEqual([
      ["one goes on", TurnOutcome.COMPLETED],
      ["two was ", TurnOutcome.STOPPED],
    ]);
    expect(contentAfter(packets, stopSeq).filter((each) => each.placement?.modelIndex === 1)).toEqual([]);
    expect(models.open).toBe(0);
  });

  test.each([
    ["the only one", ["m-one"]],
    ["all of them, one by one", ["m-one", "m-two"]],
  ])("%s is stopped: the turn is stopped, by its user", async (_name, names) => {
    const models = scriptedModels(async function* (_request, signal) {
      yield content("well ");
      await untilStopped(signal);
    });
    const fixture = newChat({ models });
    const turn = await fixture.start({ models: lanes(...names) });
    await turnOfTheLoop();
    await Promise.all(names.map((_, index) => turn.stop(StopReason.USER_CANCELLED, index)));
    await turn.ended;
    const { state } = await fixture.judge(turn.row.turnId);
    expect([state.stop!.outcome, state.stop!.stopReason]).toEqual([
      TurnOutcome.STOPPED,
      StopReason.USER_CANCELLED,
    ]);
  });

  test("stopping a lane and then the turn, at once: each is closed once", async () => {
    const models = scriptedModels(async function* (_request, signal) {
      yield content("well ");
      await untilStopped(signal);
    });
    let held: Deferred<void> | undefined;
    const fixture = newChat({
      models,
      onAppend: async () => {
        await held?.promise;
        return "normal" as const;
      },
    });
    const turn = await fixture.start({ models: lanes("m-one", "m-two") });
    held = deferred();
    await turnOfTheLoop();
    const stops = [
      turn.stop(StopReason.USER_CANCELLED, 0),
      turn.stop(StopReason.USER_CANCELLED),
      turn.stop(StopReason.USER_CANCELLED, 1),
      turn.stop(StopReason.USER_CANCELLED),
    ];
    await turnOfTheLoop();
    held.resolve();
    held = undefined;
    await Promise.all(stops);
    await turn.ended;
    const { state } = await fixture.judge(turn.row.turnId);
    expect(state.stop!.stopReason).toBe(StopReason.USER_CANCELLED);
  });
});

describe("a model that does not hear", () => {
  const deaf: ModelPort = {
    ...scriptedModels(),
    async *streamCompletion(request) {
      if (request.input!.modelId === "m-two") {
        for (const each of answer("two is done"))
          yield* scriptedModels(() => [each]).streamCompletion(request, new AbortController().signal);
        return;
      }
      await new Promise(() => undefined);
    },
  };

  test.each([
    ["the turn", undefined],
    ["its lane", 0],
  ])("%s is stopped and ends all the same", async (_name, modelIndex) => {
    const fixture = newChat({ models: deaf });
    const turn = await fixture.start({ models: lanes("m-one", "m-two") });
    await turnOfTheLoop();
    await turn.stop(StopReason.USER_CANCELLED, modelIndex);
    await turn.ended;
    const { state } = await fixture.judge(turn.row.turnId);
    expect(state.lanes[0]!.end!.outcome).toBe(TurnOutcome.STOPPED);
  });

  test("ends with the turn's deadline", async () => {
    const clock = new ManualClock();
    const fixture = newChat({ models: deaf, deps: { clock } });
    const armed = clock.sleepBegins(5_000);
    const turn = await fixture.start({ models: lanes("m-one"), options: options({ deadlineMs: 5_000 }) });
    await armed;
    clock.advance(5_000);
    await turn.ended;
    const { state } = await fixture.judge(turn.row.turnId);
    expect([state.stop!.outcome, state.stop!.stopReason]).toEqual([TurnOutcome.STOPPED, StopReason.DEADLINE]);
    expect(clock.sleeping).toBe(0);
  });
});

describe("the size limit (I14)", () => {
  test.each<[string, ModelScript, Record<string, ToolScript>]>([
    ["an endless answer", endlessly(content("x".repeat(1_000))), {}],
    ["endless reasoning", endlessly(reasoning("x".repeat(1_000))), {}],
    ["an endless tool", callsThenAnswers(["t", "{}"]), { t: endlessTool(line("x".repeat(1_000))) }],
    [
      "a tool with endless sources",
      callsThenAnswers(["t", "{}"]),
      {
        t: endlessTool(
          toolPacket(
            packet("sourceInfo", { documents: [{ documentId: "d", snippet: "x".repeat(4_000) }] }, undefined),
          ),
        ),
      },
    ],
  ])("%s is cut, never beyond it, and says so", async (_name, script, toolScripts) => {
    const limits = { ...defaultChatLimits, maxTurnBytes: 256 * 1024 };
    const models = scriptedModels(script);
    const tools = scriptedTools(toolScripts);
    const { state, entries } = await newChat({ models, tools, deps: { limits } }).run();
    expect([state.stop!.outcome, state.stop!.stopReason]).toEqual([
      TurnOutcome.STOPPED,
      StopReason.SIZE_LIMIT,
    ]);
    const bytes = entries.reduce((sum, entry) => sum + entry.batch.length, 0);
    expect(bytes).toBeLessThanOrEqual(256 * 1024);
    expect(bytes).toBeGreaterThan(100 * 1024);
    await turnOfTheLoop();
    expect([models.open, tools.open]).toEqual([0, 0]);
  });

  test("nothing is left out of the middle", async () => {
    const limits = { ...defaultChatLimits, maxTurnBytes: 128 * 1024 };
    let number = 0;
    const numbered: ModelScript = async function* () {
      for (;;) yield Array.from({ length: 50 }, () => content(`${number++} `.padEnd(500, ".")));
    };
    const { state } = await newChat({ models: scriptedModels(numbered), deps: { limits } }).run();
    const numbers = [...state.lanes[0]!.text.matchAll(/(\d+) \.+/g)].map((match) => Number(match[1]));
    expect(numbers).toEqual(numbers.map((_, index) => index));
  });
});

function failing(error: unknown): ToolScript {
  return async function* () {
    await turnOfTheLoop();
    throw error;
  };
}

function failingModel(error: unknown): ModelScript {
  return async function* () {
    yield content("before ");
    await turnOfTheLoop();
    throw error;
  };
}

function endlessly(each: ReturnType<typeof content>): ModelScript {
  return async function* () {
    for (;;) {
      yield each;
      await turnOfTheLoop();
    }
  };
}

function endlessTool(each: ReturnType<typeof toolPacket>): ToolScript {
  return async function* () {
    for (;;) {
      yield each;
      await turnOfTheLoop();
    }
  };
}

function options(fields: Record<string, unknown>): never {
  return fields as never;
}

function lanes(...modelIds: readonly string[]): never[] {
  return modelIds.map((modelId) => ({ modelId }) as never);
}

function contentAfter(packets: JudgedTurn["packets"], seq: number): Packet[] {
  return packets.filter((each) => each.seq > seq && isContent(each));
}

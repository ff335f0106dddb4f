/** From a send to an accepted turn: what is refused, what is resolved, what a repeat is. */
import { create, toBinary, fromBinary } from "@bufbuild/protobuf";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  SendMessageRequestSchema,
  StartTurnRequestSchema,
  SendMessageAndWaitRequestSchema,
} from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import {
  DoubleSendPolicy,
  SessionSettingsSchema,
  ToolCallingMode,
} from "../../gen/turnwire/chat/v1/types_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { hashSendRequest } from "../../src/chat/send-request.js";
import { newId } from "../../src/lib/ids.js";
import type { TurnPlan } from "../../src/chat/resolve-plan.js";
import {
  chat,
  model,
  scriptedModels,
  scriptedTools,
  sendRequest,
  toolResult,
  type Chat,
  type ChatOptions,
  type SendFields,
} from "../support/chat-fixture.js";
import { usePostgres } from "../support/postgres.js";
import { ALICE, collect, STRANGERS, useStore } from "../support/store-fixtures.js";
import { acceptTurn } from "../../src/chat/accept-turn.js";

const postgres = usePostgres();
const stores = useStore(postgres);

const tools = () => scriptedTools({ a: () => [toolResult("a")], b: () => [toolResult("b")] });

function newChat(options: Partial<ChatOptions> = {}): Chat {
  return chat({ store: stores.store, databaseUrl: postgres.url, tools: tools(), ...options });
}

async function planOf(process: Chat, fields: SendFields): Promise<TurnPlan> {
  const accepted = await process.accept(fields);
  if (accepted.kind !== "accepted") throw new Error(accepted.kind);
  return accepted.plan;
}

async function stored(): Promise<number> {
  const sessions = await stores.store.listSessions(
    ALICE,
    { size: 200, token: "" },
    { query: "", onlyActive: false },
  );
  return sessions.rows.length;
}

/** Fields of a send, as loosely as JSON has them. */
const fields = (loose: Record<string, unknown>): SendFields =>
  create(SendMessageRequestSchema, loose as never);

describe("a send is refused, and nothing is stored", () => {
  test.each<[string, Record<string, unknown>, ErrorCode, string]>([
    ["no text", { text: " \n\t " }, ErrorCode.INVALID_ARGUMENT, "text"],
    [
      "a model that is not there",
      { models: [{ modelId: "m-one" }, { modelId: "m-nine" }] },
      ErrorCode.MODEL_NOT_FOUND,
      "models[1].model_id",
    ],
    [
      "a model of the new session that is not there",
      { newSession: { modelIds: ["m-nine"] } },
      ErrorCode.MODEL_NOT_FOUND,
      "new_session.model_ids[0]",
    ],
    [
      "too many models",
      { models: Array.from({ length: 9 }, () => ({ modelId: "m-one" })) },
      ErrorCode.INVALID_ARGUMENT,
      "models",
    ],
    [
      "a tool that is not there",
      { options: { allowedTools: { toolIds: ["a", "z"] } } },
      ErrorCode.TOOL_NOT_FOUND,
      "options.allowed_tools",
    ],
    [
      "a forced tool that is not there",
      { options: { forcedToolId: "z" } },
      ErrorCode.TOOL_NOT_FOUND,
      "options.forced_tool_id",
    ],
    [
      "a forced tool that is not allowed",
      { options: { forcedToolId: "a", allowedTools: { toolIds: ["b"] } } },
      ErrorCode.INVALID_ARGUMENT,
      "options.forced_tool_id",
    ],
    [
      "a forced tool and no calling",
      { options: { forcedToolId: "a", toolCalling: ToolCallingMode.OFF } },
      ErrorCode.INVALID_ARGUMENT,
      "options.forced_tool_id",
    ],
    ["a session that is not there", { sessionId: newId() }, ErrorCode.NOT_FOUND, "session_id"],
    ["what is not built", { incognito: true }, ErrorCode.NOT_BUILT, "incognito"],
    ["a policy that is not built", { ifBusy: DoubleSendPolicy.ENQUEUE }, ErrorCode.NOT_BUILT, "if_busy"],
  ])("%s", async (_name, loose, code, field) => {
    const before = await stored();
    await expect(newChat().accept(fields({ text: "hello", ...loose }))).rejects.toMatchObject({
      code,
      details: { field },
    });
    expect(await stored()).toBe(before);
  });

  test("with no model at all", async () => {
    const models = scriptedModels();
    models.models = [];
    await expect(newChat({ models }).accept()).rejects.toMatchObject({
      code: ErrorCode.MODEL_NOT_FOUND,
      message: /configure a provider/,
    });
  });

  test("a session of somebody else, in the words of one that is not there", async () => {
    const process = newChat();
    const plan = await planOf(process, {});
    const { sessionId } = plan.started;
    const message = async (principal: typeof ALICE, id: string): Promise<string> =>
      acceptTurn(
        process.deps,
        principal,
        sendRequest({ sessionId: id }),
        process.turns,
        new AbortController().signal,
      ).then(
        () => "accepted",
        (error: Error) => error.message.replace(id, "ID"),
      );
    const unknown = await message(STRANGERS[0]!, newId());
    for (const stranger of STRANGERS) expect(await message(stranger, sessionId)).toBe(unknown);
  });

  test("into a busy session, naming the turn that runs; a parent of another session; new_session beside a session", async () => {
    const process = newChat();
    const plan = await planOf(process, {});
    const { sessionId, turnId } = plan.started;
    await expect(process.accept({ sessionId })).rejects.toMatchObject({
      code: ErrorCode.SESSION_BUSY,
      details: { turn_id: turnId },
    });
    const other = await process.run({});
    const parent = {
      case: "parentMessageId",
      value: other.state.started!.lanes[0]!.assistantMessageId,
    } as const;
    const own = await process.run({});
    const ownSession = own.state.started!.sessionId;
    await expect(process.accept({ sessionId: ownSession, position: parent })).rejects.toMatchObject({
      code: ErrorCode.NOT_FOUND,
      details: { field: "parent_message_id" },
    });
    await expect(
      process.accept(fields({ text: "x", sessionId: ownSession, newSession: {} })),
    ).rejects.toMatchObject({ details: { field: "new_session" } });
  });
});

describe("what is resolved", () => {
  test("the default model, an alias, several lanes in their order", async () => {
    const models = scriptedModels();
    models.models = [model("first"), model("second", { isDefault: true, aliases: ["two"] })];
    const process = newChat({ models });
    const ids = async (loose: Record<string, unknown>): Promise<string[]> =>
      (await planOf(process, fields({ text: "x", ...loose }))).lanes.map((lane) => lane.model.modelId);
    expect(await ids({})).toEqual(["second"]);
    expect(await ids({ models: [{ modelId: "two" }, { modelId: "first" }, { modelId: "second" }] })).toEqual([
      "second",
      "first",
      "second",
    ]);
    models.models = [model("first"), model("second")];
    expect(await ids({})).toEqual(["first"]);
  });

  test("the send's options over the session's, field by field; the session's where it says nothing", async () => {
    const process = newChat();
    const settings = create(SessionSettingsSchema, {
      systemPrompt: "be brief",
      modelIds: ["m-two"],
      defaults: {
        maxCycles: 2,
        toolCalling: ToolCallingMode.NATIVE,
        allowedTools: { toolIds: ["a"] },
        additionalContext: "from the session",
        deadlineMs: 9_000,
      },
    });
    const session = await stores.store.createSession(ALICE, {
      sessionId: newId(),
      requestId: "",
      settings: toBinary(SessionSettingsSchema, settings),
      title: "",
      tags: [],
    });
    const send = async (loose: Record<string, unknown>): Promise<TurnPlan> => {
      const judged = await process.run(fields({ text: "x", sessionId: session.sessionId, ...loose }));
      expect(judged.state.started!.sessionCreated).toBe(false);
      return plans.get(judged.turnId)!;
    };
    const plans = new Map<string, TurnPlan>();
    const start = process.turns.start.bind(process.turns);
    process.turns.start = (row, plan, assemble, stop) => {
      plans.set(row.turnId, plan);
      start(row, plan, assemble, stop);
    };
    const summary = (plan: TurnPlan): unknown[] => [
      plan.lanes[0]!.model.modelId,
      plan.maxCycles,
      plan.tools.map((tool) => tool.toolId),
      plan.systemPrompt,
      plan.additionalContext,
      plan.deadlineMs,
    ];
    expect(summary(await send({}))).toEqual(["m-two", 2, ["a"], "be brief", "from the session", 9_000]);
    expect(summary(await send({ options: { maxCycles: 4, additionalContext: "" } }))).toEqual([
      "m-two",
      4,
      ["a"],
      "be brief",
      "",
      9_000,
    ]);
    expect(
      summary(
        await send({
          models: [{ modelId: "m-one" }],
          options: { allowedTools: { toolIds: [] }, deadlineMs: 8_000 },
        }),
      ),
    ).toEqual(["m-one", 2, [], "be brief", "from the session", 8_000]);
    expect(summary(await send({ options: { toolCalling: ToolCallingMode.OFF } }))[2]).toEqual([]);
  });

  test("a deadline is never longer than the server's", async () => {
    expect(
      (await planOf(newChat(), fields({ text: "x", options: { deadlineMs: 86_000_000 } }))).deadlineMs,
    ).toBe(600_000);
  });

  test.each([
    ["a line", "a line"],
    ["  two\nlines", "two"],
    ["tabs\tand   spaces\r\nnext", "tabs and spaces"],
    ["word ".repeat(40), `${"word ".repeat(15)}word…`],
    ["x".repeat(300), `${"x".repeat(40)}…`],
    [`a${"😀".repeat(100)}`, `a${"😀".repeat(39)}…`],
    [`${"é".repeat(60)} ${"😀".repeat(60)}`, `${"é".repeat(60)}…`],
  ])("the title of %j", async (text, title) => {
    const plan = await planOf(newChat(), { text });
    expect((await stores.store.getSession(ALICE, plan.started.sessionId))!.title).toBe(title);
  });

  test("a long text: 64 KiB inline, all of it in a file and in the message, the model reads all", async () => {
    const text = "üben ".repeat(30_000);
    const models = scriptedModels();
    const { state } = await newChat({ models }).run({ text });
    const input = state.started!.input!;
    expect([input.truncated, text.startsWith(input.text), Buffer.byteLength(input.text) <= 65_536]).toEqual([
      true,
      true,
      true,
    ]);
    expect(Buffer.concat(await collect(stores.store.readFile(ALICE, input.textFileId, 0n))).toString()).toBe(
      text,
    );
    const part = models.requests[0]!.input!.messages.at(-1)!.parts[0]!.part;
    expect(part).toEqual({ case: "text", value: text });
  });

  test("the conversation so far comes along, and not what came after it", async () => {
    const models = scriptedModels();
    const process = newChat({ models });
    const first = await process.run({ text: "one" });
    const { sessionId } = first.state.started!;
    await process.run({ text: "two", sessionId });
    await process.run({
      text: "three",
      sessionId,
      position: { case: "parentMessageId", value: first.state.started!.lanes[0]!.assistantMessageId },
    });
    const texts = models.requests.map((request) =>
      request.input!.messages.map((message) =>
        message.parts.map(({ part }) => (part.case === "text" ? part.value : "?")).join(""),
      ),
    );
    expect(texts).toEqual([["one"], ["one", "hello", "two"], ["one", "hello", "three"]]);
  });
});

describe("a repeat", () => {
  test("finds its turn; with other fields it is a conflict; so it is when the model is gone meanwhile", async () => {
    const models = scriptedModels();
    const process = newChat({ models });
    const requestId = newId();
    const first = await process.accept({ requestId, text: "same" });
    models.models = [];
    const again = await process.accept({ requestId, text: "same", clientId: "another tab" });
    expect([again.kind, again.turn.turnId]).toEqual(["replayed", first.turn.turnId]);
    await expect(process.accept({ requestId, text: "different" })).rejects.toMatchObject({
      code: ErrorCode.REQUEST_CONFLICT,
    });
  });

  test("twenty at once are one turn", async () => {
    const process = newChat();
    const requestId = newId();
    const all = await Promise.all(Array.from({ length: 20 }, () => process.accept({ requestId })));
    expect(new Set(all.map(({ turn }) => turn.turnId)).size).toBe(1);
    expect(all.filter(({ kind }) => kind === "accepted")).toHaveLength(1);
  });
});

describe("the hash of a send", () => {
  const base = {
    text: "hello",
    requestId: "r",
    sessionId: "s",
    models: [{ modelId: "m", sampling: { temperature: 0.5, topP: 0.25 } }],
    options: { maxCycles: 3, variables: { a: "1", b: "2" } },
    newSession: { title: "t", tags: ["x"] },
  };
  const hash = (loose: Record<string, unknown>): string =>
    hashSendRequest(create(SendMessageRequestSchema, loose as never));

  test("does not see who asks, what to do when busy, nor credentials", () => {
    const credentials = { mcpCredentials: [{ serverId: "x", headers: { authorization: "secret" } }] };
    for (const more of [{ clientId: "c" }, { ifBusy: DoubleSendPolicy.REJECT }, credentials])
      expect(hash({ ...base, ...more })).toBe(hash(base));
  });

  test("sees everything else", () => {
    const others = [
      { text: "hello " },
      { sessionId: "t" },
      { models: [{ modelId: "n" }] },
      { models: [...base.models, ...base.models] },
      { models: [{ modelId: "m", sampling: { temperature: 0.5 } }] },
      { options: { maxCycles: 3 } },
      { options: undefined },
      { newSession: undefined },
      { position: { case: "parentMessageId", value: "p" } },
      { position: { case: "fromRoot", value: true } },
      { incognito: true },
    ];
    const hashes = others.map((more) => hash({ ...base, ...more }));
    expect(new Set([hash(base), ...hashes]).size).toBe(others.length + 1);
  });

  test("is the same for the three sends, in whatever order the fields came, over any wire", () => {
    const entries = Object.entries(base);
    fc.assert(
      fc.property(fc.shuffledSubarray(entries, { minLength: entries.length }), (shuffled) => {
        expect(hash(Object.fromEntries(shuffled))).toBe(hash(base));
      }),
      { numRuns: 20 },
    );
    const message = create(SendMessageRequestSchema, base as never);
    const overTheWire = fromBinary(SendMessageRequestSchema, toBinary(SendMessageRequestSchema, message));
    expect(hashSendRequest(overTheWire)).toBe(hash(base));
    expect(hashSendRequest(create(StartTurnRequestSchema, base as never))).toBe(hash(base));
    expect(hashSendRequest(create(SendMessageAndWaitRequestSchema, base as never))).toBe(hash(base));
    const swapped = { ...base, options: { maxCycles: 3, variables: { b: "2", a: "1" } } };
    expect(hash(swapped)).toBe(hash(base));
  });
});

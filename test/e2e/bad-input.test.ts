/**
 * Bad input over every protocol: a clear typed error, the same everywhere; nothing stored; nobody else's things shown; the
 * server goes on; no secret in any answer or log line.
 */
import { writeFileSync } from "node:fs";
import path from "node:path";
import { create, toBinary, type DescMessage, type MessageInitShape } from "@bufbuild/protobuf";
import type { DescMethod } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { Code } from "@connectrpc/connect";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import {
  ChatService,
  DocumentService,
  FileService,
  SendDisposition,
  SendMessageRequestSchema,
  SnapshotPolicy,
  type SendMessageRequest,
} from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import {
  CursorAheadSchema,
  NotBuiltSchema,
  SessionBusySchema,
} from "../../gen/turnwire/chat/v1/errors_pb.js";
import { DoubleSendPolicy, OnInterrupt, ToolCallingMode } from "../../gen/turnwire/chat/v1/types_pb.js";
import { hasToolResult, MODEL, plainAnswer, startWith } from "../support/e2e-fixture.js";
import { runSql, usePostgres } from "../support/postgres.js";
import { call, rawCallers, responsesOf, type Outcome, type RawCaller } from "../support/raw-callers.js";
import {
  finishChunks,
  gate,
  startScriptedUpstream,
  textChunks,
  type RecordedRequest,
  type Script,
  type ScriptedUpstream,
} from "../support/scripted-upstream.js";
import { makeDataDir, removeDataDir, type TurnwireProcess } from "../support/turnwire-process.js";

const postgres = usePostgres();
const { sendMessage, sendMessageAndWait, startTurn, resumeTurn, getTurn } = ChatService.method;
const SENDS = [sendMessage, sendMessageAndWait, startTurn] as const;
const TOKENS = { ada: "ada-secret-7f3a", bob: "bob-secret-91c2", eve: "eve-secret-55d0" };
const MAX_TEXT_BYTES = 512 * 1024;
/** Must never be in an answer or a log line. */
const SECRETS = ["sk-test-canary", ...Object.values(TOKENS), "private-words"];

let upstream: ScriptedUpstream;
let server: TurnwireProcess;
let callers: RawCaller[];
let bobs: RawCaller[];
/** Everything that a caller was told. */
const said: string[] = [];
const dataDir = makeDataDir();

/** Things that are there before the bad requests come. */
type Started = Awaited<ReturnType<typeof started>>;
let ada: Started;
let adaOther: Started;
let adaBusy: Started;
let bob: Started & { readonly requestId: string };

beforeAll(async () => {
  upstream = await startScriptedUpstream();
  upstream.replyWith(answers);
  const patient = path.join(dataDir, "patient.yaml"); // one turn is held as long as the suite takes
  writeFileSync(patient, "limits: { llm: { stallTimeoutMs: 1800000, totalTimeoutMs: 1800000 } }\n");
  server = await startWith(upstream, {
    dataDir,
    databaseUrl: postgres.url,
    env: {
      TURNWIRE_TOKENS: `${TOKENS.ada}=acme/ada,${TOKENS.bob}=acme/bob,${TOKENS.eve}=other/ada`,
      TURNWIRE_LOG: "debug",
      TURNWIRE_CONFIG: patient,
    },
  });
  callers = rawCallers(server, TOKENS.ada);
  bobs = rawCallers(server, TOKENS.bob);
  const first = await started(callers[0]!, { text: "first" });
  const other = await started(callers[0]!, { text: "other" });
  const bobs1 = await started(bobs[0]!, { text: `long ${"x".repeat(70_000)}`, requestId: "bobs-request" });
  const busy = await started(callers[0]!, { text: "HOLD" }, false);
  await upstream.reached("hold");
  ada = first;
  adaOther = other;
  adaBusy = busy;
  bob = { ...bobs1, requestId: "bobs-request" };
});
afterAll(async () => {
  for (const caller of [...(callers ?? []), ...(bobs ?? [])]) caller.close();
  upstream?.open("hold");
  await server?.stop();
  await upstream?.close();
  removeDataDir(dataDir);
});

/** Starts a turn, waits for its end, and looks up what it made. */
async function started(
  caller: RawCaller,
  request: MessageInitShape<typeof SendMessageRequestSchema>,
  wait = true,
) {
  const outcome = await tell(caller, startTurn, { models: [{ modelId: MODEL }], ...request });
  const [reply] = responsesOf(caller, startTurn, outcome);
  const { turnId } = reply!.receipt!;
  if (wait) await tell(caller, resumeTurn, { turnId });
  const [state] = responsesOf(caller, getTurn, await tell(caller, getTurn, { turnId }));
  return {
    turnId,
    head: state!.turn!.headSeq,
    sessionId: reply!.started!.sessionId,
    userMessageId: reply!.started!.userMessageId,
    assistantMessageId: reply!.started!.lanes[0]!.assistantMessageId,
    fileId: reply!.started!.input!.textFileId,
  };
}

function answers(request: RecordedRequest): Script {
  const asked = JSON.stringify(request.json?.messages?.at(-1) ?? "");
  if (asked.includes("HOLD") && !hasToolResult(request))
    return [...textChunks("begun"), gate("hold"), ...finishChunks("stop")];
  return plainAnswer("an answer");
}

/** Sends it and keeps what the caller is told. */
async function tell(caller: RawCaller, method: DescMethod, request: object): Promise<Outcome> {
  return heard(await call(caller, method, request as Record<string, unknown>));
}

function heard(outcome: Outcome): Outcome {
  if (outcome.code !== undefined) {
    const details = outcome.details.map((detail) =>
      Buffer.from(detail.split(" ")[1]!, "base64").toString("latin1"),
    );
    said.push(outcome.message, ...details, JSON.stringify(outcome.facts));
  }
  return outcome;
}

/** Rows per table, so that "nothing was stored" can be said. */
async function countRows(): Promise<Record<string, unknown>> {
  const tables =
    "sessions turns turn_requests messages lanes tool_calls documents citations usage files file_parts archive_parts checkpoints turn_commands";
  const counts = tables
    .split(" ")
    .map((table) => `(select count(*)::int from turnwire.${table}) as ${table}`);
  return (await runSql(postgres.url, `select ${counts.join(", ")}`))[0]!;
}

interface Refusal {
  readonly code: Code;
  readonly reason: string;
  /** ErrorInfo's `field`, which the message names too unless the rule is about the whole message. */
  readonly field?: string;
}

function expectRefusal(outcome: Outcome, wanted: Refusal, where: string): void {
  expect(
    { code: outcome.code, reason: outcome.reason, field: outcome.facts["field"] },
    `${where}: ${outcome.message}`,
  ).toEqual({
    code: wanted.code,
    reason: wanted.reason,
    field: wanted.field,
  });
  expect(outcome.message, where).not.toBe("");
  expect(outcome.responses.length, where).toBe(0);
}

const invalid = (field?: string): Refusal => ({
  code: Code.InvalidArgument,
  reason: "INVALID_ARGUMENT",
  field,
});
const notFound = (field: string): Refusal => ({ code: Code.NotFound, reason: "NOT_FOUND", field });
const unbuilt = (field: string): Refusal => ({ code: Code.Unimplemented, reason: "NOT_BUILT", field });

type Send = MessageInitShape<typeof SendMessageRequestSchema>;

/** A send that would be fine but for `part`. */
function send(part: Send): Send {
  return { text: "private-words", models: [{ modelId: MODEL }], ...part } as Send;
}

describe("a bad request stores nothing", () => {
  let before: Record<string, unknown>;
  let asked: number;
  beforeEach(async () => {
    before = await countRows();
    asked = upstream.requests.length;
  });
  afterEach(async () => {
    expect(await countRows()).toEqual(before);
    expect(upstream.requests.length).toBe(asked);
  });

  test.each<[string, Refusal, () => Send]>([
    ["no text", invalid("text"), () => send({ text: "" })],
    ["only white space", invalid("text"), () => send({ text: " \n\t\u00a0 " })],
    ["a text of 512 KiB and one byte", invalid("text"), () => send({ text: "x".repeat(MAX_TEXT_BYTES + 1) })],
    ["a text of 1 MiB", invalid("text"), () => send({ text: "x".repeat(2 ** 20) })],
    ["512 Ki characters of three bytes", invalid("text"), () => send({ text: "€".repeat(MAX_TEXT_BYTES) })],
    ["an unknown session", notFound("session_id"), () => send({ sessionId: "no-such-session" })],
    ["a session of somebody else", notFound("session_id"), () => send({ sessionId: bob.sessionId })],
    ["a session id of other characters", invalid("session_id"), () => send({ sessionId: "a b" })],
    ["a session id of 129 characters", invalid("session_id"), () => send({ sessionId: "x".repeat(129) })],
    ["a request id of other characters", invalid("request_id"), () => send({ requestId: "é" })],
    [
      "a parent of another session",
      notFound("parent_message_id"),
      () => send({ sessionId: ada.sessionId, position: at(adaOther.assistantMessageId) }),
    ],
    [
      "a parent of somebody else",
      notFound("parent_message_id"),
      () => send({ sessionId: ada.sessionId, position: at(bob.assistantMessageId) }),
    ],
    [
      "a parent that is a user message",
      notFound("parent_message_id"),
      () => send({ sessionId: ada.sessionId, position: at(ada.userMessageId) }),
    ],
    [
      "a parent that is not there",
      notFound("parent_message_id"),
      () => send({ sessionId: ada.sessionId, position: at("no-such-message") }),
    ],
    [
      "a parent without a session",
      notFound("parent_message_id"),
      () => send({ position: at(adaOther.assistantMessageId) }),
    ],
    [
      "an answer of somebody else to be made anew",
      notFound("regenerate_message_id"),
      () => send({ sessionId: ada.sessionId, text: "", position: regenerate(bob.assistantMessageId) }),
    ],
    [
      "an answer to be made anew, without its session",
      notFound("regenerate_message_id"),
      () => send({ text: "", position: regenerate(ada.assistantMessageId) }),
    ],
    [
      "a user message to be made anew",
      invalid("regenerate_message_id"),
      () => send({ sessionId: ada.sessionId, text: "", position: regenerate(ada.userMessageId) }),
    ],
    [
      "a text with an answer to be made anew",
      invalid("text"),
      () => send({ sessionId: ada.sessionId, position: regenerate(ada.assistantMessageId) }),
    ],
    [
      "an edit of a message of another session",
      notFound("edit_message_id"),
      () => send({ sessionId: ada.sessionId, position: edit(adaOther.userMessageId) }),
    ],
    [
      "an edit of an answer",
      invalid("edit_message_id"),
      () => send({ sessionId: ada.sessionId, position: edit(ada.assistantMessageId) }),
    ],
    [
      "an edit to nothing",
      invalid("text"),
      () => send({ sessionId: ada.sessionId, text: " ", position: edit(ada.userMessageId) }),
    ],
    [
      "new_session with a session",
      invalid("new_session"),
      () => send({ sessionId: ada.sessionId, newSession: { systemPrompt: "be brief" } }),
    ],
    [
      "an unknown model",
      { code: Code.NotFound, reason: "MODEL_NOT_FOUND", field: "models[0].model_id" },
      () => send({ models: [{ modelId: "no-such-model" }] }),
    ],
    [
      "an unknown model beside a known one",
      { code: Code.NotFound, reason: "MODEL_NOT_FOUND", field: "models[1].model_id" },
      () => send({ models: [{ modelId: MODEL }, { modelId: "no-such-model" }] }),
    ],
    [
      "an unknown model of the new session",
      { code: Code.NotFound, reason: "MODEL_NOT_FOUND", field: "new_session.model_ids[0]" },
      () => send({ models: [], newSession: { modelIds: ["no-such-model"] } }),
    ],
    [
      "nine models",
      invalid("models"),
      () => send({ models: Array.from({ length: 9 }, () => ({ modelId: MODEL })) }),
    ],
    ["a model without a name", invalid("models[0].model_id"), () => send({ models: [{ modelId: "" }] })],
    [
      "an unknown tool",
      { code: Code.NotFound, reason: "TOOL_NOT_FOUND", field: "options.allowed_tools" },
      () => send({ options: { allowedTools: { toolIds: ["clock", "no-such-tool"] } } }),
    ],
    [
      "an unknown forced tool",
      { code: Code.NotFound, reason: "TOOL_NOT_FOUND", field: "options.forced_tool_id" },
      () => send({ options: { forcedToolId: "no-such-tool" } }),
    ],
    [
      "a forced tool that is not allowed",
      invalid("options.forced_tool_id"),
      () => send({ options: { forcedToolId: "clock", allowedTools: { toolIds: ["open_url"] } } }),
    ],
    [
      "a forced tool and no tool calling",
      invalid("options.forced_tool_id"),
      () => send({ options: { forcedToolId: "clock", toolCalling: ToolCallingMode.OFF } }),
    ],
    ["a cycle limit of 65", invalid("options.max_cycles"), () => send({ options: { maxCycles: 65 } })],
    ["no time at all", invalid("options.deadline_ms"), () => send({ options: { deadlineMs: 0 } })],
    ["from_root: false", invalid("from_root"), () => send({ position: { case: "fromRoot", value: false } })],
  ])("a send: %s", async (_, wanted, request) => {
    await everywhere(SENDS, request(), wanted);
  });

  test.each<[string, Send]>([
    ["attachments", { attachments: [{ fileId: "file-1" }] }],
    ["continue_message_id", { position: { case: "continueMessageId", value: "message-1" }, text: "" }],
    ["if_busy", { ifBusy: DoubleSendPolicy.ENQUEUE }],
    ["incognito", { incognito: true }],
    ["mcp_credentials", { mcpCredentials: [{ serverId: "s", headers: { authorization: "private-words" } }] }],
    ["models[0].direct", { models: [{ modelId: "mine", direct: { api: "openai", upstreamModel: "m" } }] }],
    ["options.deep_research", { options: { deepResearch: true } }],
    ["options.tool_calling", { options: { toolCalling: ToolCallingMode.PROMPTED } }],
    ["options.features", { options: { features: { flags: { web: true } } } }],
    ["options.filters", { options: { filters: { filterIds: ["f"] } } }],
    ["options.client_tools", { options: { clientTools: { tools: [{ name: "mine" }] } } }],
    ["options.response_json_schema", { options: { responseJsonSchema: "{}" } }],
    ["options.background_tasks", { options: { backgroundTasks: { title: true } } }],
    ["options.variables", { options: { variables: { values: { name: "Ada" } } } }],
    ["options.on_interrupt", { options: { onInterrupt: OnInterrupt.RESTART_CYCLE } }],
    ["new_session.if_busy", { newSession: { ifBusy: DoubleSendPolicy.STEER } }],
    ["new_session.defaults.deep_research", { newSession: { defaults: { deepResearch: true } } }],
  ])("a send with %s, which is not built yet, is refused by name", async (field, part) => {
    const outcome = await everywhere(SENDS, send(part), unbuilt(field));
    expect(outcome.message).toContain(field);
    expect(outcome.details).toContain(detail(NotBuiltSchema, { field }));
  });

  test.each<[string, string, DescMethod, object]>([
    ["session.incognito", "session", ChatService.method.createSession, { session: { incognito: true } }],
    ["session.project_id", "session", ChatService.method.createSession, { session: { projectId: "p" } }],
    ["session.archived", "session", ChatService.method.createSession, { session: { archived: true } }],
    [
      "session.settings.if_busy",
      "session",
      ChatService.method.createSession,
      { session: { settings: { ifBusy: DoubleSendPolicy.ENQUEUE } } },
    ],
    [
      "session.settings.defaults.filters",
      "session",
      ChatService.method.createSession,
      { session: { settings: { defaults: { filters: { filterIds: ["f"] } } } } },
    ],
    ["share_token", "token", ChatService.method.getSession, { shareToken: "private-words" }],
    ["share_token", "token", resumeTurn, { turnId: "t", shareToken: "private-words" }],
    ["share_token", "token", ChatService.method.watch, { shareToken: "private-words" }],
    [
      "session.project_id",
      "session",
      ChatService.method.updateSession,
      { session: { sessionId: "s", projectId: "p" } },
    ],
    [
      "session.settings.defaults.filters",
      "session",
      ChatService.method.updateSession,
      { session: { sessionId: "s", settings: { defaults: { filters: { filterIds: ["f"] } } } } },
    ],
  ])("%s of another call is refused by name", async (field, _, method, request) => {
    const outcome = await everywhere([method], request, unbuilt(field));
    expect(outcome.details).toContain(detail(NotBuiltSchema, { field }));
  });

  test.each(unbuiltRpcs())("the RPC %s is not built yet and says so", async (name, method, request) => {
    const outcome = await everywhere([method], request, { code: Code.Unimplemented, reason: "NOT_BUILT" });
    expect(outcome.message).toContain(name.split("/")[1]);
  });

  test("cursors ahead of the turn, small and huge, running and ended", async () => {
    for (const [turnId, head] of [
      [ada.turnId, ada.head],
      [adaBusy.turnId, await headOf(adaBusy.turnId)],
    ] as const) {
      for (const afterSeq of [head + 1, 2 ** 31, 2 ** 32 - 1]) {
        const outcome = await everywhere([resumeTurn], { turnId, afterSeq }, ahead);
        expect(outcome.details).toContain(detail(CursorAheadSchema, { headSeq: head }));
        const state = await everywhere([getTurn], { turnId, atSeq: afterSeq }, ahead);
        expect(state.details).toContain(detail(CursorAheadSchema, { headSeq: head }));
      }
    }
  });

  test("cursors and numbers that are none, in JSON", async () => {
    const json = callers[0]!;
    for (const value of ["-1", "4294967296", "1.5", '"many"', "true", "[]", "1e99", '"-1"']) {
      const text = `{"turnId":"${ada.turnId}","afterSeq":${value}}`;
      expectRefusal(heard(await json.send(resumeTurn, Buffer.from(text))), invalid("after_seq"), text);
    }
    for (const value of ["-1", "1.5", '"x"', '"18446744073709551616"']) {
      const text = `{"turnId":"${ada.turnId}","logPositionHint":${value}}`;
      expectRefusal(
        heard(await json.send(resumeTurn, Buffer.from(text))),
        invalid("log_position_hint"),
        text,
      );
    }
  });

  test("the cursor of another log", async () => {
    await everywhere(
      [resumeTurn],
      { turnId: ada.turnId, afterSeq: 1, logId: "another-log" },
      { code: Code.FailedPrecondition, reason: "LOG_REPLACED" },
    );
  });

  test("tokens of pages that we did not make", async () => {
    const { listSessions, listMessages, listTurns, listModels, listTools } = ChatService.method;
    const json = callers[0]!;
    const page = await tell(json, listSessions, { pageSize: 1 });
    const { nextPageToken } = responsesOf(json, listSessions, page)[0]!;
    expect(nextPageToken).not.toBe("");
    const flipped = nextPageToken.replace(/.$/, (last) => (last === "A" ? "B" : "A"));
    for (const pageToken of ["garbage", "-1", "9".repeat(400), "%00", nextPageToken.slice(1), flipped]) {
      await everywhere(
        [listSessions, listTurns, listModels, listTools],
        { pageToken },
        invalid("page_token"),
      );
      await everywhere([listMessages], { sessionId: ada.sessionId, pageToken }, invalid("page_token"));
    }
    // A token of one list is none of another, and not the same list's of somebody else.
    await everywhere([listTurns], { pageToken: nextPageToken }, invalid("page_token"));
    await everywhere(
      [listMessages],
      { sessionId: ada.sessionId, pageToken: nextPageToken },
      invalid("page_token"),
    );
    await everywhere([listSessions], { pageToken: nextPageToken }, invalid("page_token"), bobs);
  });

  test("tokens of parts that we did not make", async () => {
    const { turnId } = ada;
    for (const partToken of [
      "x",
      "0.1",
      "1.9",
      "1.99999",
      "9999999999.0",
      `${ada.head + 1}.0`,
      "4294967297.0",
      "1.0.0",
      "-1.0",
    ])
      await everywhere([getTurn], { turnId, partToken }, invalid("part_token"));
  });

  test("changes of a session that are none", async () => {
    const { updateSession, setFeedback } = ChatService.method;
    const session = { sessionId: ada.sessionId, title: "private-words" };
    for (const path of [
      "",
      "name",
      "session.title",
      "session_id",
      "revision",
      "settings.system_prompt",
      "*",
    ]) {
      // In JSON a path is written in camel case and an empty one cannot be.
      const who = callers.filter((caller) => !caller.json);
      const outcome = await everywhere(
        [updateSession],
        { session, updateMask: { paths: ["title", path] } },
        invalid("update_mask"),
        who,
      );
      expect(outcome.message).toContain(`"${path}"`);
    }
    await everywhere([updateSession], { session, updateMask: { paths: [] } }, invalid("update_mask"));
    await everywhere([updateSession], { session: { sessionId: ada.sessionId } }, invalid("update_mask"));
    await everywhere([setFeedback], { messageId: ada.userMessageId, rating: 1 }, invalid("message_id"));
    await everywhere([setFeedback], { messageId: ada.assistantMessageId, rating: 2 }, invalid("rating"));
  });

  test("tokens of events that we did not make", async () => {
    for (const afterEventToken of ["garbage", "-1", "%00", "9".repeat(400)])
      await everywhere([ChatService.method.watch], { afterEventToken }, invalid("after_event_token"));
  });

  test("JSON that is not the request", async () => {
    const json = callers[0]!;
    const bad: [string | Uint8Array, string | undefined][] = [
      ["", undefined],
      ['{"text":', undefined],
      ['"hello"', undefined],
      ["[]", undefined],
      ["17", undefined],
      [`{"text":"a"}{"text":"b"}`, undefined],
      ['{"txt":"hello"}', "txt"],
      ['{"text":"hello","Text":"hello"}', "Text"],
      ['{"text":"hello","options":{"maxCycle":3}}', "maxCycle"],
      ['{"text":5}', "text"],
      ['{"text":["hello"]}', "text"],
      ['{"text":"hello","models":"scripted-model"}', "models"],
      ['{"text":"hello","ifBusy":"DOUBLE_SEND_POLICY_WHATEVER"}', undefined],
      ['{"text":"hello","parentMessageId":"a","fromRoot":true}', "position"],
      [`{"text":"lone \\ud800 surrogate"}`, "text"],
      [Buffer.concat([Buffer.from('{"text":"'), Buffer.from([0xc3, 0x28]), Buffer.from('"}')]), undefined],
      [`{"text":${"[".repeat(5_000)}${"]".repeat(5_000)}}`, "text"],
    ];
    for (const method of SENDS) {
      for (const [text, field] of bad) {
        const outcome = heard(await json.send(method, Buffer.from(text)));
        expectRefusal(outcome, invalid(field), `${method.name} ${String(text).slice(0, 60)}`);
        if (field) expect(outcome.message).toContain(field);
      }
    }
  });

  test("bytes that are not the request", async () => {
    const brokenUtf8 = new BinaryWriter()
      .tag(3, WireType.LengthDelimited)
      .bytes(new Uint8Array([0x68, 0xc3, 0x28]));
    const bad: [Uint8Array, RegExp][] = [
      [brokenUtf8.finish(), /UTF-8/],
      [new Uint8Array([0x1a, 0x20, 0x68]), /malformed/], // a text of 32 bytes that has one
      [new Uint8Array([0x1f, 0xff, 0xff]), /malformed/], // a wire type that there is not
      [new Uint8Array([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]), /malformed/],
    ];
    for (const caller of callers.filter((each) => !each.json)) {
      for (const method of SENDS) {
        for (const [bytes, message] of bad) {
          const outcome = heard(await caller.send(method, bytes));
          expectRefusal(
            outcome,
            invalid(),
            `${caller.name} ${method.name} ${Buffer.from(bytes).toString("hex")}`,
          );
          expect(outcome.message).toMatch(message);
        }
      }
    }
  });

  test("a frame of 5 MiB", async () => {
    for (const caller of callers) {
      for (const method of SENDS) {
        const text = "x".repeat(5 * 1024 * 1024);
        const bytes = caller.json
          ? Buffer.from(JSON.stringify({ text }))
          : toBinary(SendMessageRequestSchema, create(SendMessageRequestSchema, { text }));
        const { code } = heard(await caller.send(method, bytes));
        expect(code, `${caller.name} ${method.name}`).toBe(Code.ResourceExhausted);
      }
    }
  });

  test("a send into a busy session names the turn that runs", async () => {
    const busy: Refusal = { code: Code.FailedPrecondition, reason: "SESSION_BUSY" };
    for (const ifBusy of [DoubleSendPolicy.UNSPECIFIED, DoubleSendPolicy.REJECT]) {
      const outcome = await everywhere(SENDS, send({ sessionId: adaBusy.sessionId, ifBusy }), busy);
      expect(outcome.message).toContain(adaBusy.turnId);
      expect(outcome.details).toContain(detail(SessionBusySchema, { turnId: adaBusy.turnId }));
    }
  });

  test("no token, a wrong one", async () => {
    const unauthenticated: Refusal = { code: Code.Unauthenticated, reason: "UNAUTHENTICATED" };
    for (const token of [undefined, "wrong", TOKENS.ada.slice(1)]) {
      const strangers = rawCallers(server, token);
      await everywhere(SENDS, send({}), unauthenticated, strangers);
      await everywhere([getTurn], { turnId: ada.turnId }, unauthenticated, strangers);
      for (const caller of strangers) caller.close();
    }
  });

  test("what is somebody else's is answered as if it were not there", async () => {
    const { getSession, deleteSession, listMessages, listTurns, listTools, stopTurn } = ChatService.method;
    const { updateSession, selectMessage, setFeedback } = ChatService.method;
    const { getFile, downloadFile } = FileService.method;
    const byId: [DescMethod, (id: string) => object, string][] = [
      [getSession, (sessionId) => ({ sessionId }), bob.sessionId],
      [deleteSession, (sessionId) => ({ sessionId }), bob.sessionId],
      [updateSession, (sessionId) => ({ session: { sessionId, title: "mine" } }), bob.sessionId],
      [selectMessage, (sessionId) => ({ sessionId, messageId: bob.userMessageId }), bob.sessionId],
      [selectMessage, (messageId) => ({ sessionId: ada.sessionId, messageId }), bob.userMessageId],
      [setFeedback, (messageId) => ({ messageId, rating: 1 }), bob.assistantMessageId],
      [listMessages, (sessionId) => ({ sessionId }), bob.sessionId],
      [listTurns, (sessionId) => ({ sessionId }), bob.sessionId],
      [listTools, (sessionId) => ({ sessionId }), bob.sessionId],
      [stopTurn, (value) => ({ target: { case: "sessionId", value } }), bob.sessionId],
      [stopTurn, (value) => ({ target: { case: "turnId", value } }), bob.turnId],
      [sendMessage, (sessionId) => send({ sessionId }), bob.sessionId],
      [sendMessageAndWait, (sessionId) => send({ sessionId }), bob.sessionId],
      [startTurn, (sessionId) => send({ sessionId }), bob.sessionId],
      [getTurn, (turnId) => ({ turnId }), bob.turnId],
      [resumeTurn, (turnId) => ({ turnId }), bob.turnId],
      [
        resumeTurn,
        (turnId) => ({ turnId, afterSeq: 999, logId: "x", snapshot: SnapshotPolicy.ALWAYS }),
        bob.turnId,
      ],
      [getFile, (fileId) => ({ fileId }), bob.fileId],
      [downloadFile, (fileId) => ({ fileId, offset: "999999999" }), bob.fileId],
    ];
    for (const [method, request, theirs] of byId) {
      const missing = "0".repeat(theirs.length);
      for (const caller of callers) {
        const foreign = await tell(caller, method, request(theirs));
        const unknown = await tell(caller, method, request(missing));
        const where = `${caller.name} ${method.name}`;
        expect(foreign.code, where).toBe(Code.NotFound);
        expect(JSON.parse(JSON.stringify(foreign).replaceAll(theirs, missing)), where).toEqual(
          JSON.parse(JSON.stringify(unknown)),
        );
      }
    }
  });
});

describe("what is just right is taken", () => {
  test("a text of exactly 512 KiB, whole", async () => {
    for (const caller of callers) {
      const text = "é".repeat(MAX_TEXT_BYTES / 2);
      const outcome = await tell(caller, sendMessageAndWait, send({ text }));
      expect(outcome.code, caller.name).toBeUndefined();
      expect(responsesOf(caller, sendMessageAndWait, outcome)[0]!.text).toBe("an answer");
      expect(upstream.requests.at(-1)!.json!.messages!.at(-1)!["content"]).toBe(text);
    }
  });

  test("characters that databases and terminals trip over", async () => {
    const text = "\u0000 null, \u0007 bell, \u202e right to left, \ud83d\udd70\ufe0f, \ufffd and \uffff";
    for (const caller of callers) {
      const outcome = await tell(caller, sendMessageAndWait, send({ text }));
      expect(outcome.code, `${caller.name}: ${outcome.message}`).toBeUndefined();
      expect(upstream.requests.at(-1)!.json!.messages!.at(-1)!["content"]).toBe(text);
    }
    const { listSessions } = ChatService.method;
    for (const query of ["%", "_", "\\", "'; drop table turns; --"]) {
      const outcome = await tell(callers[1]!, listSessions, { query });
      expect(outcome.code, JSON.stringify(query)).toBeUndefined();
    }
  });

  test("a hint of where the log goes on may be wrong", async () => {
    for (const caller of callers) {
      const whole = await tell(caller, resumeTurn, { turnId: ada.turnId, afterSeq: 2 });
      const hinted = await tell(caller, resumeTurn, {
        turnId: ada.turnId,
        afterSeq: 2,
        logPositionHint: "18446744073709551615",
      });
      expect(hinted.responses, caller.name).toEqual(whole.responses);
    }
  });
});

describe("the same send again", () => {
  test("100 times at once over every protocol: one turn, one user message, one model call", async () => {
    const before = await countRows();
    const asked = upstream.requests.length;
    const text = "HOLD the one and only";
    const request = send({ text, requestId: "once" });
    upstream.replyWith((recorded) =>
      recorded.body.includes("one and only") ? [gate("once"), ...plainAnswer("once")] : answers(recorded),
    );
    const all = Promise.all(
      Array.from({ length: 100 }, async (_, index) => {
        const caller = callers[index % callers.length]!;
        const method = SENDS[Math.floor(index / callers.length) % SENDS.length]!;
        const outcome = await tell(caller, method, request);
        expect(outcome.code, `${caller.name} ${method.name}: ${outcome.message}`).toBeUndefined();
        return turnOf(caller, method, outcome);
      }),
    );
    await upstream.reached("once");
    upstream.open("once");
    const told = await all;
    expect(new Set(told.map((each) => each.turnId)).size).toBe(1);
    const dispositions = told.flatMap((each) => each.disposition ?? []);
    expect(dispositions.filter((each) => each === SendDisposition.STARTED).length).toBeLessThanOrEqual(1);
    expect(upstream.requests.length).toBe(asked + 1);
    const after = await countRows();
    expect(after).toMatchObject({
      sessions: (before["sessions"] as number) + 1,
      turns: (before["turns"] as number) + 1,
      messages: (before["messages"] as number) + 2,
      turn_requests: (before["turn_requests"] as number) + 1,
    });
    upstream.replyWith(answers);
  });

  test("with another text is a conflict, whoever else uses the same id", async () => {
    const request = send({ text: "the first", requestId: "twice" });
    const first = await tell(callers[0]!, sendMessageAndWait, request);
    const { turnId } = turnOf(callers[0]!, sendMessageAndWait, first);
    const conflict: Refusal = { code: Code.AlreadyExists, reason: "REQUEST_CONFLICT", field: "request_id" };
    await everywhere(SENDS, { ...request, text: "another" }, conflict);
    await everywhere(SENDS, { ...request, models: [{ modelId: MODEL }, { modelId: MODEL }] }, conflict);
    const again = await tell(callers[3]!, startTurn, request);
    expect(turnOf(callers[3]!, startTurn, again).turnId).toBe(turnId);
    const theirs = await tell(bobs[0]!, startTurn, request);
    expect(turnOf(bobs[0]!, startTurn, theirs).turnId).not.toBe(turnId);
  });
});

test("after all this the server answers, nothing failed inside it, and no secret is in any answer or log line", async () => {
  for (const caller of callers) {
    const outcome = await tell(caller, sendMessageAndWait, send({ text: "still there?" }));
    expect(responsesOf(caller, sendMessageAndWait, outcome)[0]!.text).toBe("an answer");
  }
  const [left] = await runSql(
    postgres.url,
    "select count(*)::int as count from turnwire.turns where phase < 3 and turn_id <> $1",
    [adaBusy.turnId],
  );
  await expect.poll(async () => left!["count"]).toBe(0);
  const everything = said.join("\n");
  expect(said.length).toBeGreaterThan(1_000);
  for (const secret of SECRETS) {
    expect(everything, "in answers").not.toContain(secret);
    expect(server.output(), "in the log").not.toContain(secret);
  }
  expect(everything).not.toMatch(/\n\s+at |node_modules|\.[jt]s:\d|postgres|select |127\.0\.0\.1/i);
  expect(
    server
      .output()
      .split("\n")
      .filter((line) => /"level":"(error|fatal)"/.test(line)),
  ).toEqual([]);
});

const ahead: Refusal = { code: Code.FailedPrecondition, reason: "CURSOR_AHEAD" };

function regenerate(value: string): SendMessageRequest["position"] {
  return { case: "regenerateMessageId", value };
}

function edit(value: string): SendMessageRequest["position"] {
  return { case: "editMessageId", value };
}

function at(messageId: string): SendMessageRequest["position"] {
  return { case: "parentMessageId", value: messageId };
}

/** Asks over every protocol, expects the same refusal each time, and gives one of them. */
async function everywhere(
  methods: readonly DescMethod[],
  request: object,
  wanted: Refusal,
  who: readonly RawCaller[] = callers,
): Promise<Outcome> {
  let first: Outcome | undefined;
  for (const method of methods) {
    for (const caller of who) {
      const outcome = await tell(caller, method, request);
      const where = `${caller.name} ${method.name}`;
      expectRefusal(outcome, wanted, where);
      first ??= outcome;
      expect({ message: outcome.message, details: outcome.details }, where).toEqual({
        message: first.message,
        details: first.details,
      });
    }
  }
  return first!;
}

function detail<Desc extends DescMessage>(desc: Desc, value: object): string {
  const bytes = toBinary(desc, create(desc, value as never));
  return `${desc.typeName} ${Buffer.from(bytes).toString("base64")}`;
}

async function headOf(turnId: string): Promise<number> {
  const [state] = responsesOf(callers[0]!, getTurn, await tell(callers[0]!, getTurn, { turnId }));
  return state!.turn!.headSeq;
}

function turnOf(
  caller: RawCaller,
  method: (typeof SENDS)[number],
  outcome: Outcome,
): { turnId: string; disposition?: SendDisposition } {
  const [first] = responsesOf<DescMessage>(caller, method, outcome) as unknown as {
    turnId?: string;
    receipt?: { turnId: string; disposition: SendDisposition };
  }[];
  return first!.receipt ?? { turnId: first!.turnId! };
}

/** Every RPC that no issue has built yet, with a request that its rules allow. */
function unbuiltRpcs(): [string, DescMethod, object][] {
  const built = new Set(
    "createSession getSession listSessions updateSession deleteSession listMessages searchMessages selectMessage setFeedback watch sendMessage sendMessageAndWait startTurn resumeTurn stopTurn getTurn listTurns listModels listTools uploadFile getFile downloadFile deleteFile addDocument getDocument cancelDocument listDocuments deleteDocument".split(
      " ",
    ),
  );
  const requests: Record<string, object> = {
    shareSession: { sessionId: "s" },
    unshareSession: { sessionId: "s" },
    cancelQueuedSend: { sessionId: "s", requestId: "r" },
    forkTurn: { turnId: "t" },
    claimClientCall: { turnId: "t", clientCallId: "c" },
    submitClientResult: { turnId: "t", clientCallId: "c", result: { case: "answer", value: "a" } },
    getUsage: {},
  };
  return [ChatService, FileService, DocumentService].flatMap((service) =>
    service.methods
      .filter((method) => !built.has(method.localName))
      .map((method): [string, DescMethod, object] => {
        const request = requests[method.localName];
        if (!request) throw new Error(`no request for ${method.name}`);
        return [`${service.typeName}/${method.name}`, method, request];
      }),
  );
}

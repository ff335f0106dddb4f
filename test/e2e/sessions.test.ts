/** Conversations over several turns: sessions, what the model is given of them, long texts, snapshots, lists. */
import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import path from "node:path";
import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { Code, ConnectError, createClient, type Client } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { FileService } from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import { TurnStateSchema } from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import type { MessageRole } from "../../gen/turnwire/chat/v1/types_pb.js";
import { TurnStatus } from "../../gen/turnwire/chat/v1/types_pb.js";
import { TurnOutcome } from "../../gen/turnwire/packet/v1/common_pb.js";
import { ToolCallStatus } from "../../gen/turnwire/packet/v1/tools_pb.js";
import { fold } from "../../src/turn/fold.js";
import {
  chatClient,
  expectGrammar,
  expectRowsEqualFold,
  hasToolResult,
  MODEL,
  plainAnswer,
  readWhole,
  sixtyPackets,
  startWith,
  type ChatClient,
} from "../support/e2e-fixture.js";
import { runSql, usePostgres } from "../support/postgres.js";
import {
  deltaChunk,
  finishChunks,
  gate,
  never,
  startScriptedUpstream,
  textChunks,
  toolCallScript,
  type RecordedRequest,
  type Script,
  type ScriptedUpstream,
} from "../support/scripted-upstream.js";
import { makeDataDir, removeDataDir, type TurnwireProcess } from "../support/turnwire-process.js";

const postgres = usePostgres();
const OTHER_MODEL = "other-model";
const models = [{ modelId: MODEL }];
const KIB = 1024;
const MIB = 1024 * KIB;
/** What one reply may be at most, bytes. */
const REPLY_BYTES = 4 * MIB;
/** A page that is longer than a packet may carry, and not longer than open_url shows a model. */
const LONG_PAGE = Array.from({ length: 800 }, (_, i) => `Line ${i}: ${"€".repeat(36)}`).join("\n");

let upstream: ScriptedUpstream;
let web: Server;
let pageUrl: string;
let server: TurnwireProcess;
let client: ChatClient;
let files: Client<typeof FileService>;
const dataDir = makeDataDir();

beforeAll(async () => {
  upstream = await startScriptedUpstream();
  upstream.setModels([MODEL, OTHER_MODEL, ...Array.from({ length: 23 }, (_, i) => `spare-${i}`)]);
  web = createServer((_, response) => {
    response.setHeader("content-type", "text/plain; charset=utf-8");
    response.end(LONG_PAGE);
  });
  await new Promise<void>((resolve) => web.listen(0, "127.0.0.1", resolve));
  const host = `127.0.0.1:${(web.address() as AddressInfo).port}`;
  pageUrl = `http://${host}/long.txt`;
  const configFile = path.join(dataDir, "config.yaml");
  writeFileSync(configFile, `tools:\n  openUrl:\n    allowHosts: ["${host}"]\n`);
  server = await startWith(upstream, {
    dataDir,
    databaseUrl: postgres.url,
    env: { TURNWIRE_CONFIG: configFile },
  });
  client = chatClient(server);
  files = createClient(FileService, createConnectTransport({ baseUrl: server.httpUrl, httpVersion: "2" }));
});
beforeEach(() => upstream.replyWith(() => plainAnswer("an answer")));
afterAll(async () => {
  await server?.stop();
  await upstream?.close();
  web?.closeAllConnections();
  await new Promise((resolve) => web.close(resolve));
  removeDataDir(dataDir);
});

/** One turn to its end. */
async function say(text: string, sessionId = "", more: object = {}) {
  const reply = await client.sendMessageAndWait(
    { text, sessionId, models: sessionId ? [] : models, ...more },
    { timeoutMs: 60_000 },
  );
  return { ...reply, state: reply.state };
}

/** What the last model call was given, as the provider saw it. */
function asked(): Record<string, unknown>[] {
  return [...upstream.requests.at(-1)!.json!.messages!];
}

describe("sessions", () => {
  test("the same request makes one session, however often and however many at once", async () => {
    const request = { requestId: "make-1", session: { title: "Walks", tags: ["a", "b"] } };
    const made = await Promise.all(Array.from({ length: 20 }, () => client.createSession(request)));
    const ids = new Set(made.map((reply) => reply.session!.sessionId));
    expect(ids.size).toBe(1);
    expect(made[0]!.session).toMatchObject({ title: "Walks", tags: ["a", "b"], archived: false });
    const others = await Promise.all([client.createSession({}), client.createSession({})]);
    expect(new Set([...ids, ...others.map((reply) => reply.session!.sessionId)]).size).toBe(3);
  });

  test("are listed last changed first, by page, by title and by what runs", async () => {
    const tag = "kestrel";
    const ids: string[] = [];
    for (let i = 0; i < 5; i++) {
      const { session } = await client.createSession({
        session: { title: `${tag} number ${i}`, settings: { modelIds: [MODEL] } },
      });
      ids.push(session!.sessionId);
    }
    await say("now this one is the newest", ids[1]);
    const expected = [ids[1], ids[4], ids[3], ids[2], ids[0]];
    const seen: string[] = [];
    let pageToken = "";
    do {
      const page = await client.listSessions({ pageSize: 2, pageToken, query: tag });
      expect(page.sessions.length).toBeLessThanOrEqual(2);
      seen.push(...page.sessions.map((session) => session.sessionId));
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
    expect(seen).toEqual(expected);
    const found = await client.listSessions({ query: `3 ${tag.toUpperCase()}` });
    expect(found.sessions.map((session) => session.sessionId)).toEqual([ids[3]]);
    expect((await client.listSessions({ query: `${tag} nothing like it` })).sessions).toEqual([]);

    upstream.replyWith(() => [...textChunks("running"), gate("list"), ...finishChunks("stop")]);
    const { receipt } = await client.startTurn({ sessionId: ids[2], text: "run" });
    await upstream.reached("list");
    const active = await client.listSessions({ query: tag, onlyActive: true });
    expect(active.sessions.map((session) => session.sessionId)).toEqual([ids[2]]);
    const { session } = await client.getSession({ sessionId: ids[2] });
    const [running] = session!.activeTurns;
    expect(running).toMatchObject({ turnId: receipt!.turnId, status: TurnStatus.RUNNING });
    expect(running!.headSeq).toBeGreaterThan(0);
    upstream.open("list");
    await readWhole(client, receipt!.turnId);
    expect((await client.getSession({ sessionId: ids[2] })).session!.activeTurns).toEqual([]);
    expect((await client.listSessions({ query: tag, onlyActive: true })).sessions).toEqual([]);
  });

  test("take their title from the first message, in one line", async () => {
    const { sessionId } = await say(`  First line\u0000 with\ta\u0007 tab\nsecond line`);
    const { session } = await client.getSession({ sessionId });
    expect(session!.title).toBe("First line with a tab");
    const long = await say("word ".repeat(60));
    const title = (await client.getSession({ sessionId: long.sessionId })).session!.title;
    expect(title).toMatch(/^(word ){5,}word…$/);
  });

  test("hold their messages: by page, above one, below one", async () => {
    const first = await say("one");
    const { sessionId } = first;
    await say("two", sessionId);
    await say("three", sessionId);
    const all = (await client.listMessages({ sessionId })).messages;
    expect(all.map((message) => message.role)).toEqual([1, 2, 1, 2, 1, 2].map((role) => role as MessageRole));
    expect(all.map((message) => message.input?.text ?? message.answer!.text)).toEqual([
      "one",
      "an answer",
      "two",
      "an answer",
      "three",
      "an answer",
    ]);
    const paged: string[] = [];
    let pageToken = "";
    do {
      const page = await client.listMessages({ sessionId, pageSize: 4, pageToken });
      paged.push(...page.messages.map((message) => message.messageId));
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
    const ids = all.map((message) => message.messageId);
    expect(paged).toEqual(ids);
    const above = await client.listMessages({ sessionId, ancestorsOf: ids[3] });
    expect(above.messages.map((message) => message.messageId)).toEqual(ids.slice(0, 4));
    const below = await client.listMessages({ sessionId, childrenOf: ids[1] });
    expect(below.messages.map((message) => message.messageId)).toEqual([ids[2]]);
    const { mainline, hasMore, session } = await client.getSession({ sessionId });
    expect(mainline.map((message) => message.messageId)).toEqual(ids);
    expect(hasMore).toBe(false);
    expect(session!.currentMessageId).toBe(ids[5]);
    expect(all[2]!.parentMessageId).toBe(ids[1]);
    expect(all[1]!.childMessageIds).toEqual([ids[2]]);
  });

  test("are deleted with all that is in them", async () => {
    upstream.replyWith(sixtyPackets);
    const { sessionId, turnId } = await say("delete me");
    await client.deleteSession({ sessionId });
    await expectGone(sessionId, turnId);
    await expectCode(client.deleteSession({ sessionId }), Code.NotFound);
  });

  test("are deleted while their turn runs: readers are told, the model call ends, nothing is left", async () => {
    upstream.replyWith(() => [...textChunks("deleted in the middle of this"), gate("delete"), never]);
    const count = upstream.requests.length + 1;
    const { receipt, started } = await client.startTurn({ text: "long one", models });
    const { turnId } = receipt!;
    const { sessionId } = started!;
    const reading = readWhole(client, turnId).then(
      () => "ended",
      (error: unknown) => ConnectError.from(error).code,
    );
    await upstream.reached("delete");
    const request = await upstream.waitForRequest(count);
    const deletedAt = performance.now();
    await client.deleteSession({ sessionId });
    expect((await request.closed) - deletedAt).toBeLessThan(15_000);
    expect(request.closedByClient).toBe(true);
    expect(await reading).toBe(Code.NotFound);
    expect(performance.now() - deletedAt).toBeLessThan(15_000);
    await expectGone(sessionId, turnId);
    upstream.replyWith(() => plainAnswer("still here"));
    expect((await say("and on")).text).toBe("still here");
  });
});

async function expectGone(sessionId: string, turnId: string): Promise<void> {
  await expectCode(client.getSession({ sessionId }), Code.NotFound);
  await expectCode(client.listMessages({ sessionId }), Code.NotFound);
  await expectCode(client.getTurn({ turnId }), Code.NotFound);
  await expectCode(readWhole(client, turnId), Code.NotFound);
  const tables = "messages lanes archive_parts checkpoints turn_commands tool_calls files".split(" ");
  for (const table of [...tables, "turns"]) {
    const rows = await runSql(
      postgres.url,
      table === "messages"
        ? "select 1 from turnwire.messages where session_id = $1"
        : `select 1 from turnwire.${table} where turn_id = $1`,
      [table === "messages" ? sessionId : turnId],
    );
    expect(rows, table).toEqual([]);
  }
}

async function expectCode(promise: Promise<unknown>, code: Code): Promise<void> {
  const error = await promise.then(
    () => undefined,
    (thrown: unknown) => ConnectError.from(thrown),
  );
  expect(error?.code).toBe(code);
}

describe("what the model is given", () => {
  test("the conversation so far, with its calls and their results", async () => {
    upstream.replyWith(clockThenAnswer);
    const { sessionId } = await say("What time is it?");
    expect(upstream.requests.at(-2)!.json!.messages!.map((message) => message["role"])).toEqual(["user"]);
    const own = asked();
    expect(own.map((message) => message["role"])).toEqual(["user", "assistant", "tool", "tool"]);
    expectPairs(own);

    upstream.replyWith(() => plainAnswer("You are welcome."));
    await say("Thank you.", sessionId);
    const second = asked();
    expect(second.map((message) => message["role"])).toEqual([
      "user",
      "assistant",
      "tool",
      "tool",
      "assistant",
      "user",
    ]);
    expectPairs(second);
    expect(second[0]!["content"]).toBe("What time is it?");
    expect(second.slice(2, 4)).toEqual(own.slice(2, 4));
    expect(second[4]!["content"]).toBe("It is late.");
    expect(second[5]!["content"]).toBe("Thank you.");

    await say("Again, please.", sessionId);
    const third = asked();
    expect(third.slice(0, 6)).toEqual(second);
    expect(third.slice(6).map((message) => message["content"])).toEqual([
      "You are welcome.",
      "Again, please.",
    ]);
  });

  test("only the branch that the message is put on", async () => {
    upstream.replyWith(() => plainAnswer("first answer"));
    const { sessionId } = await say("root");
    const [, firstAnswer] = (await client.listMessages({ sessionId })).messages;
    upstream.replyWith(() => plainAnswer("left answer"));
    await say("left", sessionId);
    upstream.replyWith(() => plainAnswer("right answer"));
    const parent = { position: { case: "parentMessageId", value: firstAnswer!.messageId } };
    await say("right", sessionId, parent);
    expect(asked().map((message) => message["content"])).toEqual(["root", "first answer", "right"]);
    await say("on the right", sessionId);
    expect(asked().map((message) => message["content"])).toEqual([
      "root",
      "first answer",
      "right",
      "right answer",
      "on the right",
    ]);
    const children = await client.listMessages({ sessionId, childrenOf: firstAnswer!.messageId });
    expect(children.messages.map((message) => message.input!.text)).toEqual(["left", "right"]);
  });

  test("a turn without an answer leaves a mark, and none of its broken call", async () => {
    upstream.replyWith(() => [deltaChunk({ content: "half an ans" }), { kind: "destroy" }]);
    const broken = await say("fail");
    expect(broken.state!.stop!.outcome).toBe(TurnOutcome.ERROR);
    upstream.replyWith(() => plainAnswer("ok"));
    await say("again", broken.sessionId);
    expect(asked().map((message) => message["role"])).toEqual(["user", "assistant", "user"]);
    expect(String(asked()[1]!["content"])).toContain("half an ans");
  });

  test("the session's prompt, models and defaults; the send's own before them", async () => {
    const { session } = await client.createSession({
      session: {
        settings: {
          systemPrompt: "You are brief.",
          modelIds: [OTHER_MODEL],
          defaults: { allowedTools: { toolIds: [] }, additionalContext: "It is Tuesday.", maxCycles: 2 },
        },
      },
    });
    const sessionId = session!.sessionId;
    await say("hello", sessionId);
    const first = upstream.requests.at(-1)!.json!;
    expect(first.model).toBe(OTHER_MODEL);
    expect(first.tools ?? []).toEqual([]);
    expect(asked()[0]).toMatchObject({ content: "You are brief.\n\nIt is Tuesday." });
    expect(["system", "developer"]).toContain(asked()[0]!["role"]);

    await say("hello", sessionId, {
      models,
      options: { allowedTools: { toolIds: ["clock"] }, additionalContext: "It is Friday." },
    });
    const second = upstream.requests.at(-1)!.json!;
    expect(second.model).toBe(MODEL);
    expect(second.tools!.map((tool) => (tool["function"] as { name: string }).name)).toEqual(["clock"]);
    expect(asked()[0]).toMatchObject({ content: "You are brief.\n\nIt is Friday." });

    // Two model calls at most, as the session says: the second one has no tools to ask for.
    upstream.replyWith((request) =>
      request.json?.tools?.length
        ? toolCallScript({ id: `call_${upstream.requests.length}`, name: "clock", args: {} })
        : plainAnswer("enough"),
    );
    const before = upstream.requests.length;
    const limited = await say("and now", sessionId, { options: { allowedTools: { toolIds: ["clock"] } } });
    expect(limited.text).toBe("enough");
    expect(upstream.requests.length - before).toBe(2);
  });

  test("a new session's settings stay with it", async () => {
    const { sessionId } = await say("hello", "", {
      models: [],
      newSession: { modelIds: [OTHER_MODEL], systemPrompt: "Rhyme." },
    });
    await say("more", sessionId);
    expect(upstream.requests.at(-1)!.json!.model).toBe(OTHER_MODEL);
    expect(asked()[0]).toMatchObject({ content: "Rhyme." });
    const { session } = await client.getSession({ sessionId });
    expect(session!.settings).toMatchObject({ systemPrompt: "Rhyme.", modelIds: [OTHER_MODEL] });
  });
});

/** Each call of an assistant message is answered by the tool messages right behind it, each once. */
function expectPairs(messages: readonly Record<string, unknown>[]): void {
  for (const [index, message] of messages.entries()) {
    const calls = (message["tool_calls"] ?? []) as { id: string }[];
    const answers = messages.slice(index + 1, index + 1 + calls.length);
    expect(answers.map((answer) => answer["tool_call_id"])).toEqual(calls.map((call) => call.id));
  }
  const called = messages.flatMap((message) => (message["tool_calls"] ?? []) as unknown[]).length;
  expect(messages.filter((message) => message["role"] === "tool").length).toBe(called);
}

function clockThenAnswer(request: RecordedRequest): Script {
  return hasToolResult(request)
    ? plainAnswer("It is late.")
    : toolCallScript(
        { id: "call_a", name: "clock", args: { timezone: "Europe/Paris" } },
        { id: "call_b", name: "clock", args: { timezone: "Asia/Tokyo" } },
      );
}

describe("long texts", () => {
  test("a message beyond 64 KiB: the packet has its beginning, the file and the model have it whole", async () => {
    const text = `begin ${"ünï 🕰 ".repeat(20_000)} end`;
    const { turnId, sessionId } = await say(text);
    const packets = await readWhole(client, turnId);
    const { input } = packets[0]!.payload.value as {
      input: { text: string; truncated: boolean; textFileId: string };
    };
    expect(input.truncated).toBe(true);
    expect(Buffer.byteLength(input.text)).toBeLessThanOrEqual(64 * KIB);
    expect(Buffer.byteLength(input.text)).toBeGreaterThan(64 * KIB - 8);
    expect(text.startsWith(input.text)).toBe(true);
    await expectFile(input.textFileId, text, turnId);
    expect(asked().at(-1)!["content"]).toBe(text);
    const [message] = (await client.listMessages({ sessionId })).messages;
    expect(message!.input!.text).toBe(text);
  });

  test("a message of 64 KiB to the byte stays in its packet", async () => {
    const { turnId } = await say("x".repeat(64 * KIB));
    const { input } = (await readWhole(client, turnId))[0]!.payload.value as {
      input: { text: string; truncated: boolean };
    };
    expect(input.text.length).toBe(64 * KIB);
    expect(input.truncated).toBe(false);
  });

  test("a tool result beyond 64 KiB: the packet has its beginning, the file and the model have it whole", async () => {
    upstream.replyWith((request) =>
      hasToolResult(request)
        ? plainAnswer("long page")
        : toolCallScript({ id: "call_1", name: "open_url", args: { urls: [pageUrl] } }),
    );
    const { turnId, sessionId } = await say("read it");
    const read = String(asked().findLast(({ role }) => role === "tool")!["content"]);
    expect(Buffer.byteLength(read)).toBeGreaterThan(64 * KIB);
    expect(read).toContain("Line 0: €€");
    const packets = await readWhole(client, turnId);
    expectGrammar(packets);
    const result = packets.find((packet) => packet.payload.case === "toolCallResult")!.payload.value as {
      status: ToolCallStatus;
      modelText: string;
      truncated: boolean;
      resultFileId: string;
    };
    expect(result).toMatchObject({ status: ToolCallStatus.OK, truncated: true });
    expect(read.startsWith(result.modelText)).toBe(true);
    expect(Buffer.byteLength(result.modelText)).toBeLessThanOrEqual(64 * KIB);
    await expectFile(result.resultFileId, read, turnId);
    await expectRowsEqualFold(postgres.url, turnId, packets);
    // Later turns carry a part of it, and the pair stays whole.
    upstream.replyWith(() => plainAnswer("ok"));
    await say("and?", sessionId);
    expectPairs(asked());
  });

  async function expectFile(fileId: string, text: string, turnId: string): Promise<void> {
    const bytes = Buffer.from(text);
    const { file } = await files.getFile({ fileId });
    expect(file).toMatchObject({
      sizeBytes: String(bytes.length),
      sha256: createHash("sha256").update(bytes).digest("hex"),
      turnId,
    });
    expect((await download(fileId, 0)).equals(bytes)).toBe(true);
    const middle = Math.floor(bytes.length / 2) + 1;
    expect((await download(fileId, middle)).equals(bytes.subarray(middle))).toBe(true);
    expect((await download(fileId, bytes.length)).length).toBe(0);
    await expectCode(download(fileId, bytes.length + 1), Code.InvalidArgument);
  }

  async function download(fileId: string, offset: number): Promise<Buffer> {
    const parts: Uint8Array[] = [];
    for await (const { data } of files.downloadFile({ fileId, offset: String(offset) })) {
      expect(data.length).toBeLessThanOrEqual(256 * KIB);
      parts.push(data);
    }
    return Buffer.concat(parts);
  }
});

describe("the state of a turn", () => {
  test("as of every seq, ended: the fold of its packets up to there", async () => {
    upstream.replyWith(sixtyPackets);
    const { turnId } = await say("What time is it in Paris?");
    const packets = await readWhole(client, turnId);
    for (const { seq } of packets) {
      const { state } = await client.getTurn({ turnId, atSeq: seq });
      const wanted = fold(packets.slice(0, seq));
      expect(
        Buffer.from(toBinary(TurnStateSchema, state!)).equals(toBinary(TurnStateSchema, wanted)),
        `seq ${seq}`,
      ).toBe(true);
    }
  });

  test("while it runs: what its packets up to now say", async () => {
    upstream.replyWith(() => [
      ...textChunks("one two three"),
      gate("state"),
      ...textChunks(" four"),
      ...finishChunks("stop"),
    ]);
    const { receipt } = await client.startTurn({ text: "slowly", models });
    const { turnId } = receipt!;
    await upstream.reached("state");
    await expect
      .poll(async () => (await client.getTurn({ turnId })).state!.lanes[0]?.text)
      .toBe("one two three");
    const { turn, state } = await client.getTurn({ turnId });
    expect(turn).toMatchObject({ status: TurnStatus.RUNNING, headSeq: state!.seq });
    const early = await client.getTurn({ turnId, atSeq: 1 });
    expect(early.state!.seq).toBe(1);
    upstream.open("state");
    const packets = await readWhole(client, turnId);
    const ended = await client.getTurn({ turnId });
    expect(ended.turn).toMatchObject({
      status: TurnStatus.ENDED,
      outcome: TurnOutcome.COMPLETED,
      headSeq: packets.length,
    });
    expect(ended.state!.lanes[0]!.text).toBe("one two three four");
  });

  test("a large one comes in parts, and replies stay below their limits", async () => {
    upstream.replyWith(() => longAnswer(2.5 * MIB));
    const reply = await say("at length");
    expect(reply.stateOmitted).toBe(true);
    expect(reply.textTruncated).toBe(true);
    expect(Buffer.byteLength(reply.text)).toBeLessThanOrEqual(MIB);
    expect(Buffer.byteLength(reply.text)).toBeGreaterThan(MIB - 8);
    const { turnId, sessionId } = reply;
    const packets = await readWhole(client, turnId);
    expectGrammar(packets);
    const state = await expectRowsEqualFold(postgres.url, turnId, packets);
    expect(Buffer.byteLength(state.lanes[0]!.text)).toBeGreaterThan(2.5 * MIB - 64 * KIB);

    const middle = Math.floor(packets.length * 0.8);
    for (const atSeq of [0, middle]) {
      const wanted = fold(atSeq ? packets.slice(0, atSeq) : packets);
      const parts: Uint8Array[] = [];
      let partToken = "";
      do {
        const page = await client.getTurn({ turnId, atSeq, partToken });
        expect(page.state).toBeUndefined();
        expect(page.part!.data.length).toBeLessThanOrEqual(MIB);
        expect(page.part!.seq).toBe(wanted.seq);
        parts.push(page.part!.data);
        partToken = page.nextPartToken;
        expect(page.part!.last).toBe(partToken === "");
      } while (partToken !== "");
      expect(parts.length).toBeGreaterThan(1);
      const joined = fromBinary(TurnStateSchema, Buffer.concat(parts));
      expect(joined.lanes[0]!.text === wanted.lanes[0]!.text).toBe(true);
      expect(Buffer.from(toBinary(TurnStateSchema, joined)).equals(toBinary(TurnStateSchema, wanted))).toBe(
        true,
      );
    }

    upstream.replyWith(() => longAnswer(1.5 * MIB));
    const second = await say("again", sessionId);
    expect(second.textTruncated).toBe(true);
    expect(second.stateOmitted).toBe(second.state === undefined);
    upstream.replyWith(() => plainAnswer("short"));
    await say("and short", sessionId);
    const list = await client.listMessages({ sessionId });
    const session = await client.getSession({ sessionId });
    for (const messages of [list.messages, session.mainline]) {
      const bytes = messages.reduce(
        (sum, message) => sum + (message.answer ? JSON.stringify(message.answer.text).length : 0),
        0,
      );
      expect(bytes).toBeLessThan(REPLY_BYTES);
      expect(messages.length).toBe(6);
      expect(messages.some((message) => message.answerTruncated)).toBe(true);
      expect(messages.at(-1)).toMatchObject({ answerTruncated: false });
      expect(messages.at(-1)!.answer!.text).toBe("short");
    }
  }, 60_000);

  function longAnswer(bytes: number): Script {
    const piece = `${"lorem ipsum — dolor sit amet ".repeat(564)}\n`;
    const pieces = Math.ceil(bytes / Buffer.byteLength(piece));
    return [...Array.from({ length: pieces }, () => deltaChunk({ content: piece })), ...finishChunks("stop")];
  }
});

describe("lists", () => {
  test("turns: newest first, by page, by session, by status, with what they cost", async () => {
    const { sessionId } = await say("one");
    await say("two", sessionId);
    upstream.replyWith(() => [...textChunks("running"), gate("turns"), ...finishChunks("stop")]);
    const { receipt } = await client.startTurn({ sessionId, text: "three", models });
    await upstream.reached("turns");
    const all = (await client.listTurns({ sessionId })).turns;
    expect(all.map((turn) => turn.status)).toEqual([TurnStatus.RUNNING, TurnStatus.ENDED, TurnStatus.ENDED]);
    expect(all[0]!.turnId).toBe(receipt!.turnId);
    expect(all[1]).toMatchObject({
      outcome: TurnOutcome.COMPLETED,
      usage: { inputTokens: 10, outputTokens: 20 },
      lanes: [{ modelId: MODEL, outcome: TurnOutcome.COMPLETED }],
    });
    const running = await client.listTurns({ sessionId, statuses: [TurnStatus.RUNNING] });
    expect(running.turns.map((turn) => turn.turnId)).toEqual([receipt!.turnId]);
    const ended = await client.listTurns({ sessionId, statuses: [TurnStatus.ENDED], pageSize: 1 });
    const rest = await client.listTurns({
      sessionId,
      statuses: [TurnStatus.ENDED],
      pageSize: 1,
      pageToken: ended.nextPageToken,
    });
    expect([...ended.turns, ...rest.turns].map((turn) => turn.turnId)).toEqual(
      all.slice(1).map((turn) => turn.turnId),
    );
    expect(rest.nextPageToken).toBe("");
    for (const status of [TurnStatus.QUEUED, TurnStatus.WAITING])
      expect((await client.listTurns({ sessionId, statuses: [status] })).turns).toEqual([]);
    const both = await client.listTurns({ sessionId, statuses: [TurnStatus.RUNNING, TurnStatus.ENDED] });
    expect(both.turns.map((turn) => turn.turnId)).toEqual(all.map((turn) => turn.turnId));
    upstream.open("turns");
    await readWhole(client, receipt!.turnId);
    const everything = await client.listTurns({ pageSize: 1000 });
    expect(everything.turns.length).toBeGreaterThan(3);
    expect(everything.turns[0]!.turnId).toBe(receipt!.turnId);
  });

  test("models and tools, by page", async () => {
    const whole = (await client.listModels({})).models.map((model) => model.modelId);
    expect(whole).toEqual(expect.arrayContaining([MODEL, OTHER_MODEL, "spare-22", "demo"]));
    const seen: string[] = [];
    let pageToken = "";
    do {
      const page = await client.listModels({ pageSize: 10, pageToken });
      expect(page.models.length).toBeLessThanOrEqual(10);
      seen.push(...page.models.map((model) => model.modelId));
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
    expect(seen).toEqual(whole);
    const first = await client.listTools({ pageSize: 1 });
    const second = await client.listTools({ pageSize: 1, pageToken: first.nextPageToken });
    const third = await client.listTools({ pageSize: 1, pageToken: second.nextPageToken });
    const names = [...first.tools, ...second.tools, ...third.tools].map((tool) => tool.name);
    expect(names.sort()).toEqual(["clock", "open_url", "search"]);
    expect(third.nextPageToken).toBe("");
  });
});

test("nothing failed inside the server", () => {
  const bad = server
    .output()
    .split("\n")
    .filter((line) => /"level":"?(error|fatal|50|60)"?/.test(line));
  expect(bad).toEqual([]);
});

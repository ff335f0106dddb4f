/** Regenerate, edit and from_root grow a tree; selecting walks it; what a model is told is the branch it answers in. */
import { create, fromBinary, type MessageInitShape } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import {
  GetSessionRequestSchema,
  SelectMessageRequestSchema,
  type ChatService,
  type GetSessionResponse,
  type SelectMessageResponse,
} from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import { SessionSettingsSchema, type Message } from "../../gen/turnwire/chat/v1/types_pb.js";
import { ErrorCode, ReasoningEffort, UserInputSchema } from "../../gen/turnwire/packet/v1/common_pb.js";
import { createChatService } from "../../src/chat/service.js";
import { newId } from "../../src/lib/ids.js";
import type { CallContext, Principal, UnaryImpl } from "../../src/lib/rpc/service-binding.js";
import {
  answer,
  chat,
  never,
  scriptedModels,
  untilStopped,
  type Chat,
  type ScriptedModels,
  type SendFields,
} from "../support/chat-fixture.js";
import { usePostgres } from "../support/postgres.js";
import { ALICE, STRANGERS, useStore } from "../support/store-fixtures.js";

const postgres = usePostgres();
const stores = useStore(postgres);

interface Conversation {
  readonly process: Chat;
  readonly models: ScriptedModels;
  readonly sessionId: string;
  /** Sends, waits for the end, and gives the messages of the turn's lanes. */
  say(fields: SendFields): Promise<{ userId: string; answerIds: string[] }>;
  session(principal?: Principal): Promise<GetSessionResponse>;
  select(messageId: string, principal?: Principal): Promise<SelectMessageResponse>;
  /** What the model was told last, a line a message. */
  told(): string[];
}

async function conversation(): Promise<Conversation> {
  let answers = 0;
  const models = scriptedModels(() => answer(`answer ${++answers}`));
  const process = chat({ store: stores.store, databaseUrl: postgres.url, models });
  const { methods } = createChatService(process.deps, process.turns);
  const call = <T>(name: keyof (typeof ChatService)["method"], request: unknown, principal: Principal) =>
    (methods.get(name) as unknown as UnaryImpl<never, never>)(
      request as never,
      context(principal),
    ) as Promise<T>;
  const { sessionId } = await stores.store.createSession(ALICE, {
    sessionId: newId(),
    requestId: "",
    settings: new Uint8Array(),
    title: "",
    tags: [],
  });
  return {
    process,
    models,
    sessionId,
    async say(fields) {
      const { state } = await process.run({ sessionId, ...fields });
      return {
        userId: state.started!.userMessageId,
        answerIds: state.started!.lanes.map((lane) => lane.assistantMessageId),
      };
    },
    session: (principal = ALICE) =>
      call("getSession", create(GetSessionRequestSchema, { sessionId }), principal),
    select: (messageId, principal = ALICE) =>
      call("selectMessage", create(SelectMessageRequestSchema, { sessionId, messageId }), principal),
    told: () =>
      models.requests
        .at(-1)!
        .input!.messages.map((message) =>
          message.parts.map((part) => (part.part.case === "text" ? part.part.value : part.part.case)).join(),
        ),
  };
}

function context(principal: Principal): CallContext {
  return { principal, signal: never, protocol: "connect" };
}

const ids = (messages: readonly Message[]): string[] => messages.map((message) => message.messageId);
const regenerate = (messageId: string): SendFields => ({
  text: "",
  position: { case: "regenerateMessageId", value: messageId },
});
const edit = (messageId: string, text: string): SendFields => ({
  text,
  position: { case: "editMessageId", value: messageId },
});
const fromRoot = (text: string): SendFields => ({ text, position: { case: "fromRoot", value: true } });

describe("a tree of messages", () => {
  test("regenerate - a sibling answer to the same user message; the model is told what it was told before", async () => {
    const talk = await conversation();
    const first = await talk.say({ text: "one" });
    const second = await talk.say({ text: "two" });
    const told = talk.told();
    const again = await talk.say(regenerate(second.answerIds[0]!));
    expect(again.userId).toBe(second.userId);
    expect(talk.told()).toEqual(told);

    const { session, mainline } = await talk.session();
    expect(session!.currentMessageId).toBe(again.answerIds[0]);
    expect(ids(mainline)).toEqual([first.userId, first.answerIds[0], second.userId, again.answerIds[0]]);
    expect(mainline[2]!.childMessageIds).toEqual([second.answerIds[0], again.answerIds[0]]);
    expect(mainline[3]!.siblingMessageIds).toEqual([second.answerIds[0], again.answerIds[0]]);
    expect(mainline[3]!.answer!.text).toBe("answer 3");
  });

  test("regenerate - by several models, of an answer further up", async () => {
    const talk = await conversation();
    const first = await talk.say({ text: "one" });
    await talk.say({ text: "two" });
    const again = await talk.say({
      ...regenerate(first.answerIds[0]!),
      models: [{ modelId: "m-two" }, { modelId: "m-one" }] as never,
    });
    expect(talk.told()).toEqual(["one"]);
    const { mainline } = await talk.session();
    expect(ids(mainline)).toEqual([first.userId, again.answerIds[0]]);
    expect(mainline[1]!.siblingMessageIds).toEqual([...first.answerIds, ...again.answerIds]);
  });

  test("edit - a sibling of the user message, below the same parent", async () => {
    const talk = await conversation();
    const first = await talk.say({ text: "one" });
    const second = await talk.say({ text: "two" });
    const edited = await talk.say(edit(second.userId, "two, better"));
    expect(edited.userId).not.toBe(second.userId);
    expect(talk.told()).toEqual(["one", "answer 1", "two, better"]);
    const { mainline } = await talk.session();
    expect(ids(mainline)).toEqual([first.userId, first.answerIds[0], edited.userId, edited.answerIds[0]]);
    expect(mainline[2]!.siblingMessageIds).toEqual([second.userId, edited.userId]);
    expect(mainline[2]!.input!.text).toBe("two, better");
  });

  test("edit of the first message, and from_root - another beginning, and the model is told nothing else", async () => {
    const talk = await conversation();
    const first = await talk.say({ text: "one" });
    const edited = await talk.say(edit(first.userId, "uno"));
    expect(talk.told()).toEqual(["uno"]);
    const root = await talk.say(fromRoot("something else"));
    expect(talk.told()).toEqual(["something else"]);
    const { mainline } = await talk.session();
    expect(ids(mainline)).toEqual([root.userId, root.answerIds[0]]);
    expect(mainline[0]!.siblingMessageIds).toEqual([first.userId, edited.userId, root.userId]);
  });

  test("a long message is answered anew as a whole", async () => {
    const talk = await conversation();
    const text = "long ".repeat(20_000);
    const first = await talk.say({ text });
    await talk.say(regenerate(first.answerIds[0]!));
    expect(talk.told()).toEqual([text]);
  });
});

describe("the selected branch", () => {
  test("a lane that is picked is the answer that the next message continues", async () => {
    const talk = await conversation();
    const asked = await talk.say({
      text: "one",
      models: [{ modelId: "m-one" }, { modelId: "m-two" }] as never,
    });
    const selected = await talk.select(asked.answerIds[1]!);
    expect(selected.session!.currentMessageId).toBe(asked.answerIds[1]);
    const next = await talk.say({ text: "two" });
    const { mainline } = await talk.session();
    expect(ids(mainline)).toEqual([asked.userId, asked.answerIds[1], next.userId, next.answerIds[0]]);
    expect(talk.told()[1]).toBe(mainline[1]!.answer!.text);
  });

  test("any message leads down to what was said last below it, and of lanes to the first", async () => {
    const talk = await conversation();
    const first = await talk.say({ text: "one" });
    const old = await talk.say({
      text: "two",
      models: [{ modelId: "m-one" }, { modelId: "m-two" }] as never,
    });
    const root = await talk.say(fromRoot("else"));
    expect((await talk.select(first.userId)).session!.currentMessageId).toBe(old.answerIds[0]);
    // Already on the branch: nothing changes, also when something newer hangs below.
    await talk.select(root.userId);
    const again = await talk.say(regenerate(root.answerIds[0]!));
    const back = (await talk.select(root.answerIds[0]!)).session!;
    expect((await talk.select(root.userId)).session).toEqual(back);
    expect(back.currentMessageId).toBe(root.answerIds[0]);
    expect((await talk.select(again.answerIds[0]!)).session!.currentMessageId).toBe(again.answerIds[0]);
  });

  test("what is not there, of another session or of another user: not found, nothing changed", async () => {
    const talk = await conversation();
    const other = await conversation();
    const mine = await talk.say({ text: "one" });
    const theirs = await other.say({ text: "one" });
    const before = (await talk.session()).session;
    for (const messageId of [newId(), theirs.userId])
      await expect(talk.select(messageId)).rejects.toMatchObject({
        code: ErrorCode.NOT_FOUND,
        details: { field: "message_id" },
      });
    for (const stranger of STRANGERS)
      await expect(talk.select(mine.userId, stranger)).rejects.toMatchObject({
        code: ErrorCode.NOT_FOUND,
        details: { field: "session_id" },
      });
    expect((await talk.session()).session).toEqual(before);
  });
});

describe("a send to a place that it cannot go to", () => {
  test("is refused by the field that is wrong, and nothing is stored", async () => {
    const talk = await conversation();
    const other = await conversation();
    const mine = await talk.say({ text: "one" });
    const theirs = await other.say({ text: "one" });
    const cases: [SendFields, ErrorCode, string][] = [
      [regenerate(newId()), ErrorCode.NOT_FOUND, "regenerate_message_id"],
      [regenerate(theirs.answerIds[0]!), ErrorCode.NOT_FOUND, "regenerate_message_id"],
      [edit(theirs.userId, "x"), ErrorCode.NOT_FOUND, "edit_message_id"],
      [regenerate(mine.userId), ErrorCode.INVALID_ARGUMENT, "regenerate_message_id"],
      [edit(mine.answerIds[0]!, "x"), ErrorCode.INVALID_ARGUMENT, "edit_message_id"],
      [edit(mine.userId, " "), ErrorCode.INVALID_ARGUMENT, "text"],
      [{ ...regenerate(mine.answerIds[0]!), text: "x" }, ErrorCode.INVALID_ARGUMENT, "text"],
      [
        { text: "", position: { case: "continueMessageId", value: mine.answerIds[0]! } },
        ErrorCode.NOT_BUILT,
        "continue_message_id",
      ],
      [
        { text: "x", position: { case: "parentMessageId", value: mine.userId } },
        ErrorCode.NOT_FOUND,
        "parent_message_id",
      ],
      [{ ...regenerate(mine.answerIds[0]!), sessionId: "" }, ErrorCode.NOT_FOUND, "regenerate_message_id"],
    ];
    const before = await talk.session();
    for (const [fields, code, field] of cases)
      await expect(talk.say(fields), field).rejects.toMatchObject({ code, details: { field } });
    expect(await talk.session()).toEqual(before);
  });

  test("while a turn runs - busy; of a deleted session - not found", async () => {
    const talk = await conversation();
    const first = await talk.say({ text: "one" });
    talk.models.script = async function* (_request, signal) {
      yield* answer("").slice(0, 0);
      await untilStopped(signal);
    };
    const running = await talk.process.start({ sessionId: talk.sessionId, text: "two" });
    for (const fields of [regenerate(first.answerIds[0]!), edit(first.userId, "uno"), fromRoot("else")])
      await expect(talk.say(fields)).rejects.toMatchObject({
        code: ErrorCode.SESSION_BUSY,
        details: { turn_id: running.row.turnId },
      });
    // Looking at another branch meanwhile is allowed.
    expect((await talk.select(first.userId)).session!.currentMessageId).not.toBe("");
    await stores.store.deleteSession(ALICE, talk.sessionId);
    running.fenced();
    await running.ended;
    await expect(talk.say(regenerate(first.answerIds[0]!))).rejects.toMatchObject({
      code: ErrorCode.NOT_FOUND,
    });
  });

  test("two at once into one session: one runs, the other is told by which turn it is busy", async () => {
    const talk = await conversation();
    const first = await talk.say({ text: "one" });
    for (const fields of [regenerate(first.answerIds[0]!), edit(first.userId, "uno"), fromRoot("else")]) {
      const accepts = await Promise.allSettled(
        [1, 2].map(() => talk.process.accept({ sessionId: talk.sessionId, ...fields })),
      );
      const accepted = accepts.flatMap((accept) => (accept.status === "fulfilled" ? [accept.value] : []));
      const refused = accepts.flatMap((accept) =>
        accept.status === "rejected" ? [accept.reason as unknown] : [],
      );
      expect([accepted.length, refused.length]).toEqual([1, 1]);
      expect(refused[0]).toMatchObject({
        code: ErrorCode.SESSION_BUSY,
        details: { turn_id: accepted[0]!.turn.turnId },
      });
      await talk.process.turns.recover(accepted[0]!.turn, { kind: "interrupted" });
    }
  });

  test("a repeat of a regenerate or an edit is the same turn, once", async () => {
    const talk = await conversation();
    const first = await talk.say({ text: "one" });
    for (const fields of [regenerate(first.answerIds[0]!), edit(first.userId, "uno")]) {
      const request = { sessionId: talk.sessionId, requestId: newId(), ...fields };
      const done = await talk.process.run(request);
      const repeated = await talk.process.accept(request);
      expect(repeated).toMatchObject({ kind: "replayed", turn: { turnId: done.turnId } });
    }
    const { mainline } = await talk.session();
    expect(mainline[0]!.siblingMessageIds).toHaveLength(2);
  });
});

test("sampling and reasoning effort are the send's, else the session's", async () => {
  const models = scriptedModels();
  const process = chat({ store: stores.store, databaseUrl: postgres.url, models });
  const settings: MessageInitShape<typeof SessionSettingsSchema> = {
    modelIds: ["m-two"],
    sampling: { temperature: 0.25 },
    reasoningEffort: ReasoningEffort.HIGH,
  };
  const { state } = await process.run({ newSession: create(SessionSettingsSchema, settings) });
  expect(models.requests[0]!).toMatchObject({
    input: { sampling: { temperature: 0.25 }, reasoningEffort: ReasoningEffort.HIGH },
  });
  await process.run({
    sessionId: state.started!.sessionId,
    models: [{ modelId: "m-one", reasoningEffort: ReasoningEffort.LOW }] as never,
  });
  expect(models.requests[1]!).toMatchObject({
    input: { sampling: { temperature: 0.25 }, reasoningEffort: ReasoningEffort.LOW },
  });
  const [message] = await stores.store.branch(ALICE, state.started!.userMessageId, 1);
  expect(fromBinary(UserInputSchema, message!.input!).text).toBe("what is up?");
});

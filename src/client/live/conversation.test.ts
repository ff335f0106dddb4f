import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { createClient, createRouterTransport, type ServiceImpl } from "@connectrpc/connect";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import {
  ChatService,
  GetSessionResponseSchema,
  WatchResponseSchema,
} from "../../../gen/turnwire/chat/v1/chat_service_pb.js";
import { TurnStateSchema } from "../../../gen/turnwire/chat/v1/turn_state_pb.js";
import { MessageRole, MessageSchema } from "../../../gen/turnwire/chat/v1/types_pb.js";
import type { PacketSchema } from "../../../gen/turnwire/packet/v1/packet_pb.js";
import { deferred } from "../../lib/signals.js";
import { Conversation } from "./conversation.js";
import { HubLink } from "./hub-link.js";
import type { TabMessage } from "./hub-messages.js";

/** A conversation on a service that the test plays. */
function open(service: Partial<ServiceImpl<typeof ChatService>>) {
  const api = createClient(
    ChatService,
    createRouterTransport((router) => router.service(ChatService, service)),
  );
  const posts: TabMessage[] = [];
  const link = new HubLink({ tabId: "tab", lock: "", token: "", post: (message) => posts.push(message) });
  const conversation = new Conversation("s", { api, link, onTurnEnded: () => undefined });
  link.watchWith(() => ({ sessionIds: ["s"], turns: conversation.positions }));
  onTestFinished(() => conversation.close());
  const bring = (turnId: string, ...packets: MessageInitShape<typeof PacketSchema>[]): void =>
    link.receive({
      kind: "message",
      message: create(WatchResponseSchema, { turnId, packets, logId: "log" }),
    });
  const resyncs = () =>
    posts.flatMap((post) => (post.kind === "watch" && post.resync ? [post.turns[0]?.afterSeq] : []));
  const ready = (): Promise<void> =>
    vi.waitFor(() => expect(conversation.view.get().session?.sessionId).toBe("s"));
  return { conversation, bring, resyncs, ready };
}

const question = (id: string, parent = "") =>
  create(MessageSchema, { messageId: id, parentMessageId: parent, turnId: id, role: MessageRole.USER });
const answer = (id: string, parent: string, siblings: readonly string[] = []) =>
  create(MessageSchema, {
    messageId: id,
    parentMessageId: parent,
    turnId: `turn-${id}`,
    role: MessageRole.ASSISTANT,
    siblingMessageIds: [...siblings],
  });

describe("conversation", () => {
  it("takes the turn's state for a packet that must be understood and is not, and goes on from there", async () => {
    const asked: string[] = [];
    const state = deferred<void>();
    const { conversation, bring, resyncs, ready } = open({
      getSession: () => ({
        session: { sessionId: "s", currentMessageId: "u", activeTurns: [{ turnId: "t" }] },
        mainline: [question("u")],
      }),
      getTurn: async ({ turnId }) => {
        asked.push(turnId);
        await state.promise;
        return { state: create(TurnStateSchema, { turnId, seq: 7 }) };
      },
    });
    await ready();
    const started = { turnId: "t", sessionId: "s", userMessageId: "u", lanes: [] };
    bring(
      "t",
      { seq: 1, payload: { case: "turnStarted", value: started } },
      { seq: 2, mustUnderstand: true },
      { seq: 3, payload: { case: "cycleStarted", value: {} } },
    );
    await vi.waitFor(() => expect(asked).toEqual(["t"]));
    bring("t", { seq: 4, payload: { case: "cycleStarted", value: {} } });
    expect(resyncs()).toEqual([]); // nothing is missing: what comes meanwhile is part of the state
    state.resolve();
    await vi.waitFor(() => expect(resyncs()).toEqual([7]));
    bring("t", { seq: 8, payload: { case: "cycleStarted", value: {} } });
    expect(conversation.positions).toMatchObject([{ turnId: "t", afterSeq: 8 }]);
    expect(asked).toEqual(["t"]);
  });

  it("reads all pages of the answers to each question, a few questions at a time", async () => {
    const turns = Array.from({ length: 9 }, (_, i) => i);
    let busy = 0;
    let most = 0;
    const { conversation, ready } = open({
      getSession: () =>
        create(GetSessionResponseSchema, {
          session: { sessionId: "s", currentMessageId: "a8" },
          mainline: turns.flatMap((i) => [
            question(`q${i}`, i > 0 ? `a${i - 1}` : ""),
            answer(`a${i}`, `q${i}`, [`a${i}`, `b${i}`, `c${i}`]),
          ]),
        }),
      listMessages: async ({ childrenOf, pageToken }) => {
        busy += 1;
        most = Math.max(most, busy);
        await new Promise(setImmediate);
        busy -= 1;
        const [first, next] = pageToken ? ["c", ""] : ["b", "more"];
        return {
          messages: [answer(`${first}${childrenOf.slice(1)}`, childrenOf)],
          nextPageToken: next,
        };
      },
    });
    await ready();
    const versions = () =>
      conversation.view.get().exchanges.map(({ answerVersions }) => answerVersions.length);
    await vi.waitFor(() => expect(versions()).toEqual(turns.map(() => 3)));
    expect(most).toBe(4);
  });
});

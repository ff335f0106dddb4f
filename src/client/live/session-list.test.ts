import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { createClient, createRouterTransport } from "@connectrpc/connect";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import {
  ChatService,
  ListSessionsResponseSchema,
  WatchResponseSchema,
  type ListSessionsResponse,
  type SessionEventSchema,
} from "../../../gen/turnwire/chat/v1/chat_service_pb.js";
import { deferred, type Deferred } from "../../lib/signals.js";
import { HubLink } from "./hub-link.js";
import { SessionList } from "./session-list.js";

function setUp() {
  const reads: Deferred<ListSessionsResponse>[] = [];
  const transport = createRouterTransport((router) =>
    router.service(ChatService, {
      listSessions: () => {
        reads.push(deferred<ListSessionsResponse>());
        return reads.at(-1)!.promise;
      },
    }),
  );
  const link = new HubLink({ tabId: "tab", lock: "", token: "", post: () => undefined });
  const list = new SessionList(createClient(ChatService, transport), link);
  onTestFinished(() => list.close());
  const event = (...events: MessageInitShape<typeof SessionEventSchema>[]): void =>
    link.receive({ kind: "message", message: create(WatchResponseSchema, { events }) });
  const asked = (count: number): Promise<void> => vi.waitFor(() => expect(reads.length).toBe(count));
  const shown = () => list.view.get().items.map(({ title, isRunning }) => (isRunning ? `${title}*` : title));
  return { list, reads, event, asked, shown };
}

const session = (id: string, title: string, seconds: number, turnId?: string) => ({
  sessionId: id,
  title,
  updateTime: { seconds: BigInt(seconds) },
  activeTurns: turnId ? [{ turnId }] : [],
});
const page = (...sessions: ReturnType<typeof session>[]) => create(ListSessionsResponseSchema, { sessions });

describe("session list", () => {
  it("keeps what events told while an older page was on its way", async () => {
    const { list, reads, event, asked, shown } = setUp();
    await asked(1);
    event({ sessionId: "b", event: { case: "updated", value: session("b", "new", 9) } });
    event({ sessionId: "b", event: { case: "turnStarted", value: { turnId: "t" } } });
    event({ sessionId: "c", event: { case: "deleted", value: true } });
    reads[0]!.resolve(page(session("c", "deleted", 6), session("b", "old", 5), session("a", "other", 4)));
    await vi.waitFor(() => expect(shown()).toEqual(["new*", "other"]));
    event({ sessionId: "b", event: { case: "turnEnded", value: { turnId: "t" } } });
    expect(shown()).toEqual(["new", "other"]);
    const again = list.reload();
    await asked(2);
    reads[1]!.resolve(page(session("b", "newest", 10, "t2")));
    await again;
    expect(shown()).toEqual(["newest*"]);
  });

  it("reads once more when a turn begins in a session that it does not know", async () => {
    const { reads, event, asked, shown } = setUp();
    await asked(1);
    event({ sessionId: "n", event: { case: "turnStarted", value: { turnId: "t" } } });
    reads[0]!.resolve(page());
    await asked(2);
    reads[1]!.resolve(page(session("n", "unknown", 1, "t")));
    await vi.waitFor(() => expect(shown()).toEqual(["unknown*"]));
  });
});

/**
 * What the page keeps, without the page: an answer is followed while its connections are cut 200 times - between two
 * messages, in the middle of one, while answers are held back, while nobody answers. Seeded: the same cuts in every run.
 */
import { createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";
import { afterAll, beforeAll, expect, it, onTestFinished, vi } from "vitest";
import { ChatService } from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import { mapErrors } from "../../src/client/error-transport.js";
import { Conversation } from "../../src/client/live/conversation.js";
import { HubLink } from "../../src/client/live/hub-link.js";
import { WatchHub } from "../../src/client/live/watch-hub.js";
import { Watcher } from "../../src/client/live/watcher.js";
import { newRequestId } from "../../src/client/request-id.js";
import { systemClock } from "../../src/lib/clock.js";
import { seeded } from "../support/cut-bodies.js";
import { finishChunks, gate, textChunks } from "../support/scripted-upstream.js";
import { startTcpProxy, type TcpProxy } from "../support/tcp-proxy.js";
import { useServer } from "./page-fixture.js";

const server = useServer();
beforeAll(() => {
  vi.stubGlobal("requestAnimationFrame", (run: () => void) => Number(setTimeout(run, 1)));
  vi.stubGlobal("cancelAnimationFrame", (id: number) => clearTimeout(id));
});
afterAll(() => vi.unstubAllGlobals());
const CUTS = 200;

it("shows the answer once and whole, over 200 cuts", async () => {
  const network = await startTcpProxy(Number(new URL(server.origin).port));
  onTestFinished(() => network.close());
  const { api, link, hub, streams } = connect(`http://127.0.0.1:${network.port}`);
  const pieces = Array.from({ length: CUTS }, (_, i) => `piece ${i}, ünïcödé ✓ 🎈; `);
  server.upstream.reply([
    ...pieces.flatMap((piece, i) => [...textChunks(piece), gate(`cut-${i}`)]),
    ...finishChunks("stop"),
  ]);
  const { started } = await api.startTurn({ requestId: newRequestId(), text: "Go on and on" });
  const conversation = new Conversation(started!.sessionId, { api, link, onTurnEnded: () => undefined });
  onTestFinished(() => conversation.close());
  link.watchWith(() => ({ sessionIds: [conversation.sessionId], turns: conversation.positions }));
  const shown = (): string =>
    conversation.view
      .get()
      .exchanges.flatMap(({ turn }) => turn?.lanes ?? [])
      .flatMap(({ groups }) => groups.map((group) => ("text" in group ? group.text : "")))
      .join("");

  const random = seeded(20261130);
  let before = "";
  conversation.view.subscribe(() => {
    const now = shown();
    if (!now.startsWith(before))
      throw new Error(`what was shown went back: ${before.length} -> ${now.length}`);
    before = now;
  });
  for (const [i, piece] of pieces.entries()) {
    await vi.waitFor(() => expect(shown()).toContain(piece), { timeout: 20_000, interval: 2 });
    disturb(network, random);
    server.upstream.open(`cut-${i}`);
  }
  await vi.waitFor(() => expect(conversation.view.get().runningTurnId).toBe(""), { timeout: 20_000 });
  const { state } = await api.getTurn({ turnId: started!.turnId });
  expect(state!.lanes[0]!.text).toBe(pieces.join(""));
  await vi.waitFor(() => expect(shown()).toBe(pieces.join("")), { timeout: 20_000 });
  expect(conversation.view.get().exchanges.length).toBe(1);

  expect(streams.most).toBe(1);
  link.bye();
  expect(hub.tabs).toBe(0);
  await vi.waitFor(() => expect(streams.open).toBe(0));
}, 120_000);

/** One of the ways in which a network fails. */
function disturb(network: TcpProxy, random: () => number): void {
  const kind = Math.floor(random() * 4);
  if (kind === 0) network.cut();
  else if (kind === 1) network.cutAfter(1 + Math.floor(random() * 200));
  else if (kind === 2) {
    network.holdAnswers();
    setTimeout(() => network.cut(), random() * 10);
  } else {
    network.refuse();
    setTimeout(() => network.allow(), random() * 10);
  }
}

/** A tab and its hub, over fetch as a browser has it; counts the streams. */
function connect(baseUrl: string) {
  const streams = { open: 0, most: 0 };
  const api = createClient(
    ChatService,
    mapErrors(createConnectTransport({ baseUrl, useBinaryFormat: true })),
  );
  const counted: typeof api.watch = async function* (request, options) {
    streams.most = Math.max(streams.most, (streams.open += 1));
    const over = new AbortController();
    over.signal.addEventListener("abort", () => (streams.open -= 1));
    options?.signal?.addEventListener("abort", () => over.abort());
    try {
      yield* api.watch(request, options);
    } finally {
      over.abort();
    }
  };
  const hub = new WatchHub({
    clock: systemClock,
    watch: (_token, options) =>
      new Watcher({
        ...options,
        api: { watch: counted },
        clock: systemClock,
        clientId: "cuts",
        maxBackoffMs: 20,
      }),
  });
  const link: HubLink = new HubLink({
    tabId: "tab",
    lock: "",
    token: "",
    post: (message) => connection.receive(message),
  });
  const connection = hub.connect((message) => queueMicrotask(() => link.receive(message)));
  link.hello();
  return { api, link, hub, streams };
}

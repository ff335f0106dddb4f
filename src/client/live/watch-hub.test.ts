import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { WatchResponseSchema, type WatchResponse } from "../../../gen/turnwire/chat/v1/chat_service_pb.js";
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { ManualClock } from "../../../test/support/manual-clock.js";
import { deferred, type Deferred } from "../../lib/signals.js";
import type { HubMessage, TabMessage } from "./hub-messages.js";
import { WatchHub } from "./watch-hub.js";
import type { Wanted, Watcher, WatcherOptions } from "./watcher.js";

/** A stream that the test plays. */
class Stream {
  opened = 1;
  closed = false;
  constructor(readonly options: Pick<WatcherOptions, "wanted" | "onMessage" | "onStatus">) {}
  get wanted(): Wanted {
    return this.options.wanted();
  }
  bring(message: MessageInitShape<typeof WatchResponseSchema>): void {
    this.options.onMessage(create(WatchResponseSchema, message));
  }
  reopen(): void {
    this.opened += 1;
  }
  wake(): void {}
  close(): void {
    this.closed = true;
  }
}

class Tab {
  readonly heard: HubMessage[] = [];
  readonly #receive: (message: TabMessage) => void;
  constructor(hub: WatchHub, id: string, lock = "") {
    this.#receive = hub.connect((message) => this.heard.push(message)).receive;
    this.say({ kind: "hello", tabId: id, lock, token: "" });
  }
  say(message: TabMessage): void {
    this.#receive(message);
  }
  watch(...sessionIds: string[]): this {
    this.say({ kind: "watch", sessionIds, turns: [], resync: false });
    return this;
  }
  get seqs(): number[] {
    return this.messages.flatMap(({ packets }) => packets.map(({ seq }) => seq));
  }
  get messages(): WatchResponse[] {
    return this.heard.flatMap((each) => (each.kind === "message" ? [each.message] : []));
  }
}

function setUp() {
  const streams: Stream[] = [];
  const locks = new Map<string, Deferred<void>>();
  const clock = new ManualClock();
  const hub = new WatchHub({
    clock,
    watch: (_token, options) => {
      const stream = new Stream(options);
      streams.push(stream);
      return stream as unknown as Watcher;
    },
    lockFree: (lock) => {
      const freed = deferred();
      locks.set(lock, freed);
      return freed.promise;
    },
    quietMs: 1_000,
  });
  return { hub, streams, locks, clock };
}

const started = (sessionId: string) => ({
  seq: 1,
  payload: { case: "turnStarted" as const, value: { sessionId } },
});
const packet = (seq: number) => ({ seq, payload: { case: undefined } });
const end = (seq: number) => ({ seq, payload: { case: "overallStop" as const, value: {} } });

describe("watch hub", () => {
  it("H1 holds one stream, however many tabs there are", () => {
    const { hub, streams } = setUp();
    for (let i = 0; i < 8; i += 1) new Tab(hub, `${i}`).watch("s");
    expect(streams.length).toBe(1);
    expect(streams[0]!.wanted.sessionIds).toEqual(["s"]);
    expect(hub.tabs).toBe(8);
  });

  it("H2 gives packets to the tabs that watch their session, events to all", () => {
    const { hub, streams } = setUp();
    const [a, b] = [new Tab(hub, "a").watch("s1"), new Tab(hub, "b").watch("s2")];
    streams[0]!.bring({ turnId: "t", packets: [started("s1"), packet(2)] });
    streams[0]!.bring({ events: [{ sessionId: "s1", event: { case: "deleted", value: true } }] });
    expect(a.seqs).toEqual([1, 2]);
    expect(b.seqs).toEqual([]);
    expect(b.messages.length).toBe(1);
  });

  it("H2 opens anew from the start when a tab joins a turn, else from where the tabs stand", () => {
    const { hub, streams } = setUp();
    new Tab(hub, "a").watch("s");
    const stream = streams[0]!;
    stream.bring({ turnId: "t", logId: "log", packets: [started("s"), packet(2), packet(3)] });
    expect(stream.wanted.positions).toEqual([{ turnId: "t", afterSeq: 3, logId: "log" }]);
    const before = stream.opened;
    const joined = new Tab(hub, "b").watch("s");
    expect(stream.opened).toBe(before + 1);
    expect(stream.wanted.positions).toEqual([]); // from seq 1
    stream.bring({ turnId: "t", logId: "log", packets: [started("s"), packet(2), packet(3)] });
    expect(joined.seqs).toEqual([1, 2, 3]);
    expect(stream.wanted.positions[0]!.afterSeq).toBe(3);
  });

  it("H2 counts a gap as not served, and takes a tab's own word when it asks for more", () => {
    const { hub, streams } = setUp();
    const tab = new Tab(hub, "a").watch("s");
    const stream = streams[0]!;
    stream.bring({ turnId: "t", packets: [started("s"), packet(2), packet(5)] });
    expect(stream.wanted.positions[0]!.afterSeq).toBe(2);
    const before = stream.opened;
    const turns = [{ turnId: "t", sessionId: "s", afterSeq: 1, logId: "" }];
    tab.say({ kind: "watch", sessionIds: ["s"], turns, resync: true });
    expect(stream.opened).toBe(before + 1);
    expect(stream.wanted.positions[0]!.afterSeq).toBe(1);
  });

  it("forgets a turn with its end", () => {
    const { hub, streams } = setUp();
    new Tab(hub, "a").watch("s");
    streams[0]!.bring({ turnId: "t", packets: [started("s"), end(2)] });
    expect(streams[0]!.wanted.positions).toEqual([]);
  });

  it("H3 H4 forgets a tab whose lock is free, and closes the stream with the last one", async () => {
    const { hub, streams, locks } = setUp();
    new Tab(hub, "a", "lock-a");
    locks.get("lock-a")!.resolve();
    await locks.get("lock-a")!.promise;
    await Promise.resolve();
    expect(hub.tabs).toBe(0);
    expect(streams[0]!.closed).toBe(true);
  });

  it("H3 forgets a quiet tab without a lock, and asks who it is when it is back", () => {
    const { hub, clock } = setUp();
    const quiet = new Tab(hub, "a");
    clock.advance(2_000);
    new Tab(hub, "b");
    expect(hub.tabs).toBe(1);
    quiet.say({ kind: "alive" });
    expect(quiet.heard.at(-1)).toEqual({ kind: "who" });
    quiet.say({ kind: "hello", tabId: "a", lock: "", token: "" });
    expect(hub.tabs).toBe(2);
  });

  it("tells every tab how the stream is, and opens another with another token", () => {
    const { hub, streams } = setUp();
    const tab = new Tab(hub, "a");
    streams[0]!.options.onStatus({ kind: "refused", attempt: 1, code: ErrorCode.UNAUTHENTICATED });
    expect(tab.heard.at(-1)).toMatchObject({ status: { kind: "refused" } });
    tab.say({ kind: "hello", tabId: "a", lock: "", token: "other" });
    expect(streams.length).toBe(2);
    expect(streams[0]!.closed).toBe(true);
    tab.say({ kind: "bye" });
    expect(hub.tabs).toBe(0);
  });
});

import { create } from "@bufbuild/protobuf";
import { describe, expect, it, vi } from "vitest";
import {
  StartTurnResponseSchema,
  type StartTurnResponse,
} from "../../../gen/turnwire/chat/v1/chat_service_pb.js";
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { ManualClock } from "../../../test/support/manual-clock.js";
import { deferred, type Deferred } from "../../lib/signals.js";
import { clientError } from "../errors.js";
import { Outbox, type Draft, type OutboxEntry, type OutboxStorage } from "./outbox.js";

/** A storage that outlives the outbox, as a browser's does; tabs share it. */
class Shelf implements OutboxStorage {
  readonly #kept = new Map<string, string>();
  isFull = false;
  load(): readonly OutboxEntry[] {
    return [...this.#kept.values()].reverse().map((text) => JSON.parse(text) as OutboxEntry);
  }
  save(entry: OutboxEntry): void {
    if (this.isFull) throw new Error("QuotaExceededError");
    this.#kept.set(entry.requestId, JSON.stringify(entry));
  }
  remove(requestId: string): void {
    this.#kept.delete(requestId);
  }
  get texts(): string[] {
    return this.load().map(({ text }) => text);
  }
}

/** Takes sends and answers them by hand. */
class Service {
  readonly calls: { readonly entry: OutboxEntry; readonly reply: Deferred<StartTurnResponse> }[] = [];
  readonly accepted: OutboxEntry[] = [];
  readonly send = (entry: OutboxEntry): Promise<StartTurnResponse> => {
    const reply = deferred<StartTurnResponse>();
    this.calls.push({ entry, reply });
    return reply.promise;
  };
  readonly onAccepted = (entry: OutboxEntry): void => void this.accepted.push(entry);
  async accept(index: number, sessionId = "s"): Promise<void> {
    await this.asked(index + 1);
    this.calls[index]!.reply.resolve(create(StartTurnResponseSchema, { started: { sessionId } }));
  }
  async refuse(index: number, code: Parameters<typeof clientError>[0]): Promise<void> {
    await this.asked(index + 1);
    this.calls[index]!.reply.reject(clientError(code));
  }
  asked(count: number): Promise<void> {
    return vi.waitFor(() => expect(this.calls.length).toBeGreaterThanOrEqual(count));
  }
}

const draft = (text: string, conversation = "s"): Draft => ({
  conversation,
  text,
  attachments: [],
  position: { case: "end" },
  settings: {},
});

function open(shelf = new Shelf()) {
  const service = new Service();
  const clock = new ManualClock();
  const outbox = new Outbox({ storage: shelf, clock, random: () => 1, ...service });
  return { service, clock, outbox, shelf };
}

const texts = (outbox: Outbox): string[] => outbox.entries.get().map(({ text }) => text);

describe("outbox", () => {
  it("O1 keeps a send before it is tried, and forgets it once it is accepted", async () => {
    const { service, outbox, shelf } = open();
    outbox.add(draft("one"));
    expect(shelf.texts).toEqual(["one"]);
    await service.accept(0);
    await vi.waitFor(() => expect(shelf.texts).toEqual([]));
    expect(service.accepted.map(({ text }) => text)).toEqual(["one"]);
  });

  it("O2 tries again with the same request_id, after a wait, and at once when told", async () => {
    const { service, clock, outbox } = open();
    const { requestId } = outbox.add(draft("one"));
    await service.refuse(0, ErrorCode.UNAVAILABLE);
    await vi.waitFor(() => expect(outbox.entries.get()[0]).toMatchObject({ status: "queued" }));
    await vi.waitFor(() => expect(clock.sleeping).toBe(1));
    clock.advance(200);
    await service.refuse(1, ErrorCode.UNAVAILABLE);
    await vi.waitFor(() => expect(outbox.entries.get()[0]?.status).toBe("queued"));
    outbox.flush();
    await service.accept(2);
    expect(service.calls.map(({ entry }) => entry.requestId)).toEqual([requestId, requestId, requestId]);
  });

  it("O2 goes on after a reload with what the page before had", async () => {
    const shelf = new Shelf();
    const before = open(shelf);
    const { requestId } = before.outbox.add(draft("one"));
    before.outbox.close();
    const after = open(shelf);
    await after.service.accept(0);
    expect(after.service.calls[0]!.entry.requestId).toBe(requestId);
  });

  it("O3 keeps the order of a conversation and lets others pass", async () => {
    const { service, outbox } = open();
    outbox.add(draft("a1", "a"));
    outbox.add(draft("a2", "a"));
    outbox.add(draft("b1", "b"));
    await service.asked(2);
    expect(service.calls.map(({ entry }) => entry.text)).toEqual(["a1", "b1"]);
    await service.accept(0);
    await service.asked(3);
    expect(service.calls[2]!.entry.text).toBe("a2");
  });

  it("O3 sends the rest of a new conversation to the session that its first message made", async () => {
    const { service, outbox } = open();
    outbox.add(draft("first", "new-1"));
    outbox.add(draft("second", "new-1"));
    await service.accept(0, "made");
    await service.asked(2);
    expect(service.calls[1]!.entry).toMatchObject({ text: "second", conversation: "made" });
  });

  it("waits while the session is busy, and asks again when a turn has ended", async () => {
    const { service, outbox } = open();
    outbox.add(draft("one"));
    await service.refuse(0, ErrorCode.SESSION_BUSY);
    await vi.waitFor(() => expect(outbox.entries.get()[0]?.problem?.code).toBe(ErrorCode.SESSION_BUSY));
    outbox.flush();
    await service.accept(1);
    await vi.waitFor(() => expect(texts(outbox)).toEqual([]));
  });

  it("O4 keeps what is refused for good until the user decides, and holds what follows", async () => {
    const { service, outbox } = open();
    const { requestId } = outbox.add(draft("bad"));
    outbox.add(draft("next"));
    await service.refuse(0, ErrorCode.INVALID_ARGUMENT);
    await vi.waitFor(() => expect(outbox.entries.get()[0]?.status).toBe("failed"));
    outbox.flush();
    expect(service.calls.length).toBe(1);
    outbox.discard(requestId);
    await service.accept(1);
    expect(service.calls[1]!.entry.text).toBe("next");
  });

  it("O4 sends again as a new request", async () => {
    const { service, outbox } = open();
    const { requestId } = outbox.add(draft("conflict"));
    await service.refuse(0, ErrorCode.REQUEST_CONFLICT);
    await vi.waitFor(() => expect(outbox.entries.get()[0]?.status).toBe("failed"));
    outbox.retry(requestId);
    await service.accept(1);
    expect(service.calls[1]!.entry.requestId).not.toBe(requestId);
  });

  it("O5 takes no more than it can keep", () => {
    const { outbox } = open();
    for (let i = 0; i < 50; i += 1) outbox.add(draft(`${i}`));
    expect(() => outbox.add(draft("one more"))).toThrow("too many messages");
    expect(() => open().outbox.add(draft("x".repeat(2_000_001)))).toThrow("too many messages");
  });

  it("O1 refuses what the storage has no room for, and sends it nowhere", () => {
    const { service, outbox, shelf } = open();
    shelf.isFull = true;
    expect(() => outbox.add(draft("one"))).toThrow("no room");
    expect(texts(outbox)).toEqual([]);
    expect(service.calls).toEqual([]);
  });

  it("O6 keeps the messages of two tabs that write at the same time", () => {
    const shelf = new Shelf();
    const [a, b] = [open(shelf), open(shelf)];
    a.outbox.add(draft("from a", "a"));
    b.outbox.add(draft("from b", "b"));
    expect(shelf.texts.sort()).toEqual(["from a", "from b"]);
    a.outbox.reload();
    b.outbox.reload();
    expect(texts(a.outbox).sort()).toEqual(["from a", "from b"]);
    expect(texts(b.outbox).sort()).toEqual(["from a", "from b"]);
  });

  it("O6 sees what another tab has added, sent, and led to its session", async () => {
    const shelf = new Shelf();
    const [mine, other] = [open(shelf), open(shelf)];
    other.outbox.add(draft("first", "new-1"));
    other.outbox.add(draft("second", "new-1"));
    mine.outbox.reload();
    expect(texts(mine.outbox)).toEqual(["first", "second"]);
    await other.service.accept(0, "made");
    await vi.waitFor(() => expect(texts(other.outbox)).toEqual(["second"]));
    mine.outbox.reload();
    expect(mine.outbox.entries.get()).toMatchObject([{ text: "second", conversation: "made" }]);
  });

  it("O6 does not send what another tab has sent while it waited for its turn", async () => {
    const shelf = new Shelf();
    const turn = deferred<void>();
    const service = new Service();
    const other = open(shelf);
    const waiting = new Outbox({
      storage: shelf,
      clock: new ManualClock(),
      exclusively: (_name, task) => turn.promise.then(task),
      ...service,
    });
    waiting.add(draft("once"));
    other.outbox.reload();
    await other.service.accept(0);
    await vi.waitFor(() => expect(shelf.texts).toEqual([]));
    turn.resolve();
    await vi.waitFor(() => expect(texts(waiting)).toEqual([]));
    expect(service.calls).toEqual([]);
  });

  it("O6 two tabs that fail do not drive each other", async () => {
    const shelf = new Shelf();
    const [a, b] = [open(shelf), open(shelf)];
    a.outbox.add(draft("one"));
    b.outbox.reload();
    await a.service.refuse(0, ErrorCode.UNAVAILABLE);
    await b.service.refuse(0, ErrorCode.UNAVAILABLE);
    await vi.waitFor(() => expect([a.clock.sleeping, b.clock.sleeping]).toEqual([1, 1]));
    for (let i = 0; i < 10; i += 1) [a, b][i % 2]!.outbox.reload();
    await new Promise(setImmediate);
    expect([a.service.calls.length, b.service.calls.length]).toEqual([1, 1]);
  });
});

import { create } from "@bufbuild/protobuf";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import {
  WatchResponseSchema,
  type WatchRequest,
  type WatchResponse,
} from "../../../gen/turnwire/chat/v1/chat_service_pb.js";
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { ManualClock } from "../../../test/support/manual-clock.js";
import { AsyncQueue } from "../../lib/async-queue.js";
import { TurnError } from "../../lib/errors.js";
import { toConnectError } from "../../lib/rpc/status.js";
import { abortable } from "../../lib/signals.js";
import { clientError, toClientError } from "../errors.js";
import type { LinkStatus } from "./hub-messages.js";
import { Watcher, type WatcherOptions } from "./watcher.js";

/** One opening of the stream, fed by hand. */
interface Opening {
  readonly request: WatchRequest;
  readonly signal: AbortSignal;
  readonly queue: AsyncQueue<WatchResponse>;
}

function setUp() {
  const openings: Opening[] = [];
  const statuses: LinkStatus[] = [];
  const messages: WatchResponse[] = [];
  const clock = new ManualClock();
  const sessionIds: string[] = [];
  const watch = (
    request: WatchRequest,
    { signal }: { signal: AbortSignal },
  ): AsyncIterable<WatchResponse> => {
    const queue = new AsyncQueue<WatchResponse>(1_000);
    openings.push({ request, signal, queue });
    const source = queue[Symbol.asyncIterator]();
    return { [Symbol.asyncIterator]: () => ({ next: () => abortable(source.next(), signal) }) };
  };
  const watcher = new Watcher({
    api: { watch } as unknown as WatcherOptions["api"],
    clock,
    clientId: "test",
    random: () => 1,
    heartbeatTimeoutMs: 1_000,
    wanted: () => ({ sessionIds: [...sessionIds], positions: [] }),
    onMessage: (message) => messages.push(message),
    onStatus: (status) => statuses.push(status),
  });
  onTestFinished(() => watcher.close());
  const opened = async (count: number): Promise<Opening> => {
    await vi.waitFor(() => expect(openings.length).toBe(count));
    return openings[count - 1]!;
  };
  const kinds = (): string[] => statuses.map(({ kind }) => kind);
  return { watcher, clock, openings, opened, statuses, kinds, messages, sessionIds };
}

const message = (eventToken: string): WatchResponse => create(WatchResponseSchema, { eventToken });

describe("watcher", () => {
  it("is online with the first message, and opens anew with the token after a loss", async () => {
    const { opened, kinds, messages, clock } = setUp();
    const first = await opened(1);
    await first.queue.push(message("token-1"), 1);
    await vi.waitFor(() => expect(messages.length).toBe(1));
    first.queue.fail(clientError(ErrorCode.UNAVAILABLE));
    await vi.waitFor(() => expect(kinds()).toEqual(["connecting", "online", "offline"]));
    await vi.waitFor(() => expect(clock.sleeping).toBe(1));
    clock.advance(200);
    expect((await opened(2)).request.afterEventToken).toBe("token-1");
  });

  it("W1 W2 ends the stream and opens the next at once when what is wanted has changed", async () => {
    const { watcher, opened, sessionIds, kinds } = setUp();
    const first = await opened(1);
    sessionIds.push("s");
    watcher.reopen();
    const second = await opened(2);
    expect(first.signal.aborted).toBe(true);
    expect(second.request.sessionIds).toEqual(["s"]);
    expect(kinds()).not.toContain("offline");
  });

  it("W3 takes silence for a loss", async () => {
    const { opened, clock, kinds } = setUp();
    const first = await opened(1);
    await vi.waitFor(() => expect(clock.sleeping).toBe(1));
    clock.advance(1_001);
    await vi.waitFor(() => expect(kinds()).toContain("offline"));
    expect(first.signal.aborted).toBe(true);
  });

  it("W4 does not knock at a closed door, until it is told to", async () => {
    const { watcher, opened, openings, clock, statuses } = setUp();
    (await opened(1)).queue.fail(clientError(ErrorCode.UNAUTHENTICATED));
    await vi.waitFor(() => expect(statuses.at(-1)).toMatchObject({ kind: "refused" }));
    clock.advance(60_000);
    expect(openings.length).toBe(1);
    watcher.wake();
    await opened(2);
  });

  it("W5 drops an event token that is refused, and only that one", async () => {
    const { opened, messages, clock, kinds } = setUp();
    const refuse = async (opening: Opening, field: string, wait: number): Promise<void> => {
      const told = kinds().length;
      const refusal = new TurnError(ErrorCode.INVALID_ARGUMENT, { details: { field } });
      opening.queue.fail(toClientError(toConnectError(refusal)));
      await vi.waitFor(() => expect(kinds().slice(told)).toEqual(["offline"]));
      await vi.waitFor(() => expect(clock.sleeping).toBe(1));
      clock.advance(wait);
    };
    const first = await opened(1);
    await first.queue.push(message("token-1"), 1);
    await vi.waitFor(() => expect(messages.length).toBe(1));
    await refuse(first, "cursors", 200);
    const second = await opened(2);
    expect(second.request.afterEventToken).toBe("token-1");
    await refuse(second, "after_event_token", 400);
    expect((await opened(3)).request.afterEventToken).toBe("");
  });

  it("ends with everything that it has", async () => {
    const { watcher, opened, clock } = setUp();
    const first = await opened(1);
    watcher.close();
    expect(first.signal.aborted).toBe(true);
    await vi.waitFor(() => expect(clock.sleeping).toBe(0));
  });
});

/** The client core against a real listener that cuts, ends, stalls, repeats, skips and refuses on command. */
import { create, toBinary } from "@bufbuild/protobuf";
import { Code, type Transport } from "@connectrpc/connect";
import {
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
} from "@connectrpc/connect-node";
import { createConnectTransport as createFetchTransport } from "@connectrpc/connect-web";
import { afterEach, describe, expect, it } from "vitest";
import {
  ResumeTurnResponseSchema,
  SendDisposition,
  SendMessageResponseSchema,
  SnapshotPolicy,
} from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import { TurnStateSchema, type TurnState } from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import { ErrorCode, TurnOutcome } from "../../gen/turnwire/packet/v1/common_pb.js";
import { PacketSchema, type Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import {
  createTurnwireClient,
  type TurnStream,
  type TurnUpdate,
  type TurnwireClientOptions,
} from "../../src/client/index.js";
import { aborted, deferred } from "../../src/lib/signals.js";
import { fold } from "../../src/turn/fold.js";
import { ManualClock } from "../support/manual-clock.js";
import { sampleTurn } from "../support/sample-turn.js";
import {
  bareError,
  cursorAhead,
  cursorExpired,
  cutAfter,
  duplicated,
  endAfter,
  fail,
  failAfter,
  firstPackets,
  logReplaced,
  ScriptedChatServer,
  ScriptedTurn,
  sessionBusy,
  silentAfter,
  skipping,
  snapshotParts,
  statusError,
  type Behaviour,
  type CutKind,
} from "../support/scripted-chat-server.js";

interface Wire {
  readonly name: string;
  readonly http: "1.1" | "2";
  readonly cuts: readonly CutKind[];
  transport(baseUrl: string): Transport;
}

const WIRES: readonly Wire[] = [
  {
    name: "Connect, HTTP/1.1",
    http: "1.1",
    cuts: ["socket"],
    transport: (baseUrl) => createConnectTransport({ baseUrl, httpVersion: "1.1" }),
  },
  {
    name: "Connect, HTTP/2",
    http: "2",
    cuts: ["socket", "stream"],
    transport: (baseUrl) => createConnectTransport({ baseUrl, httpVersion: "2" }),
  },
  {
    name: "gRPC, HTTP/2",
    http: "2",
    cuts: ["socket", "stream"],
    transport: (baseUrl) => createGrpcTransport({ baseUrl }),
  },
  {
    name: "gRPC-Web, HTTP/1.1",
    http: "1.1",
    cuts: ["socket"],
    transport: (baseUrl) => createGrpcWebTransport({ baseUrl, httpVersion: "1.1" }),
  },
  {
    name: "Connect over fetch",
    http: "1.1",
    cuts: ["socket"],
    transport: (baseUrl) => createFetchTransport({ baseUrl }),
  },
];
const H2 = WIRES[1]!;

const open: ScriptedChatServer[] = [];
afterEach(async () => {
  await Promise.all(open.splice(0).map((server) => server.close()));
});

async function serve(wire: Wire, packets: Packet[] = sampleTurn(), head?: number) {
  const server = await ScriptedChatServer.start({ http: wire.http });
  open.push(server);
  const turn = new ScriptedTurn("turn-1", packets, head);
  server.nextTurn = turn;
  server.turns.set(turn.turnId, turn);
  const connect = (options: Partial<TurnwireClientOptions> = {}) =>
    createTurnwireClient({ transport: wire.transport(server.url), maxBackoffMs: 1, ...options });
  return { server, turn, connect, client: connect() };
}

interface Seen {
  readonly updates: TurnUpdate[];
  readonly packets: Packet[];
  readonly statuses: string[];
}

/** Reads a stream to its end. */
async function read(stream: TurnStream): Promise<Seen> {
  const seen: Seen = { updates: [], packets: [], statuses: [] };
  for await (const update of stream) note(seen, update);
  return seen;
}

function note(seen: Seen, update: TurnUpdate): void {
  seen.updates.push(update);
  if (update.kind === "packets") seen.packets.push(...update.packets);
  if (update.kind === "connection") seen.statuses.push(update.status);
}

/** Why connections were lost, as the reader was told. */
function lossMessages(seen: Seen): (string | undefined)[] {
  return seen.updates.flatMap((update) =>
    update.kind === "connection" && update.status === "lost" ? [update.error?.message] : [],
  );
}

/** Lets everything that waits for no time and no network run. */
const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

function expectSamePackets(got: readonly Packet[], wanted: readonly Packet[]): void {
  expect(got.map(({ seq }) => seq)).toEqual(wanted.map(({ seq }) => seq));
  const encode = (packet: Packet): string => Buffer.from(toBinary(PacketSchema, packet)).toString("hex");
  expect(got.map(encode)).toEqual(wanted.map(encode));
}

function expectSameState(got: TurnState, wanted: TurnState): void {
  expect(Buffer.from(toBinary(TurnStateSchema, got)).toString("hex")).toBe(
    Buffer.from(toBinary(TurnStateSchema, wanted)).toString("hex"),
  );
}

describe.each(WIRES)("client over $name", (wire) => {
  it("reads a whole turn: receipt, packets, state as it grows, end", async () => {
    const { turn, server, client } = await serve(wire);
    const stream = client.send({ text: "what time is it?" });
    const seen = await read(stream);
    expectSamePackets(seen.packets, turn.packets);
    expectSameState(stream.state, fold(turn.packets));
    expect(seen.updates[0]).toMatchObject({ kind: "connection", status: "connected" });
    expect(seen.updates[1]).toMatchObject({ kind: "receipt", receipt: { turnId: "turn-1" } });
    expect([stream.turnId, stream.lastSeq, stream.logId]).toEqual(["turn-1", 30, "log-1"]);
    expect((await stream.result()).stop?.outcome).toBe(TurnOutcome.COMPLETED);
    expect(server.calls).toHaveLength(1);
    expect(seen.statuses).toEqual(["connected"]);
  });

  it("resumes exactly, wherever the connection breaks", async () => {
    const { server, turn, client } = await serve(wire);
    for (const how of wire.cuts) {
      for (let position = 0; position < turn.packets.length; position += 1) {
        server.calls.length = 0;
        const arrived = deferred();
        server.script.push(cutAfter(position, how, arrived.promise));
        const stream = client.send({ text: "hello" });
        const seen: Seen = { updates: [], packets: [], statuses: [] };
        for await (const update of stream) {
          note(seen, update);
          if (update.kind !== "connection" && seen.packets.length === position) arrived.resolve();
        }
        expectSamePackets(seen.packets, turn.packets);
        expectSameState(stream.state, fold(turn.packets));
        expect(seen.statuses.slice(-3)).toEqual(["lost", "resuming", "connected"]);
        expect(server.calls.map((call) => call.resume?.afterSeq)).toEqual([undefined, position]);
      }
    }
  });

  it("takes an end without a terminal packet for a loss, says so, and resumes from the last seq", async () => {
    const { server, turn, client } = await serve(wire);
    for (let position = 0; position < turn.packets.length; position += 1) {
      server.calls.length = 0;
      server.script.push(endAfter(position));
      const seen = await read(client.send({ text: "hello" }));
      expectSamePackets(seen.packets, turn.packets);
      expect(lossMessages(seen)).toEqual(["the stream ended without a terminal packet"]);
      expect(server.calls.map(({ method }) => method)).toEqual(["send", "resume"]);
      expect(server.calls[1]!.resume).toMatchObject({ turnId: "turn-1", afterSeq: position, logId: "log-1" });
    }
  });

  it("gets through a connection that breaks at every packet", async () => {
    const { server, turn, client } = await serve(wire);
    for (let cut = 0; cut < 29; cut += 1)
      server.script.push(endAfter(1), cutAfter(1, wire.cuts[cut % wire.cuts.length]));
    const stream = client.send({ text: "hello" });
    expectSamePackets((await read(stream)).packets, turn.packets);
    expectSameState(stream.state, fold(turn.packets));
  });

  it("break cancels the call at once", async () => {
    const { server, client } = await serve(wire, sampleTurn(), 5);
    for await (const update of client.send({ text: "hello" })) {
      if (update.kind === "packets" && update.packets.at(-1)!.seq === 5) break;
    }
    await aborted((await server.call(1)).signal); // the script itself never ends the call
    expect(server.calls).toHaveLength(1);
  });

  it("the caller's signal ends a stream that waits, and nothing is delivered after it", async () => {
    const { server, turn, client } = await serve(wire, sampleTurn(), 5);
    const abort = new AbortController();
    const stream = client.send({ text: "hello" }, { signal: abort.signal });
    const seen: Seen = { updates: [], packets: [], statuses: [] };
    const reading = (async () => {
      for await (const update of stream) {
        note(seen, update);
        if (seen.packets.length === 5) {
          abort.abort(new Error("enough"));
          turn.release();
        }
      }
    })();
    await expect(reading).rejects.toMatchObject({ name: "TurnwireClientError", code: ErrorCode.CANCELLED });
    await expect(stream.result()).rejects.toMatchObject({
      code: ErrorCode.CANCELLED,
      cause: new Error("enough"),
    });
    await aborted((await server.call(1)).signal);
    expect(seen.packets).toHaveLength(5);
  });

  it("a send that is not answered is repeated with the same request_id", async () => {
    const { server, turn, client } = await serve(wire);
    const cutUnanswered: Behaviour = async function* (call) {
      call.cut("socket");
      await aborted(call.signal);
      yield* [];
    };
    server.script.push(
      cutUnanswered,
      fail(bareError(Code.Unavailable, "draining")),
      fail(statusError(ErrorCode.OVERLOADED)),
    );
    const stream = client.send({ text: "hello" });
    expectSamePackets((await read(stream)).packets, turn.packets);
    expect(server.calls.map(({ method }) => method)).toEqual(["send", "send", "send", "send"]);
    expect(new Set(server.calls.map(({ send }) => send?.requestId))).toEqual(new Set([stream.requestId]));
    expect(stream.requestId).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  });

  it("keeps up with a burst that is cut again and again, and loses nothing", async () => {
    const piece = "0123456789abcdef".repeat(64);
    const packets = sampleTurn({ answer: Array.from({ length: 4_000 }, (_, index) => `${index} ${piece}`) });
    const { server, turn, client } = await serve(wire, packets);
    for (let cut = 0; cut < 5; cut += 1) server.script.push(cutAfter(600, wire.cuts[cut % wire.cuts.length]));
    const stream = client.send({ text: "hello" });
    expectSamePackets((await read(stream)).packets, turn.packets);
    expectSameState(stream.state, fold(turn.packets));
  });
});

describe("client", () => {
  it("drops repeated packets", async () => {
    const { server, turn, client } = await serve(H2);
    server.script.push(duplicated);
    expectSamePackets((await read(client.send({ text: "hello" }))).packets, turn.packets);
    expect(server.calls).toHaveLength(1);
  });

  it("never shows what stands behind a gap: it resumes", async () => {
    const { server, turn, client } = await serve(H2);
    for (const missing of [1, 2, 17, 29]) {
      server.calls.length = 0;
      server.script.push(skipping(missing));
      const seen = await read(client.send({ text: "hello" }));
      expectSamePackets(seen.packets, turn.packets);
      expect(server.calls[1]!.resume?.afterSeq).toBe(missing - 1);
    }
  });

  it("a heartbeat that knows more packets than have come leads to a resume; one that agrees to nothing", async () => {
    const { server, turn, client } = await serve(H2);
    const heartbeat = (headSeq: number) =>
      create(SendMessageResponseSchema, {
        packets: [{ seq: 0, payload: { case: "chatHeartbeat", value: { headSeq } } }],
      });
    server.script.push(async function* (call, honest) {
      yield* firstPackets(honest, 4);
      yield heartbeat(4);
      yield heartbeat(6);
      await aborted(call.signal);
    });
    const seen = await read(client.send({ text: "hello" }));
    expectSamePackets(seen.packets, turn.packets);
    expect(server.calls.map((call) => call.resume?.afterSeq)).toEqual([undefined, 4]);
  });

  it.each([
    ["not found", statusError(ErrorCode.NOT_FOUND), ErrorCode.NOT_FOUND],
    ["cursor ahead", cursorAhead(3), ErrorCode.CURSOR_AHEAD],
    ["expired, no snapshot", cursorExpired(9, false), ErrorCode.CURSOR_EXPIRED],
    ["wrong token", statusError(ErrorCode.UNAUTHENTICATED), ErrorCode.UNAUTHENTICATED],
    ["log truncated", statusError(ErrorCode.LOG_TRUNCATED), ErrorCode.LOG_TRUNCATED],
  ])("gives up at once: %s", async (_name, error, code) => {
    const { server, client } = await serve(H2);
    server.script.push(failAfter(3, error));
    const stream = client.attach("turn-1");
    await expect(read(stream)).rejects.toMatchObject({ name: "TurnwireClientError", code, typed: true });
    await expect(stream.result()).rejects.toMatchObject({ code });
    expect(server.calls).toHaveLength(1);
    expect(stream.lastSeq).toBe(3);
  });

  it("decodes typed details by their schema", async () => {
    const { server, client } = await serve(H2);
    server.script.push(fail(sessionBusy("turn-0")), fail(cursorAhead(12)));
    await expect(client.send({ text: "hello" }).result()).rejects.toMatchObject({
      code: ErrorCode.SESSION_BUSY,
      details: { sessionBusy: { turnId: "turn-0" } },
    });
    await expect(client.attach("turn-1", { afterSeq: 40 }).result()).rejects.toMatchObject({
      details: { cursorAhead: { headSeq: 12 } },
    });
  });

  it("comes back by itself when its reader was cut off, and when the server shut down", async () => {
    const { server, turn, client } = await serve(H2);
    server.script.push(
      failAfter(6, statusError(ErrorCode.READER_STALLED)),
      failAfter(6, statusError(ErrorCode.UNAVAILABLE)),
      failAfter(6, bareError(Code.Unavailable, "server draining")),
      failAfter(6, statusError(ErrorCode.OWNER_LOST)),
    );
    expectSamePackets((await read(client.send({ text: "hello" }))).packets, turn.packets);
    expect(server.calls.map((call) => call.resume?.afterSeq)).toEqual([undefined, 6, 12, 18, 24]);
  });

  it("waits as long as the server asks it to", async () => {
    const clock = new ManualClock();
    const { server, turn, connect } = await serve(H2);
    server.script.push(failAfter(2, statusError(ErrorCode.OVERLOADED, { retryAfterMs: 7_000 })));
    const asked = clock.sleepBegins(7_000);
    const result = connect({ clock }).send({ text: "hello" }).result();
    await asked;
    expect(server.calls).toHaveLength(1);
    clock.advance(7_000);
    expectSameState(await result, fold(turn.packets));
  });

  it("a cursor that expired takes the snapshot, in parts, and goes on from it", async () => {
    const { server, turn, client } = await serve(H2);
    const held = fold(turn.packets.slice(0, 20));
    server.script.push(
      fail(cursorExpired(20, true)),
      async function* () {
        yield* [...snapshotParts(held)].slice(0, 3); // broken off in the middle: worth nothing
        throw bareError(Code.Unavailable, "gone");
      },
      async function* () {
        yield* snapshotParts(held);
        for (const packet of turn.packets.slice(20))
          yield create(ResumeTurnResponseSchema, { packets: [packet] });
      },
    );
    const stream = client.attach("turn-1", { afterSeq: 3, state: fold(turn.packets.slice(0, 3)) });
    const seen = await read(stream);
    expect(seen.updates.filter(({ kind }) => kind === "snapshot")).toHaveLength(1);
    expectSamePackets(seen.packets, turn.packets.slice(20));
    expectSameState(stream.state, fold(turn.packets));
    expect(server.calls.map((call) => call.resume?.snapshot)).toEqual([
      SnapshotPolicy.UNSPECIFIED,
      SnapshotPolicy.IF_EXPIRED,
      SnapshotPolicy.IF_EXPIRED,
    ]);
  });

  it("a snapshot of a turn that has ended is the end", async () => {
    const { server, turn, client } = await serve(H2);
    server.script.push(fail(cursorExpired(30, true)), async function* () {
      yield* snapshotParts(fold(turn.packets), 1_000_000);
    });
    const stream = client.attach("turn-1", { afterSeq: 3 });
    const seen = await read(stream);
    expect(seen.packets).toEqual([]);
    expect(seen.statuses).toEqual(["lost", "resuming", "connected"]);
    expectSameState(await stream.result(), fold(turn.packets));
    expect(stream.lastSeq).toBe(30);
  });

  it("a log that was replaced is read from its start, the old state forgotten", async () => {
    const { server, turn, client } = await serve(H2);
    server.script.push(failAfter(9, logReplaced("log-2", 30)));
    const stream = client.attach("turn-1");
    const seen = await read(stream);
    expect(server.calls[1]!.resume).toMatchObject({
      afterSeq: 0,
      logId: "log-2",
      snapshot: SnapshotPolicy.IF_EXPIRED,
    });
    const reset = seen.updates.findIndex(({ kind }) => kind === "snapshot");
    expect(seen.updates[reset]).toMatchObject({ kind: "snapshot", seq: 0 });
    const after = seen.updates
      .slice(reset)
      .flatMap((update) => (update.kind === "packets" ? update.packets : []));
    expectSamePackets(after, turn.packets);
    expectSameState(stream.state, fold(turn.packets));
  });

  it("a packet that must be understood and is not known leads to a snapshot", async () => {
    const { server, turn, client } = await serve(H2);
    server.script.push(async function* (_call, honest) {
      yield* firstPackets(honest, 10);
      yield create(SendMessageResponseSchema, {
        packets: [create(PacketSchema, { seq: 11, mustUnderstand: true })],
      });
      for (const packet of turn.packets.slice(11))
        yield create(SendMessageResponseSchema, { packets: [packet] });
    });
    const stream = client.send({ text: "hello" });
    const seen = await read(stream);
    expect(server.calls[1]!.resume?.snapshot).toBe(SnapshotPolicy.ALWAYS);
    expect(seen.updates.some(({ kind }) => kind === "snapshot")).toBe(true);
    expectSameState(stream.state, fold(turn.packets));
  });

  it("a message that joined a running turn is shown that turn from its start", async () => {
    const { server, turn, client } = await serve(H2);
    server.script.push(async function* (call) {
      const receipt = {
        requestId: call.send!.requestId,
        disposition: SendDisposition.STEERED,
        turnId: "turn-1",
      };
      yield create(SendMessageResponseSchema, { receipt });
      yield create(SendMessageResponseSchema, { packets: [turn.packets[19]!] });
    });
    const seen = await read(client.send({ text: "and in Rome?" }));
    expectSamePackets(seen.packets, turn.packets);
    expect(seen.statuses).not.toContain("lost");
  });

  it("notices silence, not slowness: only time spent waiting for the network counts", async () => {
    const clock = new ManualClock();
    const { server, turn, connect } = await serve(H2);
    server.script.push(silentAfter(5));
    const client = connect({ clock, maxBackoffMs: 60_000, random: () => 0 });
    const updates = client.send({ text: "hello" })[Symbol.asyncIterator]();
    const seen: Seen = { updates: [], packets: [], statuses: [] };
    while (seen.packets.length < 5) note(seen, (await updates.next()).value!);
    clock.advance(1_000_000); // the consumer is slow: nothing happens
    const waiting = updates.next();
    await settled();
    clock.advance(44_999);
    await settled();
    expect([server.calls.length, (await server.call(1)).signal.aborted]).toEqual([1, false]);
    clock.advance(1);
    note(seen, (await waiting).value!);
    expect(lossMessages(seen)).toEqual(["nothing was heard from the server for 45000 ms"]);
    await aborted((await server.call(1)).signal);
    const next = updates.next();
    await settled();
    clock.advance(50);
    note(seen, (await next).value!);
    for (let step = await updates.next(); !step.done; step = await updates.next()) note(seen, step.value);
    expectSamePackets(seen.packets, turn.packets);
  });

  it("leaves no timer behind", async () => {
    const clock = new ManualClock();
    const { connect } = await serve(H2);
    await connect({ clock }).send({ text: "hello" }).result();
    const closed = connect({ clock }).send({ text: "hello" })[Symbol.asyncIterator]();
    await closed.next();
    await closed.return!();
    await settled();
    await connect({ clock }).attach("turn-1").result();
    await expect.poll(() => clock.sleeping).toBe(0);
  });

  it("two readers of one turn do not touch each other", async () => {
    const { turn, client } = await serve(H2, sampleTurn(), 10);
    const first = client.attach("turn-1")[Symbol.asyncIterator]();
    const second = client.attach("turn-1");
    const all = read(second);
    await first.next();
    await first.return!();
    expect(await first.next()).toEqual({ done: true, value: undefined });
    turn.release();
    expectSamePackets((await all).packets, turn.packets);
  });

  it("return answers while a packet is awaited, and the pending next ends", async () => {
    const { server, client } = await serve(H2, sampleTurn(), 2);
    const updates = client.attach("turn-1")[Symbol.asyncIterator]();
    await updates.next();
    await updates.next();
    await updates.next();
    const pending = updates.next();
    await updates.return!();
    expect(await pending).toEqual({ done: true, value: undefined });
    await aborted((await server.call(1)).signal);
  });

  it("a cursor at the end of an ended turn asks once and ends; a state that has its end asks nothing", async () => {
    const { server, turn, client } = await serve(H2);
    const stream = client.attach("turn-1", { afterSeq: 30 });
    expectSameState(await stream.result(), fold(turn.packets));
    expect([server.calls.length, server.getTurns.length]).toEqual([1, 1]);
    await client.attach("turn-1", { state: fold(turn.packets) }).result();
    expect([server.calls.length, server.getTurns.length]).toEqual([1, 1]);
    expect(() => client.attach("turn-1", { state: fold(turn.packets), afterSeq: 3 })).toThrow(RangeError);
  });

  it("reads what is there and ends, when it is not to follow", async () => {
    const { server, turn, client } = await serve(H2, sampleTurn(), 12);
    server.script.push(failAfter(5, bareError(Code.Unavailable, "gone")));
    const seen = await read(client.attach("turn-1", { follow: false }));
    expectSamePackets(seen.packets, turn.packets.slice(0, 12));
    expect(server.calls.map((call) => [call.resume?.noFollow, call.resume?.afterSeq])).toEqual([
      [true, 0],
      [true, 5],
    ]);
  });

  it("stops by request before the receipt, by turn after it, and repeats itself when not answered", async () => {
    const { server, turn, client } = await serve(H2, sampleTurn(), 8);
    const held = deferred();
    server.script.push(async function* (_call, honest) {
      await held.promise;
      yield* honest;
    });
    const stream = client.send({ text: "hello" });
    const all = read(stream);
    await server.call(1);
    expect((await stream.stop()).stopSeq).toBe(0);
    expect(server.stops[0]!.target).toEqual({ case: "requestId", value: stream.requestId });
    held.resolve();
    await expect.poll(() => stream.lastSeq).toBe(8);
    expect((await stream.stop()).stopSeq).toBe(8);
    expect(server.stops[1]!.target).toEqual({ case: "turnId", value: "turn-1" });
    expectSamePackets((await all).packets, turn.packets);
    expect(stream.state.stop?.outcome).toBe(TurnOutcome.STOPPED);
    await expect(client.stop({ turnId: "turn-7" })).rejects.toMatchObject({ code: ErrorCode.NOT_FOUND });
  });

  it("goes on after the server was away and came back on the same port", async () => {
    const { server, turn, connect } = await serve(H2, sampleTurn(), 11);
    const seen: Seen = { updates: [], packets: [], statuses: [] };
    let restarted: ScriptedChatServer | undefined;
    for await (const update of connect({ maxBackoffMs: 20 }).send({ text: "hello" })) {
      note(seen, update);
      if (seen.packets.length === 11 && !restarted) {
        await server.close();
        restarted = await ScriptedChatServer.start({ http: "2", port: Number(new URL(server.url).port) });
        open.push(restarted);
        restarted.turns.set("turn-1", turn);
        turn.release();
      }
    }
    expectSamePackets(seen.packets, turn.packets);
  });

  it("gives up on a server that was never there, with the reason", async () => {
    const { server, connect } = await serve(H2);
    await server.close();
    const events: string[] = [];
    const client = connect({
      maxFirstAttempts: 3,
      onEvent: ({ status, attempt }) => events.push(`${status} ${attempt}`),
    });
    await expect(client.send({ text: "hello" }).result()).rejects.toMatchObject({
      code: ErrorCode.UNAVAILABLE,
      typed: false,
    });
    expect(events).toEqual(["lost 1", "resuming 2", "lost 2", "resuming 3"]);
  });

  it("is for one consumer", async () => {
    const { client } = await serve(H2);
    const stream = client.attach("turn-1");
    await read(stream);
    expect(() => stream[Symbol.asyncIterator]()).toThrow(TypeError);
  });
});

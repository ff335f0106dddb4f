/**
 * What end-to-end suites stand on: a scripted model provider over HTTP, the server as a process of its own against a
 * database of its own, and a client of its shared port. Also the judges: every packet of a turn against the grammar, the
 * stored rows against the fold.
 */
import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { createClient, type Client } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { expect } from "vitest";
import { ChatService } from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import { LaneStateSchema, type TurnState } from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import { PacketSchema, type Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import { fold } from "../../src/turn/fold.js";
import { GrammarChecker } from "../../src/turn/grammar.js";
import { runSql } from "./postgres.js";
import {
  deltaChunk,
  finishChunks,
  reasoningChunks,
  textChunks,
  toolCallChunks,
  type RecordedRequest,
  type Script,
  type ScriptedUpstream,
} from "./scripted-upstream.js";
import { startTurnwire, type StartOptions, type TurnwireProcess } from "./turnwire-process.js";

export type ChatClient = Client<typeof ChatService>;

export const MODEL = "scripted-model";

/** A client of the shared port; HTTP/2, so that many streams share a connection. */
export function chatClient(
  server: Pick<TurnwireProcess, "httpUrl">,
  headers?: Record<string, string>,
): ChatClient {
  const interceptors = headers
    ? [
        (next: (request: never) => Promise<never>) => (request: { header: Headers }) => {
          for (const [name, value] of Object.entries(headers)) request.header.set(name, value);
          return next(request as never);
        },
      ]
    : [];
  return createClient(
    ChatService,
    createConnectTransport({
      baseUrl: server.httpUrl,
      httpVersion: "2",
      interceptors: interceptors as never,
    }),
  );
}

/** Starts the server with this provider and this database (and log, when given). */
export function startWith(
  upstream: ScriptedUpstream,
  options: StartOptions & { readonly databaseUrl?: string; readonly natsUrl?: string },
): Promise<TurnwireProcess> {
  return startTurnwire({
    ...options,
    env: {
      OPENAI_BASE_URL: upstream.url,
      OPENAI_API_KEY: "sk-test-canary-0123456789",
      ...(options.databaseUrl ? { DATABASE_URL: options.databaseUrl } : {}),
      ...(options.natsUrl ? { NATS_URL: options.natsUrl } : {}),
      ...options.env,
    },
  });
}

/** True when the request carries a tool result: the second call of a cycle. */
export function hasToolResult(request: RecordedRequest): boolean {
  // A reminder to the model may stand behind the results.
  return request.json?.messages?.findLast(({ role }) => role !== "user")?.["role"] === "tool";
}

/** Reasoning, a clock call, then an answer: about 60 packets over two cycles. */
export function sixtyPackets(request: RecordedRequest): Script {
  if (!hasToolResult(request)) {
    return [
      ...reasoningChunks("First I look at the clock, since the question is about the time of the day."),
      ...toolCallChunks({ id: "call_1", name: "clock", args: { timezone: "Europe/Paris" } }),
      ...finishChunks("tool_calls"),
    ];
  }
  return [
    ...reasoningChunks("Now I know it."),
    ...textChunks(
      "It is late in Paris: ünïcödé 🕰️ and “quotes” survive, as does a longer sentence of some twenty words.",
    ),
    ...finishChunks("stop"),
  ];
}

/** A plain answer. */
export function plainAnswer(text: string): Script {
  return [deltaChunk({ role: "assistant", content: "" }), ...textChunks(text), ...finishChunks("stop")];
}

/** All packets of a turn from its beginning to its end, decoded. */
export async function readWhole(client: ChatClient, turnId: string, timeoutMs = 30_000): Promise<Packet[]> {
  const packets: Packet[] = [];
  for await (const response of client.resumeTurn({ turnId }, { timeoutMs }))
    packets.push(...response.packets.filter((packet) => packet.seq > 0));
  return packets;
}

/** Every order rule of the contract, the whole turn. */
export function expectGrammar(packets: readonly Packet[]): void {
  const checker = new GrammarChecker();
  const violations = packets.flatMap((packet) =>
    checker.push(packet).map((text) => `seq ${packet.seq}: ${text}`),
  );
  expect([...violations, ...checker.finish()]).toEqual([]);
}

/** The stored rows of the turn are the fold of its packets, byte for byte (I3), and there is one row per lane. */
export async function expectRowsEqualFold(
  databaseUrl: string,
  turnId: string,
  packets: readonly Packet[],
): Promise<TurnState> {
  const state = fold(packets);
  const lanes = await runSql(
    databaseUrl,
    "select m.model_index, m.answer from turnwire.messages m where m.turn_id = $1 and m.role = 2 order by m.model_index",
    [turnId],
  );
  expect(lanes.length).toBe(state.lanes.length);
  for (const [index, lane] of state.lanes.entries()) {
    // The rows are made before the terminal packet, which changes no lane.
    expect(Buffer.from(toBinary(LaneStateSchema, lane)).equals(lanes[index]!["answer"] as Buffer)).toBe(true);
  }
  const [turn] = await runSql(
    databaseUrl,
    "select terminal_batch, terminal_seq from turnwire.turns where turn_id = $1",
    [turnId],
  );
  const terminal = packets.at(-1)!;
  expect(turn!["terminal_seq"]).toBe(terminal.seq);
  expect((turn!["terminal_batch"] as Buffer).includes(Buffer.from(toBinary(PacketSchema, terminal)))).toBe(
    true,
  );
  return state;
}

export function decodePackets(encoded: readonly Uint8Array[]): Packet[] {
  return encoded.map((bytes) => fromBinary(PacketSchema, bytes));
}

/** One text for a list of packets, so that a failed comparison is short. */
export function hexOf(packets: readonly Uint8Array[]): string {
  return packets.map((bytes) => Buffer.from(bytes).toString("hex")).join("\n");
}

/**
 * kill -9 of nats-server and of Postgres under 20 running turns, restarted at once: nothing is lost or doubled at any
 * reader, every turn ends with its rows, and no reader waits longer than the bound between two packets.
 *
 * TURNWIRE_CHAOS_ROUNDS sets the number of kills (default 2).
 */
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ChatService } from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import { TurnOutcome } from "../../gen/turnwire/packet/v1/common_pb.js";
import type { Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import {
  chatClient,
  expectGrammar,
  expectRowsEqualFold,
  MODEL,
  startWith,
  type ChatClient,
} from "../support/e2e-fixture.js";
import { natsServers, startTestNats, type TestNats } from "../support/nats.js";
import { usePostgres } from "../support/postgres.js";
import {
  deltaChunk,
  finishChunks,
  startScriptedUpstream,
  wait,
  type ScriptedUpstream,
} from "../support/scripted-upstream.js";
import { makeDataDir, removeDataDir, type TurnwireProcess } from "../support/turnwire-process.js";

const ROUNDS = Number(process.env["TURNWIRE_CHAOS_ROUNDS"] ?? 2);
const TURNS = 20;
const WORDS = 120;
const PACE_MS = 20;
const NATS_GAP_MS = 3_000;
const POSTGRES_GAP_MS = 5_000;

const postgres = usePostgres();
const newestNats = natsServers().at(-1);

type Victim = "nats-server" | "Postgres";

const scenes: readonly {
  readonly victim: Victim;
  readonly log: "JetStream" | "Postgres";
  readonly maxGapMs: number;
}[] = [
  { victim: "nats-server", log: "JetStream", maxGapMs: NATS_GAP_MS },
  { victim: "Postgres", log: "JetStream", maxGapMs: NATS_GAP_MS },
  { victim: "Postgres", log: "Postgres", maxGapMs: POSTGRES_GAP_MS },
];

describe.each(scenes.filter((scene) => scene.log === "Postgres" || newestNats))(
  "kill -9 of $victim with the $log log",
  ({ victim, log, maxGapMs }) => {
    let nats: TestNats | undefined;
    let upstream: ScriptedUpstream;
    let server: TurnwireProcess;
    let databaseUrl: string;
    let clients: ChatClient[];
    const dataDir = makeDataDir();

    beforeAll(async () => {
      nats = log === "JetStream" ? await startTestNats(newestNats!) : undefined;
      databaseUrl = await postgres.createDatabase();
      upstream = await startScriptedUpstream();
      upstream.replyWith(() => [
        ...Array.from({ length: WORDS }, (_, index) => [
          deltaChunk({ content: `w${index} ` }),
          wait(PACE_MS),
        ]).flat(),
        ...finishChunks("stop"),
      ]);
      server = await startWith(upstream, { dataDir, databaseUrl, natsUrl: nats?.server.url });
      clients = [
        chatClient(server),
        createClient(ChatService, createGrpcTransport({ baseUrl: `http://${server.grpcAddress}` })),
      ];
    });
    afterAll(async () => {
      await server?.stop();
      await upstream?.close();
      await nats?.end();
      removeDataDir(dataDir);
    });

    test(
      `${ROUNDS} kills under ${TURNS} turns each`,
      async () => {
        let worstGapMs = 0;
        for (let round = 0; round < ROUNDS; round++) {
          const readers = await Promise.all(
            Array.from({ length: TURNS }, (_, index) =>
              startReader(clients[index % 2]!, `round ${round} turn ${index}`),
            ),
          );
          await Promise.all(readers.map((reader) => reader.reached(10 + 4 * (round % 5))));
          process.kill(victim === "Postgres" ? postgres.server.pid : nats!.server.pid, "SIGKILL");
          for (const reader of readers) {
            const packets = await reader.ended;
            worstGapMs = Math.max(worstGapMs, reader.worstGapMs());
            expectGrammar(packets);
            const state = await expectRowsEqualFold(databaseUrl, reader.turnId(), packets);
            expect(state.stop!.outcome).toBe(TurnOutcome.COMPLETED);
            expect(state.lanes[0]!.text).toBe(
              Array.from({ length: WORDS }, (_, word) => `w${word} `).join(""),
            );
          }
        }
        console.log(
          `kill -9 of ${victim}, ${log} log: ${ROUNDS} rounds x ${TURNS} turns, worst gap between two packets at a reader ${Math.round(worstGapMs)} ms`,
        );
        expect(worstGapMs).toBeLessThanOrEqual(maxGapMs);
      },
      30_000 + ROUNDS * 20_000,
    );
  },
);

/** A send whose stream is read to its end, with the longest pause between two packets. */
async function startReader(client: ChatClient, text: string) {
  const packets: Packet[] = [];
  let turnId = "";
  let lastMs = performance.now();
  let worstGapMs = 0;
  const waiting: { readonly count: number; resolve(): void }[] = [];
  const ended = (async () => {
    for await (const response of client.sendMessage(
      { text, models: [{ modelId: MODEL }] },
      { timeoutMs: 60_000 },
    )) {
      if (response.receipt) turnId = response.receipt.turnId;
      const now = performance.now();
      worstGapMs = Math.max(worstGapMs, now - lastMs);
      lastMs = now;
      packets.push(...response.packets.filter((packet) => packet.seq > 0));
      for (const waiter of waiting) if (packets.length >= waiter.count) waiter.resolve();
    }
    return packets;
  })();
  const reached = (count: number): Promise<unknown> =>
    packets.length >= count
      ? Promise.resolve()
      : Promise.race([new Promise<void>((resolve) => waiting.push({ count, resolve })), ended]);
  await reached(1);
  return { packets, ended, reached, turnId: () => turnId, worstGapMs: () => worstGapMs };
}

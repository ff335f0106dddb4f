/**
 * README.md: the examples with stock tools (grpcurl, ghz, Python), which know the service by reflection or by its proto
 * files alone. Without Go or Python their examples are skipped with a loud word; with them, in CI, that is a failure.
 */
import { writeFile } from "node:fs/promises";
import path from "node:path";
import { fromBinary } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { canMake, getTool } from "../../scripts/get-tools.mjs";
import { SendMessageResponseSchema } from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import { TurnStatus } from "../../gen/turnwire/chat/v1/types_pb.js";
import { TurnOutcome } from "../../gen/turnwire/packet/v1/common_pb.js";
import { chatClient } from "../support/e2e-fixture.js";
import { startGrpcTap, type GrpcTap } from "../support/grpc-tap.js";
import { runExample } from "../support/readme.js";
import {
  makeDataDir,
  removeDataDir,
  startTurnwire,
  type TurnwireProcess,
} from "../support/turnwire-process.js";

const TURNS_PER_PORT = 500;

/** `it` for a test that needs a tool. */
function itWith(
  tool: "grpcurl" | "ghz" | "python",
  name: string,
  run: () => Promise<void>,
  timeoutMs: number,
): void {
  const { missing } = getTool(tool, console.error);
  if (missing === undefined) it(name, run, timeoutMs);
  else if (process.env["CI"] && canMake(tool))
    it(name, () => {
      throw new Error(missing);
    });
  else {
    console.error(`SKIPPED: ${name}: ${missing}; it needs Go, or Python, and their package registries`);
    it.skip(`${name} (${missing})`, run);
  }
}

describe("README.md with stock tools", () => {
  const dataDir = makeDataDir();
  let server: TurnwireProcess;
  let ports: { 8080: number; 9090: number };

  beforeAll(async () => {
    const config = path.join(dataDir, "models.yaml");
    await writeFile(config, "providers:\n  - { name: demo, api: demo, deltaDelayMs: 1 }\n");
    server = await startTurnwire({ dataDir, env: { TURNWIRE_CONFIG: config } });
    ports = { 8080: Number(server.facts["httpPort"]), 9090: Number(server.facts["grpcPort"]) };
  });
  afterAll(async () => {
    await server?.stop();
    removeDataDir(dataDir);
  });

  itWith(
    "grpcurl",
    "grpcurl lists, describes and calls on both ports",
    async () => {
      const output = await runExample("grpcurl", { ports });
      expect(count(output, /^turnwire\.chat\.v1\.ChatService$/gm)).toBe(2);
      expect(count(output, /^grpc\.health\.v1\.Health$/gm)).toBe(2);
      expect(
        count(output, /rpc SendMessage \( \.turnwire\.chat\.v1\.SendMessageRequest \) returns \( stream /g),
      ).toBe(2);
      expect(count(output, /"overallStop": \{\s+"outcome": "TURN_OUTCOME_COMPLETED"/g)).toBe(2);
    },
    60_000,
  );

  itWith(
    "python",
    "Python reads a turn, cut and resumed, with stubs from proto/",
    async () => {
      const output = await runExample("python", { ports, timeoutMs: 120_000 });
      expect(output).toMatch(/cut after seq \d+\n/);
      expect(output).toMatch(/The tool `clock` answered/);
      expect(output).toMatch(/\d\d packets, none missing, none twice/);
    },
    150_000,
  );

  itWith(
    "ghz",
    `ghz runs ${TURNS_PER_PORT} turns, 20 at once, on both ports, and each call ends with its terminal`,
    async () => {
      const taps = [await startGrpcTap(ports[8080]), await startGrpcTap(ports[9090])];
      try {
        const before = (await endedTurns(server)).length;
        const tapped = { 8080: taps[0]!.port, 9090: taps[1]!.port };
        const output = await runExample("ghz", { ports: tapped, timeoutMs: 240_000 });
        expect(count(output, new RegExp(`\\[OK\\] +${TURNS_PER_PORT} responses`, "g"))).toBe(2);
        expect(output).not.toMatch(/Error distribution/);
        for (const tap of taps) expectWholeTurns(tap);
        const ended = await endedTurns(server);
        expect(ended.length - before).toBe(2 * TURNS_PER_PORT);
        expect(ended.filter(({ outcome }) => outcome !== TurnOutcome.COMPLETED)).toEqual([]);
      } finally {
        await Promise.all(taps.map((tap) => tap.close()));
      }
    },
    260_000,
  );
});

/** Every call: a receipt, then packets 1, 2, 3 ..., the last of which is the turn's end. */
function expectWholeTurns(tap: GrpcTap): void {
  // Reflection came over the same port: its calls are those that carry no receipt.
  const turns = tap
    .calls()
    .filter(({ messages }) => messages.length > 2)
    .map(({ messages, ended }) => {
      const responses = messages.map((message) => fromBinary(SendMessageResponseSchema, message));
      const packets = responses.flatMap((response) => response.packets).filter(({ seq }) => seq > 0);
      const dense = packets.every(({ seq }, index) => seq === index + 1);
      const last = packets.at(-1)?.payload.case;
      return { turnId: responses[0]!.receipt?.turnId, fault: faultOf(ended, dense, last) };
    })
    .filter(({ turnId }) => turnId !== undefined);
  expect(turns.filter(({ fault }) => fault !== undefined)).toEqual([]);
  expect(new Set(turns.map(({ turnId }) => turnId)).size).toBe(TURNS_PER_PORT);
}

function faultOf(ended: boolean, dense: boolean, last: string | undefined): string | undefined {
  if (!ended) return "the call is still open";
  if (!dense) return "a gap or a duplicate";
  return last === "overallStop" ? undefined : `ends with ${last}`;
}

async function endedTurns(server: TurnwireProcess): Promise<{ readonly outcome: TurnOutcome }[]> {
  const client = chatClient(server);
  const turns: { outcome: TurnOutcome }[] = [];
  for (let pageToken = ""; ;) {
    const page = await client.listTurns({ statuses: [TurnStatus.ENDED], pageSize: 1000, pageToken });
    turns.push(...page.turns);
    pageToken = page.nextPageToken;
    if (pageToken === "") return turns;
  }
}

function count(text: string, pattern: RegExp): number {
  return [...text.matchAll(pattern)].length;
}

/**
 * Which models a user has, and who answers, through the whole service: groups of tokens, fallbacks of the configuration, the
 * secret of an arena, what it all cost.
 */
import { writeFileSync } from "node:fs";
import path from "node:path";
import { toJsonString } from "@bufbuild/protobuf";
import { ConnectError } from "@connectrpc/connect";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { PacketSchema, type Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import { TurnOutcome } from "../../gen/turnwire/packet/v1/common_pb.js";
import {
  chatClient,
  expectGrammar,
  expectRowsEqualFold,
  hasToolResult,
  plainAnswer,
  readWhole,
  startWith,
  type ChatClient,
} from "../support/e2e-fixture.js";
import { usePostgres } from "../support/postgres.js";
import {
  finishChunks,
  gate,
  reasoningChunks,
  send,
  startScriptedUpstream,
  status,
  textChunks,
  toolCallChunks,
  type RecordedRequest,
  type Script,
  type ScriptedUpstream,
} from "../support/scripted-upstream.js";
import { makeDataDir, removeDataDir, type TurnwireProcess } from "../support/turnwire-process.js";

const postgres = usePostgres();
const KEY = "sk-canary-of-models-0123456789";

describe("models of a user", () => {
  let one: ScriptedUpstream;
  let two: ScriptedUpstream;
  let server: TurnwireProcess;
  let databaseUrl: string;
  const dataDir = makeDataDir();

  beforeAll(async () => {
    one = await startScriptedUpstream();
    two = await startScriptedUpstream();
    databaseUrl = await postgres.createDatabase();
    const config = path.join(dataDir, "models.yaml");
    writeFileSync(config, configOf(one.url, two.url));
    server = await startWith(one, {
      dataDir,
      databaseUrl,
      env: {
        TURNWIRE_CONFIG: config,
        OPENAI_BASE_URL: "",
        OPENAI_API_KEY: "",
        MODELS_KEY: KEY,
        TURNWIRE_TOKENS: "ann=acme/ann+staff,bob=acme/bob,eve=other/eve+staff",
      },
    });
  });
  afterEach(() => {
    one.replyWith(undefined);
    two.replyWith(undefined);
  });
  afterAll(async () => {
    await server?.stop();
    await one?.close();
    await two?.close();
    removeDataDir(dataDir);
  });

  const as = (user: "ann" | "bob" | "eve"): ChatClient =>
    chatClient(server, { authorization: `Bearer ${user}` });

  async function ask(client: ChatClient, modelId: string, text = "hello") {
    const { receipt } = await client.startTurn({ text, models: [{ modelId }] });
    return { turnId: receipt!.turnId };
  }

  async function whole(client: ChatClient, modelId: string): Promise<{ packets: Packet[]; turnId: string }> {
    const { turnId } = await ask(client, modelId);
    const packets = await readWhole(client, turnId);
    expectGrammar(packets);
    await expectRowsEqualFold(databaseUrl, turnId, packets);
    return { packets, turnId };
  }

  test("groups, tenant and user of the token decide what is listed, by what, and nothing tells of the others", async () => {
    const listed = async (user: "ann" | "bob" | "eve") => {
      const { models } = await as(user).listModels({});
      expect(JSON.stringify(models.map(({ access }) => access?.groups ?? []))).not.toMatch(
        /user:|tenant:|board/,
      );
      return models.map(({ modelId }) => modelId);
    };
    expect(await listed("ann")).toEqual([
      "open",
      "staff-only",
      "of-acme",
      "spare",
      "left",
      "right",
      "duel",
      "demo",
    ]);
    expect(await listed("bob")).toEqual([
      "open",
      "of-acme",
      "of-bob",
      "spare",
      "left",
      "right",
      "duel",
      "demo",
    ]);
    expect(await listed("eve")).toEqual(["open", "staff-only", "spare", "left", "right", "duel", "demo"]);
  });

  test("somebody else's model and one that is not there give the same error, and nobody is asked", async () => {
    const before = one.requests.length + two.requests.length;
    const refusal = async (user: "ann" | "bob", modelId: string) => {
      const error = ConnectError.from(await ask(as(user), modelId).catch((cause: unknown) => cause));
      return JSON.stringify([error.code, error.rawMessage, error.details]).replaceAll(modelId, "MODEL");
    };
    const unknown = await refusal("bob", "no-such-model");
    for (const [user, modelId] of [
      ["bob", "staff-only"],
      ["bob", "staff"],
      ["ann", "of-bob"],
      ["ann", "of-board"],
    ] as const) {
      expect(await refusal(user, modelId)).toBe(unknown);
    }
    expect(one.requests.length + two.requests.length).toBe(before);
  });

  test("a user of the group has the model, under its alias too, for the whole turn", async () => {
    one.replyWith(clockThenAnswer);
    const { packets } = await whole(as("ann"), "staff");
    expect(endOf(packets)).toMatchObject({ outcome: TurnOutcome.COMPLETED, modelId: "staff-only" });
  });

  test("a model that fails - its configured fallback answers, and only one that the user may use", async () => {
    one.replyWith(() => down);
    two.replyWith(clockThenAnswer);
    const asked = two.requests.length;
    const { packets } = await whole(as("eve"), "open");
    expect(endOf(packets)).toMatchObject({ outcome: TurnOutcome.COMPLETED, modelId: "spare" });
    // "of-acme" stands before it, and is not Eve's
    expect(two.requests.slice(asked).map(({ json }) => json?.model)).toEqual(["spare", "spare"]);
    const { cycles, lane, turn } = usagesOf(packets);
    expect(turn).toEqual(lane);
    expect(sum(cycles)).toEqual({ ...lane, attempts: 4 });
  });

  test.each([false, true])(
    "an arena tells its pick, or anything that gives it away, only at the end (the first pick fails: %s)",
    async (fails) => {
      let failed = !fails;
      const script =
        (name: string) =>
        (request: RecordedRequest): Script => {
          if (failed) return hasToolResult(request) ? [gate(`${name}-end`), ...answer()] : clockCall();
          failed = true;
          return [status(503, { "x-provider": name }), send(`{"error":{"message":"${name} is down"}}`)];
        };
      one.replyWith(script("one"));
      two.replyWith(script("two"));
      one.open("one-end");
      two.open("two-end");
      const { packets } = await whole(as("ann"), "duel");
      const end = packets.findIndex(({ payload }) => payload.case === "laneEnd");
      const told = packets.slice(0, end).map((packet) => toJsonString(PacketSchema, packet));
      for (const line of told) expect(line).not.toMatch(/"(?:one|two)|left|right|red-|blue-|costMicros|CHF/);
      expect(endOf(packets).modelId).toMatch(/^(?:left|right)$/);
      const { cycles, lane, turn } = usagesOf(packets);
      expect(turn).toEqual(lane);
      expect(lane).toMatchObject({ currency: "CHF", attempts: fails ? 3 : 2 });
      expect(Number(lane.costMicros)).toBeGreaterThan(0);
      expect(sum(cycles)).toMatchObject({ inputTokens: lane.inputTokens, outputTokens: lane.outputTokens });
    },
  );

  test("a key that a provider echoes in an answer, in an error and in headers is nowhere in packets and logs", async () => {
    one.replyWith(({ headers }) => [
      ...reasoningChunks(`my headers: ${JSON.stringify(headers)}`),
      ...textChunks(`the key is ${KEY}, Authorization: ${headers.authorization}`),
      ...finishChunks("stop"),
    ]);
    const { packets } = await whole(as("bob"), "open");
    two.replyWith(() => [status(401, { "x-key": KEY }), send(`{"error":{"message":"bad key ${KEY}"}}`)]);
    const refused = await whole(as("bob"), "of-bob");
    expect(endOf(refused.packets).outcome).toBe(TurnOutcome.ERROR);
    const all = [...packets, ...refused.packets].map((packet) => toJsonString(PacketSchema, packet)).join("");
    for (const text of [all, server.output()]) expect(text).not.toContain("canary-of-models");
    expect(server.output()).not.toContain(`${KEY.slice(0, 8)}`);
  });
});

const down: Script = [status(503), send(`{"error":{"message":"down"}}`)];
const answer = (): Script => plainAnswer("It is late.");
const clockCall = (): Script => [
  ...toolCallChunks({ id: "call_1", name: "clock", args: { timezone: "Europe/Paris" } }),
  ...finishChunks("tool_calls"),
];
const clockThenAnswer = (request: RecordedRequest): Script =>
  hasToolResult(request) ? answer() : clockCall();

function configOf(one: string, two: string): string {
  return `
providers:
  - { name: one, api: openai-chat, baseUrl: "${one}", apiKeyEnv: MODELS_KEY, limits: { breakerFailures: 0 } }
  - { name: two, api: openai-chat, baseUrl: "${two}", apiKeyEnv: MODELS_KEY, limits: { breakerFailures: 0 } }
models:
  - { id: open, provider: one, fallbacks: [of-acme, spare] }
  - { id: staff-only, provider: one, aliases: [staff], access: [staff, board] }
  - { id: of-acme, provider: two, access: ["tenant:acme"] }
  - { id: of-bob, provider: two, access: ["user:acme/bob"] }
  - { id: of-board, provider: two, access: [board] }
  - { id: spare, provider: two }
  - { id: left, provider: one, upstreamModel: red-1 }
  - { id: right, provider: two, upstreamModel: blue-1 }
routes: [{ id: duel, kind: arena, models: [left, right] }]
prices:
  - { model: left, input: 3, output: 7, currency: CHF }
  - { model: right, input: 5, output: 11, currency: CHF }
  - { model: spare, input: 1, output: 2 }
limits: { llm: { retryDelayMs: 1, maxRetries: 0 } }
`;
}

type Usage = NonNullable<Extract<Packet["payload"], { case: "laneEnd" }>["value"]["usage"]>;

function endOf(packets: readonly Packet[]) {
  const end = packets.find(({ payload }) => payload.case === "laneEnd")?.payload;
  if (end?.case !== "laneEnd") throw new Error("the lane has no end");
  return end.value;
}

function usagesOf(packets: readonly Packet[]): { cycles: Usage[]; lane: Usage; turn: Usage } {
  const cycles = packets.flatMap(({ payload }) =>
    payload.case === "cycleEnd" ? [payload.value.usage!] : [],
  );
  const stop = packets.at(-1)!.payload;
  return {
    cycles,
    lane: endOf(packets).usage!,
    turn: stop.case === "overallStop" ? stop.value.usage! : fail(),
  };
}

function fail(): never {
  throw new Error("the turn has no end");
}

function sum(usages: readonly Usage[]): Record<string, unknown> {
  const total = (of: (usage: Usage) => number) => usages.reduce((all, usage) => all + of(usage), 0);
  return {
    ...usages[0]!,
    inputTokens: total(({ inputTokens }) => inputTokens),
    outputTokens: total(({ outputTokens }) => outputTokens),
    costMicros: String(total(({ costMicros }) => Number(costMicros))),
    attempts: total(({ attempts }) => attempts),
  };
}

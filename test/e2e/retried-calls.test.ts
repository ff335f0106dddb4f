/** A provider that fails, as a turn shows it: what was taken back, what was never seen, what was paid. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { ErrorCode, TurnOutcome } from "../../gen/turnwire/packet/v1/common_pb.js";
import { ResetReason } from "../../gen/turnwire/packet/v1/control_pb.js";
import type { Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import { BlockStatus, type TurnState } from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import {
  chatClient,
  expectGrammar,
  expectRowsEqualFold,
  MODEL,
  readWhole,
  startWith,
  type ChatClient,
} from "../support/e2e-fixture.js";
import { usePostgres } from "../support/postgres.js";
import {
  answerScript,
  destroySocket,
  end,
  reasoningChunks,
  send,
  startScriptedUpstream,
  status,
  textChunks,
  type ScriptedUpstream,
} from "../support/scripted-upstream.js";
import { makeDataDir, removeDataDir, type TurnwireProcess } from "../support/turnwire-process.js";

const postgres = usePostgres();

describe("a provider that fails", () => {
  const dataDir = makeDataDir();
  let upstream: ScriptedUpstream;
  let server: TurnwireProcess;
  let client: ChatClient;
  let databaseUrl: string;

  beforeAll(async () => {
    databaseUrl = await postgres.createDatabase();
    upstream = await startScriptedUpstream();
    server = await startWith(upstream, { dataDir, databaseUrl, natsUrl: undefined });
    client = chatClient(server);
  });
  afterEach(() => upstream.replyWith(undefined));
  afterAll(async () => {
    await server?.stop();
    await upstream?.close();
    removeDataDir(dataDir);
  });

  async function run(): Promise<{ packets: Packet[]; text: string; state: TurnState }> {
    const reply = await client.sendMessageAndWait({ text: "hello", models: [{ modelId: MODEL }] });
    const packets = await readWhole(client, reply.turnId);
    expectGrammar(packets);
    return {
      packets,
      text: reply.text,
      state: await expectRowsEqualFold(databaseUrl, reply.turnId, packets),
    };
  }
  const kinds = (packets: readonly Packet[]) => packets.map(({ payload }) => payload.case);
  const valueOf = (packets: readonly Packet[], kind: Packet["payload"]["case"]) =>
    packets.find(({ payload }) => payload.case === kind)?.payload.value;

  test("before anything was shown - the turn shows one answer, and counts both attempts", async () => {
    upstream.reply([status(503), send("{}")]);
    upstream.reply(answerScript("all is well"));
    const { packets, text } = await run();
    expect(text).toBe("all is well");
    expect(kinds(packets)).not.toContain("cycleReset");
    expect(valueOf(packets, "laneEnd")).toMatchObject({
      outcome: TurnOutcome.COMPLETED,
      usage: { attempts: 2, outputTokens: 20 },
    });
  });

  test("in the reasoning - it is taken back, and the answer has only the second attempt's", async () => {
    upstream.reply([...reasoningChunks("the wrong way"), destroySocket]);
    upstream.reply([...reasoningChunks("the right way"), ...answerScript("done")]);
    const { packets, text, state } = await run();
    expect(text).toBe("done");
    expect(valueOf(packets, "cycleReset")).toMatchObject({ cycle: 1, reason: ResetReason.RETRY });
    const blocks = state.lanes[0]!.blocks.map(({ status: kept, block }) => [
      BlockStatus[kept],
      block.case === "reasoning" ? block.value.text : block.case,
    ]);
    expect(blocks.slice(0, 2)).toEqual([
      ["DISCARDED", "the wrong way"],
      ["DONE", "the right way"],
    ]);
    expect(valueOf(packets, "laneEnd")).toMatchObject({ usage: { attempts: 2, estimated: true } });
  });

  test("in the answer - the end is an error, what was said is kept, nobody is asked again", async () => {
    const asked = upstream.requests.length;
    upstream.reply([...textChunks("half an"), end]);
    const { packets, text } = await run();
    expect(text).toBe("half an");
    expect(valueOf(packets, "overallStop")).toMatchObject({ outcome: TurnOutcome.ERROR });
    expect(valueOf(packets, "laneEnd")).toMatchObject({ error: { code: ErrorCode.UPSTREAM_TRUNCATED } });
    expect(upstream.requests.length - asked).toBe(1);
  });
});

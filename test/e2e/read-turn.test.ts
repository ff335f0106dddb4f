/** One turn, read over every protocol from every cursor, live and from the archive, on both logs: the same bytes (I1, I11). */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  decodePackets,
  chatClient,
  expectGrammar,
  expectRowsEqualFold,
  hexOf,
  MODEL,
  sixtyPackets,
  startWith,
  type ChatClient,
} from "../support/e2e-fixture.js";
import { natsServers, startTestNats, type TestNats } from "../support/nats.js";
import { runSql, usePostgres } from "../support/postgres.js";
import { startScriptedUpstream, type ScriptedUpstream } from "../support/scripted-upstream.js";
import { allReaders, type NamedReader } from "../support/turn-readers.js";
import { makeDataDir, removeDataDir, type TurnwireProcess } from "../support/turnwire-process.js";

const postgres = usePostgres();

describe.each(logs())("a turn of about 60 packets on the %s log", (_name, startLog) => {
  let upstream: ScriptedUpstream;
  let server: TurnwireProcess;
  let client: ChatClient;
  let nats: TestNats | undefined;
  let databaseUrl: string;
  let readers: NamedReader[];
  let turnId: string;
  let whole: Uint8Array[];
  /** Another turn, closed so long ago that the log lets go of it while the tests run. */
  let old: { readonly turnId: string; readonly whole: Uint8Array[] };
  const dataDir = makeDataDir();

  beforeAll(async () => {
    nats = await startLog();
    databaseUrl = await postgres.createDatabase();
    upstream = await startScriptedUpstream();
    upstream.replyWith(sixtyPackets);
    server = await startWith(upstream, { dataDir, databaseUrl, natsUrl: nats?.server.url });
    client = chatClient(server);
    readers = allReaders(server);
    ({ turnId, whole } = await runTurn());
    old = await runTurn();
    await runSql(
      databaseUrl,
      "update turnwire.turns set close_time = close_time - interval '1 day' where turn_id = $1",
      [old.turnId],
    );
  });

  async function runTurn(): Promise<typeof old> {
    const reply = await client.sendMessageAndWait({
      text: "What time is it in Paris?",
      models: [{ modelId: MODEL }],
    });
    return { turnId: reply.turnId, whole: await readers[0]!.read(reply.turnId, 0) };
  }

  afterAll(async () => {
    for (const reader of readers ?? []) reader.close();
    await server?.stop();
    await upstream?.close();
    await nats?.end();
    removeDataDir(dataDir);
  });

  test("obeys the grammar, and its rows are its fold", async () => {
    const packets = decodePackets(whole);
    expect(packets.length).toBeGreaterThan(50);
    expectGrammar(packets);
    const state = await expectRowsEqualFold(databaseUrl, turnId, packets);
    expect(state.lanes[0]!.text).toContain("It is late in Paris: ünïcödé 🕰️");
  });

  test("every protocol reads the same bytes", async () => {
    for (const reader of readers) expect(hexOf(await reader.read(turnId, 0)), reader.name).toBe(hexOf(whole));
  });

  test("cut and resumed at every seq over every protocol: no gap, no duplicate, the same bytes", async () => {
    const expected = hexOf(whole);
    const readCut = async (reader: NamedReader): Promise<void> => {
      for (let cut = 0; cut <= whole.length; cut++) {
        const first = cut === 0 ? [] : await reader.read(turnId, 0, cut);
        const rest = await reader.read(turnId, cut);
        expect(hexOf([...first, ...rest]), `${reader.name}, cut after ${cut}`).toBe(expected);
      }
    };
    await Promise.all(readers.map(readCut));
  }, 120_000);

  test("a running turn: readers of three protocols that come at different times see the same bytes, live", async () => {
    upstream.replyWith((request) => {
      const script = sixtyPackets(request);
      return script.flatMap((step, index) =>
        index === 10 ? [{ kind: "gate", name: `middle-${upstream.requests.length}` } as const, step] : [step],
      );
    });
    const started = await client.startTurn({ text: "again, slowly", models: [{ modelId: MODEL }] });
    const live = started.receipt!.turnId;
    const count = upstream.requests.length + 1;
    await upstream.reached(`middle-${count}`);
    const early = [readers[0]!, readers[3]!, readers[6]!].map((reader) => reader.read(live, 0));
    const six = await readers[1]!.read(live, 0, 6); // a cut in the middle of what is there
    const resumed = readers[4]!.read(live, 6);
    upstream.open(`middle-${count}`);
    await upstream.reached(`middle-${count + 1}`);
    const late = readers[7]!.read(live, 20);
    upstream.open(`middle-${count + 1}`);
    const [first, ...others] = await Promise.all(early);
    expectGrammar(decodePackets(first!));
    for (const other of others) expect(hexOf(other)).toBe(hexOf(first!));
    expect(hexOf([...six, ...(await resumed)])).toBe(hexOf(first!));
    expect(hexOf(await late)).toBe(hexOf(first!.slice(20)));
    upstream.replyWith(sixtyPackets);
  });

  test("the same bytes again when the log has let go of the turn", async () => {
    await expect
      .poll(
        async () =>
          (
            await runSql(databaseUrl, "select erased from turnwire.turns where turn_id = $1", [old.turnId])
          )[0]!["erased"],
        { timeout: 60_000, interval: 200 },
      )
      .toBe(true);
    for (const reader of readers) {
      expect(hexOf(await reader.read(old.turnId, 0)), reader.name).toBe(hexOf(old.whole));
      expect(hexOf(await reader.read(old.turnId, 31)), reader.name).toBe(hexOf(old.whole.slice(31)));
    }
  }, 90_000);
});

/** Postgres, and JetStream on the oldest and newest server to be had. */
function logs(): [string, () => Promise<TestNats | undefined>][] {
  return [
    ["Postgres", () => Promise.resolve(undefined)],
    ...natsServers().map((binary): [string, () => Promise<TestNats>] => [
      `JetStream ${binary.version}`,
      () => startTestNats(binary),
    ]),
  ];
}

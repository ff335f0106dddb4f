import pg from "pg";
import { describe, expect, it } from "vitest";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { systemClock } from "../../src/lib/clock.js";
import { newId } from "../../src/lib/ids.js";
import { silentLogger } from "../../src/lib/log.js";
import { whileUnavailable } from "../../src/lib/retry.js";
import { connectPgStore } from "../../src/store/pg-store.js";
import type { TurnRow } from "../../src/store/store.js";
import { runSql, usePostgres } from "../support/postgres.js";
import { ALICE, commitOf, runningTurn, send, useStore } from "../support/store-fixtures.js";

const postgres = usePostgres();
const stores = useStore(postgres);

/** Kills the server; it starts again by itself, on the same port. */
function killPostgres(): number {
  const { pid } = postgres.server;
  process.kill(pid, "SIGKILL");
  return pid;
}

async function restarted(oldPid: number): Promise<void> {
  await expect.poll(() => postgres.server.pid, { timeout: 20_000, interval: 20 }).not.toBe(oldPid);
}

function patiently<T>(action: () => Promise<T>): Promise<T> {
  return whileUnavailable(action, systemClock, AbortSignal.timeout(20_000));
}

describe("Postgres is killed (-9) and started again", () => {
  it("the pool recovers: the next calls answer, without help", async () => {
    const { turn } = await runningTurn(stores.store);
    for (let round = 0; round < 3; round++) {
      const pid = killPostgres();
      expect(await patiently(() => stores.store.getTurn(ALICE, turn.turnId))).toMatchObject({ epoch: 1 });
      await restarted(pid);
      expect(
        await stores.store.saveCheckpoint(turn.turnId, 1, {
          kind: "cycle",
          modelIndex: 0,
          cycle: round,
          data: Buffer.from("c"),
        }),
      ).toBe(true);
    }
    expect((await stores.store.listCheckpoints(turn.turnId)).length).toBe(3);
  });

  it("20 commits in flight, repeated - each is applied once, and every accepted turn is kept (I10)", async () => {
    for (let round = 0; round < 3; round++) {
      const turns: TurnRow[] = [];
      for (let i = 0; i < 20; i++) turns.push((await runningTurn(stores.store)).turn);
      const commits = turns.map((turn) =>
        patiently(() =>
          stores.store.commitTurn(
            commitOf(turn, { archive: { firstSeq: 1, lastSeq: 60, batch: Buffer.alloc(50_000, 7) } }),
          ),
        ),
      );
      const pid = killPostgres();
      expect(await Promise.all(commits)).toEqual(turns.map(() => "committed"));
      await restarted(pid);
      const ids = [turns.map((turn) => turn.turnId)];
      const counts = await patientSql(
        `select (select count(*)::int from turnwire.turns where turn_id = any ($1) and phase = 2) as turns,
          (select count(*)::int from turnwire.usage where turn_id = any ($1)) as usage,
          (select count(*)::int from turnwire.archive_parts where turn_id = any ($1)) as parts`,
        ids,
      );
      expect(counts).toEqual([{ turns: 20, usage: 20, parts: 20 }]);
    }
  });

  it("accepts in flight, repeated by their callers - accepted once, by the same call, and there afterwards", async () => {
    const inputs = Array.from({ length: 20 }, () => send());
    const accepts = inputs.map((input) => patiently(() => stores.store.acceptTurn(input)));
    const pid = killPostgres();
    const outcomes = await Promise.all(accepts);
    expect(outcomes.map((outcome) => outcome.kind)).toEqual(inputs.map(() => "accepted"));
    await restarted(pid);
    for (const input of inputs) {
      expect(await patiently(() => stores.store.getTurnByRequest(ALICE, input.requestId))).toMatchObject({
        turnId: input.turnId,
      });
    }
  });

  it("the listener listens again, and its owner is called to look", async () => {
    const owner = newId();
    let wakes = 0;
    const unsubscribe = stores.store.onCommand(owner, () => wakes++);
    await expect.poll(() => wakes, { timeout: 15_000 }).toBeGreaterThan(0);
    const { turn } = await runningTurn(stores.store, { owner });
    const before = wakes;
    const pid = killPostgres();
    await restarted(pid);
    await expect.poll(() => wakes, { timeout: 10_000 }).toBeGreaterThan(before);
    const reconnected = wakes;
    await patiently(() => stores.store.requestStop(ALICE, { kind: "turn", turnId: turn.turnId }, undefined));
    await expect.poll(() => wakes, { timeout: 15_000 }).toBeGreaterThan(reconnected);
    unsubscribe();
  });
});

describe("Postgres does not answer", () => {
  it("gone for good - every call fails with UNAVAILABLE in a bounded time", async () => {
    const url = await postgres.createDatabase();
    const store = await connectPgStore({ connectionString: url, logger: silentLogger });
    // Its database alone goes: no new connections, and the old ones end.
    const name = url.replace(/^.*\//, "");
    await runSql(postgres.url, `alter database ${name} with allow_connections false`);
    await runSql(postgres.url, "select pg_terminate_backend(pid) from pg_stat_activity where datname = $1", [
      name,
    ]);
    const began = performance.now();
    const calls = [
      store.getTurn(ALICE, newId()),
      store.acceptTurn(send()),
      store.beat("x"),
      store.ping(AbortSignal.timeout(10_000)),
      store.listSessions(ALICE, { size: 1, token: "" }, { query: "", onlyActive: false }),
    ];
    for (const outcome of await Promise.allSettled(calls)) {
      expect(outcome).toMatchObject({ status: "rejected", reason: { code: ErrorCode.UNAVAILABLE } });
    }
    expect(performance.now() - began).toBeLessThan(5_000);
    await store.close();
  });

  it("all connections for clients are taken - UNAVAILABLE within about 4 s, and the writers of turns go on", async () => {
    const { session, turn } = await runningTurn(stores.store);
    const blocker = new pg.Client({ connectionString: postgres.url });
    await blocker.connect();
    try {
      await blocker.query("begin");
      await blocker.query("select 1 from turnwire.sessions where session_id = $1 for update", [
        session.sessionId,
      ]);
      // More sends than there are connections, all of them waiting for that session.
      const stuck = Array.from({ length: 12 }, () =>
        stores.store.acceptTurn(send({ sessionId: session.sessionId })).catch((error: unknown) => error),
      );
      await expect
        .poll(() =>
          runSql(
            postgres.url,
            "select count(*)::int as n from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()",
          ),
        )
        .toEqual([{ n: 12 }]);
      const began = performance.now();
      await expect(stores.store.getSession(ALICE, session.sessionId)).rejects.toMatchObject({
        code: ErrorCode.UNAVAILABLE,
      });
      expect(performance.now() - began).toBeLessThan(4_500);
      expect(
        await stores.store.saveCheckpoint(turn.turnId, 1, {
          kind: "input",
          modelIndex: 0,
          data: Buffer.from("c"),
        }),
      ).toBe(true);
      await blocker.query("rollback");
      await Promise.all(stuck);
    } finally {
      await blocker.end();
    }
  });

  it("a frozen backend (SIGSTOP) - the call ends with UNAVAILABLE, and the store goes on over another connection", async () => {
    const url = await postgres.createDatabase();
    const store = await connectPgStore({ connectionString: url, logger: silentLogger });
    const pids: number[] = [];
    try {
      await store.ping(AbortSignal.timeout(5_000));
      const name = url.replace(/^.*\//, "");
      const rows = await runSql(postgres.url, "select pid from pg_stat_activity where datname = $1", [name]);
      for (const row of rows) pids.push(Number(row.pid));
      expect(pids.length).toBeGreaterThan(0);
      for (const pid of pids) process.kill(pid, "SIGSTOP");
      await expect(store.ping(AbortSignal.timeout(20_000))).rejects.toMatchObject({
        code: ErrorCode.UNAVAILABLE,
      });
      await store.ping(AbortSignal.timeout(5_000));
    } finally {
      for (const pid of pids) process.kill(pid, "SIGCONT");
      await store.close();
    }
  });
});

function patientSql(text: string, values: unknown[]): Promise<Record<string, unknown>[]> {
  return expect
    .poll(() => runSql(postgres.url, text, values).catch(() => undefined))
    .toBeDefined()
    .then(() => runSql(postgres.url, text, values));
}

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { newId } from "../../src/lib/ids.js";
import { silentLogger } from "../../src/lib/log.js";
import { connectPgStore } from "../../src/store/pg-store.js";
import type { Store } from "../../src/store/store.js";
import { runSql, usePostgres } from "../support/postgres.js";
import { ALICE, closedTurn, commitOf, runningTurn, useStore } from "../support/store-fixtures.js";

const postgres = usePostgres();
const stores = useStore(postgres);
/** The store of another replica. */
let elsewhere: Store;

beforeAll(async () => {
  elsewhere = await connectPgStore({ connectionString: postgres.url, logger: silentLogger });
});
afterAll(() => elsewhere.close());
// The first wake is that of the listener's connection: from then on only notifications wake.
beforeAll(() => new Promise<void>((resolve) => void stores.store.onCommand("warm-up", resolve)));

/** Wakes of an owner, counted. */
function countWakes(owner: string): { readonly count: number; unsubscribe: () => void } {
  let count = 0;
  const unsubscribe = stores.store.onCommand(owner, () => count++);
  return {
    get count() {
      return count;
    },
    unsubscribe,
  };
}

describe("stops", () => {
  it("by turn, request and session - stored once, listed for the owner until answered", async () => {
    const owner = newId();
    const { turn, session } = await runningTurn(stores.store, { owner });
    for (const target of [
      { kind: "turn", turnId: turn.turnId },
      { kind: "request", requestId: turn.requestId },
      { kind: "session", sessionId: session.sessionId },
    ] as const) {
      expect(await stores.store.requestStop(ALICE, target, undefined)).toMatchObject({
        kind: "requested",
        turn: { turnId: turn.turnId, epoch: 1 },
      });
    }
    expect(await stores.store.listCommands(owner)).toEqual([
      { turnId: turn.turnId, kind: "stop", modelIndex: undefined },
    ]);
    expect(await stores.store.listCommands(newId())).toEqual([]);
    await stores.store.answerStop(turn.turnId, 17);
    expect(await stores.store.listCommands(owner)).toEqual([]);
    expect(await elsewhere.waitStopped(turn.turnId, 0, AbortSignal.timeout(5_000))).toBe(17);
  });

  it("of a turn that has ended, of an idle session, of nothing", async () => {
    const { turn, session } = await closedTurn(stores.store);
    expect(await stores.store.requestStop(ALICE, { kind: "turn", turnId: turn.turnId }, undefined)).toEqual({
      kind: "ended",
      turn,
    });
    expect(
      await stores.store.requestStop(ALICE, { kind: "request", requestId: turn.requestId }, undefined),
    ).toEqual({ kind: "ended", turn });
    expect(
      await stores.store.requestStop(ALICE, { kind: "session", sessionId: session.sessionId }, undefined),
    ).toEqual({ kind: "idle" });
    expect(await stores.store.requestStop(ALICE, { kind: "turn", turnId: newId() }, undefined)).toEqual({
      kind: "not_found",
    });
    expect(await stores.store.requestStop(ALICE, { kind: "session", sessionId: newId() }, undefined)).toEqual(
      { kind: "not_found" },
    );
  });

  it("of one lane - answered by itself; an unknown lane is refused and not stored", async () => {
    const owner = newId();
    const lanes = [0, 1].map((modelIndex) => ({ modelIndex, modelId: "m", messageId: newId() }));
    const { turn } = await runningTurn(stores.store, { owner, lanes });
    const target = { kind: "turn", turnId: turn.turnId } as const;
    await expect(stores.store.requestStop(ALICE, target, 2)).rejects.toMatchObject({
      code: ErrorCode.INVALID_ARGUMENT,
    });
    expect(await stores.store.listCommands(owner)).toEqual([]);
    await stores.store.requestStop(ALICE, target, 1);
    await stores.store.requestStop(ALICE, target, undefined);
    // The answer to the lane's stop must not settle the whole turn's, which the owner has not seen yet.
    await stores.store.answerStop(turn.turnId, 5, 1);
    expect(await stores.store.listCommands(owner)).toEqual([
      { turnId: turn.turnId, kind: "stop", modelIndex: undefined },
    ]);
    expect(await stores.store.waitStopped(turn.turnId, 0, AbortSignal.timeout(5_000))).toBeUndefined();
    await stores.store.answerStop(turn.turnId, 9);
    expect(await stores.store.waitStopped(turn.turnId, 0, AbortSignal.timeout(5_000))).toBe(9);
  });

  it("a stop of a turn that then ends is no longer listed, and its waiter gets the terminal's seq", async () => {
    const owner = newId();
    const { turn } = await runningTurn(stores.store, { owner });
    await stores.store.requestStop(ALICE, { kind: "turn", turnId: turn.turnId }, undefined);
    const waiting = elsewhere.waitStopped(turn.turnId, 10_000, AbortSignal.timeout(20_000));
    await stores.store.commitTurn(commitOf(turn));
    expect(await waiting).toBe(61);
    expect(await stores.store.listCommands(owner)).toEqual([]);
  });

  it("a stop and the commit at the same moment - the stop is stored for a running turn, or told that it ended", async () => {
    for (let round = 0; round < 20; round++) {
      const { turn } = await runningTurn(stores.store);
      const [stop] = await Promise.all([
        elsewhere.requestStop(ALICE, { kind: "turn", turnId: turn.turnId }, undefined),
        stores.store.commitTurn(commitOf(turn)),
      ]);
      if (stop.kind === "ended") expect(stop.turn.terminalSeq).toBe(61);
      else expect(stop.kind).toBe("requested");
    }
  });
});

describe("waking", () => {
  it("the owner is woken by another replica's stop, and by no one else's", async () => {
    const owner = newId();
    const wakes = countWakes(owner);
    const { turn } = await runningTurn(elsewhere, { owner });
    const { turn: foreign } = await runningTurn(elsewhere, { owner: newId() });
    await elsewhere.requestStop(ALICE, { kind: "turn", turnId: foreign.turnId }, undefined);
    await elsewhere.requestStop(ALICE, { kind: "turn", turnId: turn.turnId }, undefined);
    await expect.poll(() => wakes.count, { timeout: 15_000 }).toBe(1);

    wakes.unsubscribe();
    const later = countWakes(owner);
    await elsewhere.requestStop(ALICE, { kind: "turn", turnId: turn.turnId }, undefined);
    await expect.poll(() => later.count, { timeout: 15_000 }).toBe(1);
    expect(wakes.count).toBe(1);
    later.unsubscribe();
  });

  it("whoever waits is woken by the answer from elsewhere, well before its time is up", async () => {
    const { turn } = await runningTurn(stores.store);
    await stores.store.requestStop(ALICE, { kind: "turn", turnId: turn.turnId }, undefined);
    const waiting = stores.store.waitStopped(turn.turnId, 10_000, AbortSignal.timeout(20_000));
    await elsewhere.answerStop(turn.turnId, 33);
    expect(await waiting).toBe(33);
  });

  it("waiting ends at its time, and with its signal", async () => {
    const { turn } = await runningTurn(stores.store);
    await stores.store.requestStop(ALICE, { kind: "turn", turnId: turn.turnId }, undefined);
    expect(await stores.store.waitStopped(turn.turnId, 30, AbortSignal.timeout(5_000))).toBeUndefined();
    const leave = new AbortController();
    const reason = new Error("client left");
    const waiting = stores.store.waitStopped(turn.turnId, 60_000, leave.signal);
    leave.abort(reason);
    await expect(waiting).rejects.toBe(reason);
  });

  it("a listener that lost its connection listens again, and calls its owner to look", async () => {
    const owner = newId();
    const wakes = countWakes(owner);
    const before = wakes.count;
    const ended = await runSql(
      postgres.url,
      "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'turnwire-listener' and datname = current_database()",
    );
    expect(ended.length).toBeGreaterThan(0);
    await expect.poll(() => wakes.count, { timeout: 15_000 }).toBeGreaterThan(before);
    const { turn } = await runningTurn(elsewhere, { owner });
    const reconnected = wakes.count;
    await elsewhere.requestStop(ALICE, { kind: "turn", turnId: turn.turnId }, undefined);
    await expect.poll(() => wakes.count, { timeout: 15_000 }).toBeGreaterThan(reconnected);
    wakes.unsubscribe();
  });

  it("a wake-up that gets lost costs a waiter a fraction of a second, not the answer", async () => {
    const { turn } = await runningTurn(stores.store);
    await stores.store.requestStop(ALICE, { kind: "turn", turnId: turn.turnId }, undefined);
    const waiting = stores.store.waitStopped(turn.turnId, 10_000, AbortSignal.timeout(20_000));
    // Stored by hand: nobody is notified.
    await runSql(postgres.url, "update turnwire.turn_commands set stop_seq = 4 where turn_id = $1", [
      turn.turnId,
    ]);
    expect(await waiting).toBe(4);
  });
});

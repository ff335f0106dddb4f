import pg from "pg";
import { describe, expect, it } from "vitest";
import { ErrorCode, TurnOutcome } from "../../gen/turnwire/packet/v1/common_pb.js";
import { newId } from "../../src/lib/ids.js";
import { silentLogger } from "../../src/lib/log.js";
import { connectPgStore } from "../../src/store/pg-store.js";
import { runSql, usePostgres } from "../support/postgres.js";
import {
  accept,
  ALICE,
  allPages,
  closedTurn,
  commitOf,
  FIRST_PAGE,
  runningTurn,
  send,
  useStore,
} from "../support/store-fixtures.js";

const postgres = usePostgres();
const stores = useStore(postgres);

describe("acceptTurn", () => {
  it("a new session - session, messages, lanes and turn, all there at once", async () => {
    const input = send({
      lanes: [
        { modelIndex: 1, modelId: "second", messageId: newId() },
        { modelIndex: 0, modelId: "first", messageId: newId() },
      ],
    });
    const outcome = await stores.store.acceptTurn(input);
    if (outcome.kind !== "accepted") throw new Error(outcome.kind);
    const { turn, session } = outcome;
    expect(outcome.stopRequested).toBe(false);
    expect(turn).toMatchObject({
      sessionId: input.newSession.sessionId,
      phase: "running",
      epoch: 0,
      sessionCreated: true,
      owner: "process-1",
      partition: 3,
    });
    expect(turn.lanes.map((lane) => lane.modelId)).toEqual(["first", "second"]);
    expect(session).toMatchObject({
      title: "First words",
      currentMessageId: input.lanes[1]!.messageId,
      revision: 1n,
    });
    expect(plain(await stores.store.loadTurn(turn.turnId))).toEqual(plain(turn));
    expect(await stores.store.getSession(ALICE, session.sessionId)).toEqual(session);
    const branch = await stores.store.branch(ALICE, input.lanes[0]!.messageId, 10);
    expect(branch.map((message) => [message.messageId, message.modelIndex, message.parentMessageId])).toEqual(
      [
        [input.userMessageId, undefined, ""],
        [input.lanes[0]!.messageId, 1, input.userMessageId],
      ],
    );
    expect(branch[0]!.childMessageIds).toEqual([input.lanes[1]!.messageId, input.lanes[0]!.messageId]);
  });

  it("an existing session - goes on from the end of its branch, and an empty title is filled once", async () => {
    const made = await stores.store.createSession(ALICE, {
      sessionId: newId(),
      requestId: "",
      settings: new Uint8Array(),
      title: "",
      tags: [],
    });
    const { turn: first, session } = await closedTurn(stores.store, { sessionId: made.sessionId });
    expect(session.title).toBe("First words");
    const second = await accept(stores.store, {
      sessionId: made.sessionId,
      newSession: { sessionId: newId(), settings: new Uint8Array(), title: "Later" },
    });
    expect(second.session).toMatchObject({ title: "First words", sessionId: made.sessionId });
    expect(second.turn.sessionCreated).toBe(false);
    const [message] = await stores.store.branch(ALICE, second.turn.userMessageId, 1);
    expect(message!.parentMessageId).toBe(first.lanes[0]!.messageId);
  });

  it("parents - an assistant message of this session, or the root; nothing else, and nothing is stored then", async () => {
    const { session, turn } = await closedTurn(stores.store);
    const { turn: foreign } = await closedTurn(stores.store);
    const sessionId = session.sessionId;
    const declined = send({ sessionId, parentMessageId: turn.userMessageId });
    expect(await stores.store.acceptTurn(declined)).toEqual({ kind: "parent_not_found" });
    expect(
      await stores.store.acceptTurn(send({ sessionId, parentMessageId: foreign.lanes[0]!.messageId })),
    ).toEqual({ kind: "parent_not_found" });
    expect(await stores.store.acceptTurn(send({ sessionId, parentMessageId: newId() }))).toEqual({
      kind: "parent_not_found",
    });
    expect(await stores.store.getTurnByRequest(ALICE, declined.requestId)).toBeUndefined();
    // The declined request_id is free.
    expect((await stores.store.acceptTurn({ ...declined, parentMessageId: "" })).kind).toBe("accepted");
  });

  it("an unknown session is not found, and leaves no trace of the request", async () => {
    const input = send({ sessionId: newId() });
    expect(await stores.store.acceptTurn(input)).toEqual({ kind: "session_not_found" });
    expect(
      await runSql(postgres.url, "select 1 from turnwire.turn_requests where request_id = $1", [
        input.requestId,
      ]),
    ).toEqual([]);
  });

  it("the same request again - replayed with an equal hash, a conflict with another, per user", async () => {
    const input = send();
    await stores.store.acceptTurn(input);
    const again = {
      ...input,
      turnId: newId(),
      userMessageId: newId(),
      newSession: { ...input.newSession, sessionId: newId() },
    };
    const replayed = await stores.store.acceptTurn(again);
    expect(replayed).toMatchObject({
      kind: "replayed",
      turn: { turnId: input.turnId, sessionId: input.newSession.sessionId },
    });
    expect(await stores.store.acceptTurn({ ...again, requestHash: "other" })).toEqual({ kind: "conflict" });
    const other = send({ requestId: input.requestId, principal: { ...ALICE, userId: "bob" } });
    expect((await stores.store.acceptTurn(other)).kind).toBe("accepted");
  });

  it("the very same call again, after the turn was taken over - replayed: it is not to be run twice", async () => {
    const input = send();
    const { turnId } = (await accept(stores.store, input)).turn;
    expect(await stores.store.takeTurn(turnId, 0, 1, "heir")).toBe(true);
    expect(await stores.store.acceptTurn(input)).toMatchObject({
      kind: "replayed",
      turn: { turnId, epoch: 1, owner: "heir" },
    });
  });

  it("the very same call again, as after a lost answer, is accepted again: its turn has no other owner", async () => {
    const input = send();
    const first = await stores.store.acceptTurn(input);
    const second = await stores.store.acceptTurn(input);
    expect(plain(second)).toEqual(plain(first));
  });

  it("100 duplicates at once - one turn (I7)", async () => {
    const requestId = newId();
    const outcomes = await Promise.all(
      Array.from({ length: 100 }, () => stores.store.acceptTurn(send({ requestId }))),
    );
    const accepted = outcomes.filter((outcome) => outcome.kind === "accepted");
    expect(accepted.length).toBe(1);
    expect(outcomes.filter((outcome) => outcome.kind === "replayed").length).toBe(99);
    expect(
      new Set(
        outcomes.map((outcome) =>
          outcome.kind === "accepted" || outcome.kind === "replayed" ? outcome.turn.turnId : outcome.kind,
        ),
      ).size,
    ).toBe(1);
    const turns = await runSql(postgres.url, "select 1 from turnwire.turns where request_id = $1", [
      requestId,
    ]);
    expect(turns.length).toBe(1);
  });

  it("100 duplicates at once into one session - one turn, none is told busy by itself", async () => {
    const { session } = await closedTurn(stores.store);
    const requestId = newId();
    const outcomes = await Promise.all(
      Array.from({ length: 100 }, () =>
        stores.store.acceptTurn(send({ requestId, sessionId: session.sessionId })),
      ),
    );
    expect(outcomes.map((outcome) => outcome.kind).toSorted()).toEqual([
      "accepted",
      ...Array.from({ length: 99 }, () => "replayed"),
    ]);
  });

  it("20 sends at once into one session - one is accepted, the others are busy with it, and are free to come again", async () => {
    const { session } = await closedTurn(stores.store);
    const inputs = Array.from({ length: 20 }, () => send({ sessionId: session.sessionId }));
    const outcomes = await Promise.all(inputs.map((input) => stores.store.acceptTurn(input)));
    const winner = outcomes.find((outcome) => outcome.kind === "accepted")!;
    expect(outcomes.filter((outcome) => outcome.kind === "busy")).toEqual(
      Array.from({ length: 19 }, () => ({
        kind: "busy",
        turnId: winner.kind === "accepted" ? winner.turn.turnId : "",
      })),
    );
    const turn = winner.kind === "accepted" ? winner.turn : undefined!;
    await stores.store.commitTurn(commitOf(turn));
    const late = inputs.find((input) => input.turnId !== turn.turnId)!;
    expect((await stores.store.acceptTurn(late)).kind).toBe("accepted");
  });

  it("commit - a session goes on from a lane that answered, not from one that failed", async () => {
    const lanes = [0, 1, 2].map((modelIndex) => ({ modelIndex, modelId: "demo", messageId: newId() }));
    const goesOnFrom = async (outcomes: readonly TurnOutcome[]): Promise<number> => {
      const own = lanes.map((lane) => ({ ...lane, messageId: newId() }));
      const { turn, session } = await runningTurn(stores.store, { lanes: own });
      const { lanes: ended } = commitOf(turn);
      await stores.store.commitTurn(
        commitOf(turn, { lanes: ended.map((lane, index) => ({ ...lane, outcome: outcomes[index]! })) }),
      );
      const { currentMessageId } = (await stores.store.getSession(ALICE, session.sessionId))!;
      return own.findIndex(({ messageId }) => messageId === currentMessageId);
    };
    const { COMPLETED, ERROR, STOPPED } = TurnOutcome;
    expect(await goesOnFrom([COMPLETED, ERROR, COMPLETED])).toBe(0);
    expect(await goesOnFrom([ERROR, STOPPED, COMPLETED])).toBe(2);
    expect(await goesOnFrom([STOPPED, COMPLETED, COMPLETED])).toBe(1);
    expect(await goesOnFrom([ERROR, STOPPED, ERROR])).toBe(0);
  });

  it("findAccepted - what a repeat would get, without accepting anything", async () => {
    const input = send({});
    const find = (hash: string) => stores.store.findAccepted(ALICE, input.requestId, hash);
    expect(await find(input.requestHash)).toBeUndefined();
    await stores.store.requestStop(ALICE, { kind: "request", requestId: input.requestId }, undefined);
    expect(await find(input.requestHash)).toBeUndefined();
    const outcome = await stores.store.acceptTurn(input);
    const turnId = outcome.kind === "accepted" ? outcome.turn.turnId : "";
    expect(await find(input.requestHash)).toMatchObject({ kind: "replayed", turn: { turnId } });
    expect(await find("another hash")).toEqual({ kind: "conflict" });
    const stranger = { ...ALICE, userId: "stranger" };
    expect(await stores.store.findAccepted(stranger, input.requestId, input.requestHash)).toBeUndefined();
  });

  it("a stop that came first - the send is accepted once, to be stopped", async () => {
    const requestId = newId();
    expect(await stores.store.requestStop(ALICE, { kind: "request", requestId }, undefined)).toEqual({
      kind: "tombstone",
    });
    expect(await stores.store.requestStop(ALICE, { kind: "request", requestId }, undefined)).toEqual({
      kind: "tombstone",
    });
    expect(await stores.store.getTurnByRequest(ALICE, requestId)).toBeUndefined();
    const { stopRequested, turn } = await accept(stores.store, { requestId });
    expect(stopRequested).toBe(true);
    expect(await stores.store.requestStop(ALICE, { kind: "request", requestId }, undefined)).toMatchObject({
      kind: "requested",
      turn: { turnId: turn.turnId },
    });
  });

  it("a tombstone is forgotten after ten minutes", async () => {
    const requestId = newId();
    await stores.store.requestStop(ALICE, { kind: "request", requestId }, undefined);
    await runSql(
      postgres.url,
      "update turnwire.turn_requests set stop_time = stop_time - interval '601 seconds' where request_id = $1",
      [requestId],
    );
    expect((await accept(stores.store, { requestId })).stopRequested).toBe(false);
    const forgotten = newId();
    await stores.store.requestStop(ALICE, { kind: "request", requestId: forgotten }, undefined);
    await runSql(
      postgres.url,
      "update turnwire.turn_requests set stop_time = stop_time - interval '601 seconds' where request_id = $1",
      [forgotten],
    );
    await stores.store.requestStop(ALICE, { kind: "request", requestId: newId() }, undefined);
    expect(
      await runSql(postgres.url, "select 1 from turnwire.turn_requests where request_id = $1", [forgotten]),
    ).toEqual([]);
  });

  it("a stop and its send at the same moment never miss each other", async () => {
    for (let round = 0; round < 30; round++) {
      const requestId = newId();
      const [outcome, stop] = await Promise.all([
        stores.store.acceptTurn(send({ requestId })),
        stores.store.requestStop(ALICE, { kind: "request", requestId }, undefined),
      ]);
      if (outcome.kind !== "accepted") throw new Error(outcome.kind);
      expect(outcome.stopRequested || stop.kind === "requested").toBe(true);
    }
  });

  it("U+0000 in an id or a title is refused before it reaches the database", async () => {
    const refused = expect.objectContaining({ code: ErrorCode.INVALID_ARGUMENT });
    await expect(stores.store.acceptTurn(send({ requestId: "a\0" }))).rejects.toEqual(refused);
    await expect(
      stores.store.acceptTurn(
        send({ newSession: { sessionId: newId(), settings: new Uint8Array(), title: "\0" } }),
      ),
    ).rejects.toEqual(refused);
    await expect(stores.store.getTurn(ALICE, "\0")).rejects.toEqual(refused);
  });

  it("holds no connection and no transaction afterwards, whatever it answered", async () => {
    await stores.store.acceptTurn(send({ sessionId: newId() }));
    await stores.store.acceptTurn(send());
    const open = await runSql(
      postgres.url,
      "select state from pg_stat_activity where application_name = 'turnwire' and datname = current_database() and state like 'idle in transaction%'",
    );
    expect(open).toEqual([]);
  });
});

describe("reading turns", () => {
  it("listTurns - newest first, by session and phase, in pages", async () => {
    const { session, turn: first } = await closedTurn(stores.store);
    const { turn: second } = await closedTurn(stores.store, { sessionId: session.sessionId });
    const { turn: third } = await runningTurn(stores.store, { sessionId: session.sessionId });
    const order = [first, second, third];
    for (const [hoursAgo, turn] of order.toReversed().entries()) {
      await runSql(
        postgres.url,
        "update turnwire.turns set start_time = start_time - $2 * interval '1 hour' where turn_id = $1",
        [turn.turnId, hoursAgo],
      );
    }
    const list = async (phases: readonly ("running" | "committed" | "closed")[]): Promise<string[]> =>
      (
        await allPages((token) =>
          stores.store.listTurns(ALICE, { size: 1, token }, { sessionId: session.sessionId, phases }),
        )
      )
        .flat()
        .map((turn) => turn.turnId);
    expect(await list([])).toEqual([third.turnId, second.turnId, first.turnId]);
    expect(await list(["running"])).toEqual([third.turnId]);
    expect(await list(["committed", "closed"])).toEqual([second.turnId, first.turnId]);
    const page = await stores.store.listTurns(
      ALICE,
      { size: 1, token: "" },
      { sessionId: session.sessionId, phases: [] },
    );
    await expect(
      stores.store.listTurns(ALICE, { size: 1, token: page.nextToken }, { sessionId: "", phases: [] }),
    ).rejects.toMatchObject({
      code: ErrorCode.INVALID_ARGUMENT,
    });
    expect(
      (await stores.store.listTurns(ALICE, FIRST_PAGE, { sessionId: "", phases: ["running"] })).rows.map(
        (turn) => turn.turnId,
      ),
    ).toContain(third.turnId);
  });

  it("getTurn, getTurnByRequest, loadTurn - the same row; unknown ids are undefined", async () => {
    const { turn } = await closedTurn(stores.store);
    expect(await stores.store.getTurn(ALICE, turn.turnId)).toEqual(turn);
    expect(await stores.store.getTurnByRequest(ALICE, turn.requestId)).toEqual(turn);
    expect(await stores.store.getTurn(ALICE, newId())).toBeUndefined();
    expect(await stores.store.loadTurn(newId())).toBeUndefined();
  });
});

describe("janitor and recovery", () => {
  it("listErasable - closed turns only, after their time, until they are marked", async () => {
    const { turn } = await closedTurn(stores.store);
    const { turn: running } = await runningTurn(stores.store);
    const erasable = async (olderThanMs: number): Promise<string[]> =>
      (await stores.store.listErasable(olderThanMs, 1000)).map((row) => row.turnId);
    expect(await erasable(60_000)).not.toContain(turn.turnId);
    await runSql(
      postgres.url,
      "update turnwire.turns set close_time = close_time - interval '61 seconds' where turn_id = $1",
      [turn.turnId],
    );
    expect(await erasable(60_000)).toContain(turn.turnId);
    expect(await erasable(0)).not.toContain(running.turnId);
    await stores.store.markErased([turn.turnId, running.turnId]);
    expect(await erasable(60_000)).not.toContain(turn.turnId);
    await stores.store.commitTurn(commitOf(running));
    await stores.store.markClosed(running.turnId);
    await runSql(
      postgres.url,
      "update turnwire.turns set close_time = close_time - interval '61 seconds' where turn_id = $1",
      [running.turnId],
    );
    expect(await erasable(60_000)).toContain(running.turnId);
  });

  it("processes - beats grow, owners without a row are listed, those with open turns are kept", async () => {
    const [me, other, ghost] = [newId(), newId(), newId()];
    await stores.store.registerProcess({ incarnation: me, dataDirId: "dir-1" });
    await stores.store.registerProcess({ incarnation: other, dataDirId: "dir-2" });
    await stores.store.registerProcess({ incarnation: other, dataDirId: "dir-2" });
    await stores.store.beat(other);
    const { turn } = await runningTurn(stores.store, { owner: ghost });
    const find = async (incarnation: string): Promise<unknown> =>
      (await stores.store.listProcesses(me)).find((row) => row.incarnation === incarnation);
    expect(await find(me)).toBeUndefined();
    expect(await find(other)).toEqual({ incarnation: other, dataDirId: "dir-2", beat: 1n });
    expect(await find(ghost)).toEqual({ incarnation: ghost, dataDirId: "", beat: 0n });
    expect((await stores.store.listOwnedTurns([ghost, other], 10)).map((row) => row.turnId)).toEqual([
      turn.turnId,
    ]);

    await stores.store.registerProcess({ incarnation: ghost, dataDirId: "dir-3" });
    await stores.store.forgetProcesses([ghost, other]);
    expect(await find(other)).toBeUndefined();
    expect(await find(ghost)).toMatchObject({ dataDirId: "dir-3" });
    await stores.store.commitTurn(commitOf(turn));
    expect((await stores.store.listOwnedTurns([ghost], 10)).map((row) => row.phase)).toEqual(["committed"]);
    await stores.store.markClosed(turn.turnId);
    await stores.store.forgetProcesses([ghost]);
    expect(await find(ghost)).toBeUndefined();
    expect(await stores.store.listOwnedTurns([ghost], 10)).toEqual([]);
  });

  it("ping - answers, and gives up with its signal", async () => {
    await stores.store.ping(AbortSignal.timeout(5_000));
    const reason = new Error("enough");
    await expect(stores.store.ping(AbortSignal.abort(reason))).rejects.toBe(reason);
  });
});

describe("limits", () => {
  it("a lock held by a stranger ends a call with UNAVAILABLE after the statement timeout, not never", async () => {
    const { session } = await closedTurn(stores.store);
    const blocker = new pg.Client({ connectionString: postgres.url });
    await blocker.connect();
    try {
      await blocker.query("begin");
      await blocker.query("select 1 from turnwire.sessions where session_id = $1 for update", [
        session.sessionId,
      ]);
      const began = performance.now();
      await expect(stores.store.acceptTurn(send({ sessionId: session.sessionId }))).rejects.toMatchObject({
        code: ErrorCode.UNAVAILABLE,
      });
      expect(performance.now() - began).toBeLessThan(25_000);
      // Readers of the same row are not held up.
      expect(await stores.store.getSession(ALICE, session.sessionId)).toBeDefined();
    } finally {
      await blocker.end();
    }
  });

  it("a read-only database refuses with UNAVAILABLE, naming it", async () => {
    const url = `${postgres.url}?options=${encodeURIComponent("-c default_transaction_read_only=on")}`;
    const readOnly = await connectPgStore({ connectionString: url, logger: silentLogger });
    try {
      const refused = readOnly.acceptTurn(send());
      await expect(refused).rejects.toMatchObject({ code: ErrorCode.UNAVAILABLE });
      await expect(refused).rejects.toThrow(/read-only/);
    } finally {
      await readOnly.close();
    }
  });
});

/** Rows compared by content: byte arrays as numbers. */
function plain(value: unknown): unknown {
  return JSON.parse(
    JSON.stringify(value, (_, item: unknown) => {
      if (typeof item === "bigint") return String(item);
      if (item instanceof Uint8Array) return [...item];
      if (typeof item === "object" && item !== null && "type" in item && item.type === "Buffer")
        return (item as unknown as { data: number[] }).data;
      return item;
    }),
  );
}

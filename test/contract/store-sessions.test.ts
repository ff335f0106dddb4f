import { describe, expect, it } from "vitest";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { newId } from "../../src/lib/ids.js";
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
  STRANGERS,
  useStore,
} from "../support/store-fixtures.js";

const postgres = usePostgres();
const stores = useStore(postgres);
const NO_FILTER = { ancestorsOf: "", childrenOf: "", newestFirst: false };

function user(name: string): typeof ALICE {
  return { tenantId: "acme", userId: name, admin: false };
}

function newSession(title: string, requestId = ""): Parameters<typeof stores.store.createSession>[1] {
  return { sessionId: newId(), requestId, settings: Buffer.from("s"), title, tags: ["a", "b"] };
}

describe("sessions", () => {
  it("createSession - is read back as it was given", async () => {
    const input = newSession("Title ' \\ \u{1F600}");
    const made = await stores.store.createSession(ALICE, input);
    expect(made).toMatchObject({
      sessionId: input.sessionId,
      title: input.title,
      tags: ["a", "b"],
      currentMessageId: "",
      revision: 1n,
    });
    expect(Buffer.from(made.settings)).toEqual(Buffer.from("s"));
    expect(await stores.store.getSession(ALICE, input.sessionId)).toEqual(made);
  });

  it("createSession - the same request_id gives the same session, also at once, and only to the same user", async () => {
    const requestId = newId();
    const made = await Promise.all(
      Array.from({ length: 30 }, () => stores.store.createSession(ALICE, newSession("x", requestId))),
    );
    expect(new Set(made.map((session) => session.sessionId)).size).toBe(1);
    const other = await stores.store.createSession(user("bob"), newSession("x", requestId));
    expect(other.sessionId).not.toBe(made[0]!.sessionId);
  });

  it("createSession - a title with U+0000 is refused before it reaches the database", async () => {
    const input = newSession("a\0b");
    await expect(stores.store.createSession(ALICE, input)).rejects.toMatchObject({
      code: ErrorCode.INVALID_ARGUMENT,
    });
    expect(await stores.store.getSession(ALICE, input.sessionId)).toBeUndefined();
  });

  it("listSessions - newest change first, in pages without gap or double", async () => {
    const carol = user("carol");
    const ids: string[] = [];
    for (let i = 0; i < 7; i++)
      ids.push((await stores.store.createSession(carol, newSession(`s${i}`))).sessionId);
    const pages = await allPages((token) =>
      stores.store.listSessions(carol, { size: 3, token }, { query: "", onlyActive: false }),
    );
    expect(pages.map((page) => page.length)).toEqual([3, 3, 1]);
    expect(
      pages
        .flat()
        .map((session) => session.sessionId)
        .toSorted(),
    ).toEqual(ids.toSorted());
    const times = pages.flat().map((session) => session.updateTime.getTime());
    expect(times).toEqual(times.toSorted((a, b) => b - a));
  });

  it("listSessions - a turn moves its session to the front, at its start and at its end", async () => {
    const dave = user("dave");
    const first = await stores.store.createSession(dave, newSession("first"));
    await stores.store.createSession(dave, newSession("second"));
    await runSql(
      postgres.url,
      `update turnwire.sessions set update_time = update_time - (case title when 'first' then 2 else 1 end) * interval '1 hour'
       where user_id = 'dave'`,
    );
    await closedTurn(stores.store, { principal: dave, sessionId: first.sessionId });
    const { rows } = await stores.store.listSessions(dave, FIRST_PAGE, { query: "", onlyActive: false });
    expect(rows.map((session) => session.title)).toEqual(["first", "second"]);
    expect(rows[0]!.revision).toBe(first.revision + 2n);
  });

  it("listSessions - by words of the title, taken literally, and by running turns", async () => {
    const erin = user("erin");
    await stores.store.createSession(erin, newSession("100% of the Budget"));
    await stores.store.createSession(erin, newSession("100 ways to budget"));
    await runningTurn(stores.store, {
      principal: erin,
      newSession: { sessionId: newId(), settings: new Uint8Array(), title: "busy" },
    });
    const titles = async (query: string, onlyActive = false): Promise<string[]> =>
      (await stores.store.listSessions(erin, FIRST_PAGE, { query, onlyActive })).rows
        .map((session) => session.title)
        .toSorted();
    expect(await titles("budget 100")).toEqual(["100 ways to budget", "100% of the Budget"]);
    expect(await titles("100%")).toEqual(["100% of the Budget"]);
    expect(await titles("_")).toEqual([]);
    expect(await titles("", true)).toEqual(["busy"]);
  });

  it("page tokens - cut, changed, made up, of another list or another user: INVALID_ARGUMENT", async () => {
    const frank = user("frank");
    for (let i = 0; i < 3; i++) await stores.store.createSession(frank, newSession(`s${i}`));
    const list = (token: string, principal = frank, query = ""): Promise<unknown> =>
      stores.store.listSessions(principal, { size: 1, token }, { query, onlyActive: false });
    const { nextToken } = await stores.store.listSessions(
      frank,
      { size: 1, token: "" },
      { query: "", onlyActive: false },
    );
    const flipped = Buffer.from(nextToken, "base64url");
    flipped[flipped.length - 2]! ^= 1;
    for (const bad of [
      nextToken.slice(1),
      nextToken.slice(0, -1),
      `${nextToken}=`,
      flipped.toString("base64url"),
      "x",
      "ä",
      `${nextToken}\0`,
    ]) {
      await expect(list(bad), bad).rejects.toMatchObject({ code: ErrorCode.INVALID_ARGUMENT });
    }
    await expect(list(nextToken, user("bob"))).rejects.toMatchObject({ code: ErrorCode.INVALID_ARGUMENT });
    await expect(list(nextToken, frank, "s")).rejects.toMatchObject({ code: ErrorCode.INVALID_ARGUMENT });
    await expect(list(nextToken)).resolves.toBeDefined();
  });
});

describe("messages", () => {
  it("branch and listMessages - a tree with two branches", async () => {
    const { session, turn: first } = await closedTurn(stores.store);
    const { turn: second } = await closedTurn(stores.store, { sessionId: session.sessionId });
    const { turn: beside } = await closedTurn(stores.store, {
      sessionId: session.sessionId,
      parentMessageId: first.lanes[0]!.messageId,
    });
    const firstAnswer = first.lanes[0]!.messageId;

    const branch = await stores.store.branch(ALICE, beside.lanes[0]!.messageId, 100);
    expect(branch.map((message) => message.messageId)).toEqual([
      first.userMessageId,
      firstAnswer,
      beside.userMessageId,
      beside.lanes[0]!.messageId,
    ]);
    expect(branch.map((message) => message.role)).toEqual(["user", "assistant", "user", "assistant"]);
    expect(branch[0]!.parentMessageId).toBe("");
    expect(Buffer.from(branch[0]!.input!).toString()).toBe("hello");
    expect(Buffer.from(branch[1]!.answer!).toString()).toBe("answer 0");
    expect(branch[1]!.childMessageIds).toEqual([second.userMessageId, beside.userMessageId]);
    expect(
      (await stores.store.branch(ALICE, beside.userMessageId, 2)).map((message) => message.messageId),
    ).toEqual([firstAnswer, beside.userMessageId]);
    expect(await stores.store.branch(ALICE, beside.userMessageId, 0)).toEqual([]);

    const list = async (filter: typeof NO_FILTER, size = 2): Promise<string[]> =>
      (
        await allPages(
          async (token) =>
            (await stores.store.listMessages(ALICE, session.sessionId, { size, token }, filter))!,
        )
      )
        .flat()
        .map((message) => message.messageId);
    expect(await list(NO_FILTER)).toEqual(
      [first, second, beside].flatMap((turn) => [turn.userMessageId, turn.lanes[0]!.messageId]),
    );
    expect(await list({ ...NO_FILTER, ancestorsOf: beside.userMessageId })).toEqual([
      first.userMessageId,
      firstAnswer,
      beside.userMessageId,
    ]);
    expect(await list({ ...NO_FILTER, childrenOf: firstAnswer })).toEqual([
      second.userMessageId,
      beside.userMessageId,
    ]);
    expect(
      await stores.store.listMessages(ALICE, session.sessionId, FIRST_PAGE, {
        ...NO_FILTER,
        ancestorsOf: newId(),
      }),
    ).toBeUndefined();

    const newest = { ...NO_FILTER, newestFirst: true };
    const all = await list(NO_FILTER);
    expect(await list(newest)).toEqual(all.toReversed());
    for (const size of [1, 2, 3, 4])
      expect(await list({ ...newest, ancestorsOf: beside.userMessageId }, size)).toEqual([
        beside.userMessageId,
        firstAnswer,
        first.userMessageId,
      ]);
    expect(await list({ ...newest, childrenOf: firstAnswer }, 1)).toEqual([
      beside.userMessageId,
      second.userMessageId,
    ]);
    // a token is good for its own direction only
    const up = { ...newest, ancestorsOf: beside.userMessageId };
    const read = (page: { size: number; token: string }, filter: typeof NO_FILTER) =>
      stores.store.listMessages(ALICE, session.sessionId, page, filter);
    const { nextToken } = (await read({ size: 1, token: "" }, up))!;
    await expect(read({ size: 1, token: nextToken }, { ...up, newestFirst: false })).rejects.toMatchObject({
      code: ErrorCode.INVALID_ARGUMENT,
    });
  });

  it("listMessages - pages up a branch of 10,000 messages from its end", async () => {
    const { session, turn } = await accept(stores.store);
    await runSql(
      postgres.url,
      `insert into turnwire.messages (message_id, session_id, tenant_id, user_id, parent_message_id, turn_id, role)
       select $1 || n, $1, 'acme', 'alice', case n when 1 then '' else $1 || (n - 1) end, $2, 1 + (n + 1) % 2
       from generate_series(1, 10000) n order by n`,
      [session.sessionId, turn.turnId],
    );
    const filter = { ...NO_FILTER, ancestorsOf: `${session.sessionId}10000`, newestFirst: true };
    const first = await stores.store.listMessages(ALICE, session.sessionId, { size: 50, token: "" }, filter);
    const next = { size: 50, token: first!.nextToken };
    const second = await stores.store.listMessages(ALICE, session.sessionId, next, filter);
    expect([...first!.rows, ...second!.rows].map(({ messageId }) => messageId)).toEqual(
      Array.from({ length: 100 }, (_, i) => `${session.sessionId}${10_000 - i}`),
    );
  });

  it("listMessages - the page has at most 200 rows, whatever is asked", async () => {
    const { session, turn } = await accept(stores.store);
    await runSql(
      postgres.url,
      `insert into turnwire.messages (message_id, session_id, tenant_id, user_id, parent_message_id, turn_id, role)
       select 'many-' || n, $1, 'acme', 'alice', '', $2, 1 from generate_series(1, 300) n`,
      [session.sessionId, turn.turnId],
    );
    const page = await stores.store.listMessages(
      ALICE,
      session.sessionId,
      { size: 100_000, token: "" },
      NO_FILTER,
    );
    expect(page!.rows.length).toBe(200);
  });
});

describe("deleteSession", () => {
  it("takes everything below the session with it, leaves the accounts, and names the turns", async () => {
    const { session, turn: closed } = await closedTurn(stores.store);
    const { turn } = await runningTurn(stores.store, { sessionId: session.sessionId });
    const id = newId();
    const file = {
      fileId: id,
      name: "n",
      mediaType: "t",
      sizeBytes: 3n,
      sha256: "s",
      turnId: turn.turnId,
      createTime: new Date(),
    };
    await stores.store.saveFile(ALICE, 1, file, Buffer.from("abc"));
    await stores.store.saveCheckpoint(turn.turnId, 1, {
      kind: "input",
      modelIndex: 0,
      data: Buffer.from("d"),
    });
    await stores.store.saveArchivePart(turn.turnId, 1, { firstSeq: 1, lastSeq: 2, batch: Buffer.from("b") });
    await stores.store.requestStop(ALICE, { kind: "turn", turnId: turn.turnId }, undefined);

    const deleted = await stores.store.deleteSession(ALICE, session.sessionId);
    expect(deleted!.turns.map((row) => row.turnId)).toEqual([closed.turnId, turn.turnId]);
    expect(await stores.store.deleteSession(ALICE, session.sessionId)).toBeUndefined();
    const tables = await runSql(
      postgres.url,
      `select table_name::text as name from information_schema.columns
       where table_schema = 'turnwire' and column_name = 'turn_id' and table_name <> 'usage'`,
    );
    expect(tables.length).toBeGreaterThan(8);
    for (const { name } of tables) {
      const left = await runSql(
        postgres.url,
        `select count(*)::int as n from turnwire.${String(name)} where turn_id = any ($1)`,
        [[turn.turnId, closed.turnId]],
      );
      expect(left, String(name)).toEqual([{ n: 0 }]);
    }
    expect(
      await runSql(postgres.url, "select count(*)::int as n from turnwire.file_parts where file_id = $1", [
        id,
      ]),
    ).toEqual([{ n: 0 }]);
    expect(
      await runSql(postgres.url, "select count(*)::int as n from turnwire.usage where turn_id = $1", [
        closed.turnId,
      ]),
    ).toEqual([{ n: 1 }]);
    // The writer of the running turn is fenced.
    expect(await stores.store.commitTurn(commitOf(turn))).toBe("fenced");
  });

  it("while turns commit - no deadlock leaves the store", async () => {
    for (let round = 0; round < 20; round++) {
      const { session, turn } = await runningTurn(stores.store);
      const [committed, deleted] = await Promise.all([
        stores.store.commitTurn(commitOf(turn)),
        stores.store.deleteSession(ALICE, session.sessionId),
      ]);
      expect(["committed", "fenced"]).toContain(committed);
      expect(deleted!.turns.length).toBe(1);
    }
  });
});

describe("principals (I12)", () => {
  it("strangers find nothing, in the same words as what is not there", async () => {
    const { session, turn } = await runningTurn(stores.store);
    const file = {
      fileId: newId(),
      name: "n",
      mediaType: "t",
      sizeBytes: 3n,
      sha256: "s",
      turnId: turn.turnId,
      createTime: new Date(),
    };
    await stores.store.saveFile(ALICE, 1, file, Buffer.from("abc"));
    const { store } = stores;
    for (const stranger of STRANGERS) {
      expect(await store.getSession(stranger, session.sessionId)).toBeUndefined();
      expect(await store.deleteSession(stranger, session.sessionId)).toBeUndefined();
      expect(await store.listMessages(stranger, session.sessionId, FIRST_PAGE, NO_FILTER)).toBeUndefined();
      expect(await store.branch(stranger, turn.userMessageId, 10)).toEqual([]);
      expect(await store.getTurn(stranger, turn.turnId)).toBeUndefined();
      expect(await store.getTurnByRequest(stranger, turn.requestId)).toBeUndefined();
      expect(
        (await store.listTurns(stranger, FIRST_PAGE, { sessionId: session.sessionId, phases: [] })).rows,
      ).toEqual([]);
      expect(
        (await store.listTurns(stranger, FIRST_PAGE, { sessionId: "", phases: [] })).rows.some(
          (row) => row.turnId === turn.turnId,
        ),
      ).toBe(false);
      expect(
        (await store.listSessions(stranger, FIRST_PAGE, { query: "", onlyActive: false })).rows.some(
          (row) => row.sessionId === session.sessionId,
        ),
      ).toBe(false);
      expect(await store.getFile(stranger, file.fileId)).toBeUndefined();
      await expect(
        store.readFile(stranger, file.fileId, 0n)[Symbol.asyncIterator]().next(),
      ).rejects.toMatchObject({ code: ErrorCode.NOT_FOUND });
      expect(await store.saveFile(stranger, 1, { ...file, fileId: newId() }, Buffer.from("abc"))).toBe(false);
      expect(await store.requestStop(stranger, { kind: "turn", turnId: turn.turnId }, undefined)).toEqual({
        kind: "not_found",
      });
      expect(
        await store.requestStop(stranger, { kind: "session", sessionId: session.sessionId }, undefined),
      ).toEqual({ kind: "not_found" });
      expect(await store.requestStop(stranger, { kind: "request", requestId: newId() }, undefined)).toEqual({
        kind: "tombstone",
      });
      expect(await store.acceptTurn(send({ principal: stranger, sessionId: session.sessionId }))).toEqual({
        kind: "session_not_found",
      });
    }
    expect(await store.listCommands(turn.owner)).toEqual([]);
    expect(await store.getTurn(ALICE, turn.turnId)).toMatchObject({ phase: "running" });
  });

  it("a foreign parent, and one of another session, are not found", async () => {
    const { turn } = await closedTurn(stores.store);
    const parentMessageId = turn.lanes[0]!.messageId;
    expect(await stores.store.acceptTurn(send({ principal: STRANGERS[0]!, parentMessageId }))).toEqual({
      kind: "parent_not_found",
    });
    expect(await stores.store.acceptTurn(send({ parentMessageId }))).toEqual({ kind: "parent_not_found" });
  });
});

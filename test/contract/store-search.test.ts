/** Search over messages, changes of sessions, feedback: the store's part, on a real Postgres. */
import { describe, expect, test } from "vitest";
import { newId } from "../../src/lib/ids.js";
import type { Principal } from "../../src/lib/rpc/service-binding.js";
import { usePostgres } from "../support/postgres.js";
import {
  ALICE,
  allPages,
  commitOf,
  FIRST_PAGE,
  runningTurn,
  STRANGERS,
  useStore,
} from "../support/store-fixtures.js";

const postgres = usePostgres();
const stores = useStore(postgres);

/** A turn with these texts; gives the ids of its messages. */
async function say(user: Principal, asked: string, answered: string, title = "A talk") {
  const { turn, session } = await runningTurn(stores.store, {
    principal: user,
    searchText: asked,
    newSession: { sessionId: newId(), settings: new Uint8Array(), title },
  });
  const commit = commitOf(turn);
  await stores.store.commitTurn({ ...commit, lanes: [{ ...commit.lanes[0]!, text: answered }] });
  return { sessionId: session.sessionId, userId: turn.userMessageId, answerId: turn.lanes[0]!.messageId };
}

async function found(user: Principal, query: string): Promise<string[]> {
  const { rows } = await stores.store.searchMessages(user, query, FIRST_PAGE);
  return rows.map((row) => row.message.messageId);
}

const person = (userId: string): Principal => ({ tenantId: "acme", userId, admin: false });

describe("searchMessages", () => {
  test("finds what users and models said, by all words, the last as a beginning, in any script", async () => {
    const ada = person("ada");
    const talk = await say(ada, "How far is the Moon?", "About 384,400 km, says run-turn.ts.", "Moon");
    const other = await say(ada, "Was ist ein ÜBERGANG, bitte?", "東京タワーは高い。हिन्दी");
    const cases: [string, string[]][] = [
      ["moon far", [talk.userId]],
      ["FAR MO", [talk.userId]],
      ["mo far", []], // only the last word may be a beginning
      ["moon übergang", []],
      ["384 400", [talk.answerId]],
      ["run-turn.ts", [talk.answerId]],
      ["übergang", [other.userId]],
      ["東京", [other.answerId]],
      ["タワー", [other.answerId]],
      ["हिन्दी", [other.answerId]],
      ["!!!", []],
      ["'; drop table turnwire.messages; --", []],
      ["moon & !far | (", [talk.userId]], // signs mean nothing
      ["about:*", [talk.answerId]],
    ];
    for (const [query, ids] of cases) expect(await found(ada, query), query).toEqual(ids);
    const [hit] = (await stores.store.searchMessages(ada, "moon", FIRST_PAGE)).rows;
    expect(hit).toMatchObject({ sessionTitle: "Moon", text: "How far is the Moon?" });
    expect(hit!.message).toMatchObject({ sessionId: talk.sessionId, childMessageIds: [talk.answerId] });
  });

  test("what says it more often, and in fewer words, comes first; of equals the newer", async () => {
    const ben = person("ben");
    const far = await say(ben, "x", `one tea among ${"very many other words ".repeat(30)}`);
    const old = await say(ben, "y", "tea");
    const young = await say(ben, "z", "tea");
    const often = await say(ben, "w", "tea tea tea");
    expect(await found(ben, "tea")).toEqual([often.answerId, young.answerId, old.answerId, far.answerId]);
  });

  test("in pages without gap or double, while turns go on", async () => {
    const cleo = person("cleo");
    const said: string[] = [];
    for (let at = 0; at < 7; at++) said.push((await say(cleo, "page", `word ${at}`)).answerId);
    const pages = await allPages(async (token) => {
      const page = await stores.store.searchMessages(cleo, "word", { size: 3, token });
      await say(cleo, "word word word", "page");
      return page;
    });
    expect(pages.map((page) => page.length)).toEqual([3, 3, 1]);
    const ids = pages.flat().map((row) => row.message.messageId);
    expect(ids.toSorted()).toEqual(said.toSorted());
    const { nextToken } = await stores.store.searchMessages(cleo, "word", { size: 3, token: "" });
    for (const [user, query] of [
      [cleo, "page"],
      [ALICE, "word"],
    ] as const)
      await expect(
        stores.store.searchMessages(user, query, { size: 3, token: nextToken }),
      ).rejects.toMatchObject({ details: { field: "page_token" } });
  });

  test("finds nothing of others, of deleted sessions, of answers that are not stored", async () => {
    const talk = await say(ALICE, "secretword", "secretword");
    for (const stranger of STRANGERS) expect(await found(stranger, "secretword")).toEqual([]);
    expect(await found(ALICE, "secretword")).toHaveLength(2);
    await stores.store.deleteSession(ALICE, talk.sessionId);
    expect(await found(ALICE, "secretword")).toEqual([]);
  });

  test("whatever is said can be stored: half a megabyte of words that are all different, one word, no word", async () => {
    const dan = person("dan");
    let text = "";
    for (let at = 0; text.length < 512 * 1024; at++) text += `${at.toString(36)} `;
    for (const answered of [text, "y".repeat(600_000), "\0\u0001", "字".repeat(200_000)])
      await say(dan, answered, answered);
    expect(await found(dan, "1a")).not.toEqual([]);
    expect((await found(dan, "字字")).length).toBe(2);
  });
});

describe("updateSession", () => {
  test("changes what is given and nothing else, counts the change and moves the session to the front", async () => {
    const { sessionId } = await say(ALICE, "hello", "hi", "before");
    const { store } = stores;
    const before = (await store.getSession(ALICE, sessionId))!;
    const renamed = (await store.updateSession(ALICE, sessionId, { title: "after" }))!;
    expect(renamed).toEqual({
      ...before,
      title: "after",
      revision: before.revision + 1n,
      updateTime: renamed.updateTime,
    });
    expect(renamed.updateTime.getTime()).toBeGreaterThanOrEqual(before.updateTime.getTime());
    const settings = Buffer.from("new settings");
    const all = await store.updateSession(ALICE, sessionId, { tags: ["a", "b"], settings, archived: true });
    expect(all).toMatchObject({ title: "after", tags: ["a", "b"], archived: true });
    expect(Buffer.from(all!.settings)).toEqual(settings);
    const emptied = await store.updateSession(ALICE, sessionId, { title: "", tags: [], archived: false });
    expect(emptied).toMatchObject({ title: "", tags: [], archived: false });
  });

  test("at once by many: each change counts, none is lost", async () => {
    const { sessionId } = await say(ALICE, "hello", "hi");
    const { store } = stores;
    const { revision } = (await store.getSession(ALICE, sessionId))!;
    await Promise.all(
      Array.from({ length: 20 }, (_, at) =>
        store.updateSession(ALICE, sessionId, at % 2 ? { title: "t" } : { tags: ["x"] }),
      ),
    );
    expect(await store.getSession(ALICE, sessionId)).toMatchObject({
      title: "t",
      tags: ["x"],
      revision: revision + 20n,
    });
  });

  test("of somebody else's session: not there", async () => {
    const { sessionId } = await say(ALICE, "hello", "hi");
    for (const stranger of STRANGERS)
      expect(await stores.store.updateSession(stranger, sessionId, { title: "mine" })).toBeUndefined();
  });
});

test("setFeedback - of an answer, kept and taken back; of nothing else", async () => {
  const { store } = stores;
  const { userId, answerId } = await say(ALICE, "hello", "hi");
  const good = { rating: 1, comment: "clear", reasons: ["short"] };
  expect(await store.setFeedback(ALICE, answerId, good)).toBe("stored");
  const rating = async () => (await store.branch(ALICE, answerId, 1))[0]!.rating;
  expect(await rating()).toBe(1);
  expect(await store.setFeedback(ALICE, userId, good)).toBe("not_an_answer");
  expect(await store.setFeedback(ALICE, newId(), good)).toBe("not_found");
  for (const stranger of STRANGERS)
    expect(await store.setFeedback(stranger, answerId, good)).toBe("not_found");
  expect(await store.setFeedback(ALICE, answerId, { rating: 0, comment: "", reasons: [] })).toBe("stored");
  expect(await rating()).toBe(0);
});

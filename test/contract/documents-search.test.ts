/** Search on a real Postgres: what is found, in which order, for whom; and the `search` tool over it. */
import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { beforeAll, describe, expect, test } from "vitest";
import {
  SearchScopeSchema,
  ToolCallerSchema,
  ToolOutcome,
  type ToolResult,
} from "../../gen/turnwire/tool/v1/tool_service_pb.js";
import { pgDocumentStore } from "../../src/documents/pg-document-store.js";
import { searchPassages, type FoundPassage } from "../../src/documents/pg-document-index.js";
import { silentLogger } from "../../src/lib/log.js";
import { deferred } from "../../src/lib/signals.js";
import { openDocumentIndex } from "../../src/main/document-index.js";
import type { Queryable } from "../../src/store/db.js";
import type { DocumentIndex } from "../../src/tool/builtin/document-index.js";
import { createSearchTool } from "../../src/tool/builtin/search.js";
import { createToolRegistry } from "../../src/tool/registry.js";
import type { ToolInput, ToolPayload } from "../../src/tool/tool.js";
import { useDocuments, type TestDocuments } from "../support/documents-fixture.js";
import { usePostgres } from "../support/postgres.js";
import { useStore } from "../support/store-fixtures.js";

const postgres = usePostgres();
const db = useStore(postgres);
const ALICE = { tenantId: "acme", userId: "alice" };

interface Added {
  readonly text: string;
  readonly title?: string;
  readonly tags?: string[];
  readonly user?: string;
}

async function addAll(service: TestDocuments, documents: readonly Added[]): Promise<string[]> {
  const ids: string[] = [];
  for (const { text, title = "", tags = [], user = "acme/alice" } of documents) {
    const { document } = await service.as(user).documents.addDocument({
      title,
      tags,
      mediaType: "text/markdown",
      source: { case: "text", value: text },
    });
    ids.push(document!.documentId);
  }
  for (const [index, { user = "acme/alice" }] of documents.entries())
    await service.settled(ids[index]!, user);
  return ids;
}

async function find(service: TestDocuments, query: string, owner = ALICE): Promise<readonly FoundPassage[]> {
  return searchPassages(service.channel, owner, query, {}, 10);
}

/** A document of these passages; unless `ready`, it is still being indexed. */
async function addPassages(
  service: TestDocuments,
  owner: typeof ALICE,
  title: string,
  texts: readonly string[],
  ready = true,
): Promise<void> {
  const store = pgDocumentStore(service.channel);
  const user = `${owner.tenantId}/${owner.userId}`;
  await service
    .as(user)
    .documents.addDocument({ title, source: { case: "text", value: "its passages follow" } });
  const lease = (await store.claim("test", 60_000, undefined))!;
  const about = { title, name: "", mediaType: "text/plain", language: "english", sizeBytes: 1 };
  const passages = texts.map((text, index) => ({
    index,
    text,
    start: index,
    end: index + 1,
    heading: "",
    page: 0,
  }));
  for (let at = 0; at < passages.length; at += 500)
    expect(await store.addPassages(lease, passages.slice(at, at + 500), about, 1, 60_000)).toBe(true);
  if (ready) await store.finish(lease, about);
}

const titles = (passages: readonly FoundPassage[]): string[] => passages.map(({ title }) => title);

describe("documents - search", () => {
  test("words are found in the forms of the document's language", async () => {
    const service = await useDocuments({ url: postgres.url, store: db.store });
    await addAll(service, [
      {
        title: "English",
        text: "The gardeners were watering their flowering plants before the sun had risen over the hills of the village.",
      },
      {
        title: "Deutsch",
        text: "Die Häuser der Gärtner standen am Rande des Dorfes, und die Blumen wurden schon vor Sonnenaufgang gegossen.",
      },
      {
        title: "日本語",
        text: "東京都の庭師は日の出前に花に水をやっていた。村の丘の上に太陽が昇る前のことである。",
      },
      { title: "ไทย", text: "คนสวนรดน้ำดอกไม้ก่อนพระอาทิตย์ขึ้น" },
      { title: "Code", text: "const answer = computeAnswer(42);" },
    ]);
    expect(titles(await find(service, "gardener waters plant"))).toEqual(["English"]);
    expect(titles(await find(service, "Haus Blume"))).toEqual(["Deutsch"]);
    expect(titles(await find(service, "庭師"))).toEqual(["日本語"]);
    expect(titles(await find(service, "東京 太陽"))).toEqual(["日本語"]);
    expect(titles(await find(service, "ดอกไม้"))).toEqual(["ไทย"]);
    expect(titles(await find(service, "computeAnswer"))).toEqual(["Code"]);
    expect(await find(service, "nowhere-at-all")).toEqual([]);
    expect(await find(service, "'quoted' \\ & | ! <-> :* (")).toEqual([]);
    expect(await find(service, "\u0000")).toEqual([]);
  });

  test("passages with all words come first, then those with the rarer ones; headings and titles count more", async () => {
    const service = await useDocuments({ url: postgres.url, store: db.store });
    const owner = { tenantId: "acme", userId: "ranker" };
    const user = "acme/ranker";
    const filler = "It goes on for a while without saying much about anything that matters. ";
    await addAll(service, [
      { user, title: "a", text: `${filler}The turbine is mentioned here. ${filler}` },
      { user, title: "b", text: `${filler}The turbine and the blade are mentioned here. ${filler}` },
      {
        user,
        title: "c",
        text: `# Turbine blade\n\n${filler}Every turbine has more than one blade. ${filler}`,
      },
      { user, title: "d", text: filler.repeat(3) },
    ]);
    expect(titles(await find(service, "turbine blade", owner))).toEqual(["c", "b", "a"]);
    expect(titles(await find(service, "turbine blade unheard-of", owner)).slice(0, 2)).toEqual(["c", "b"]);
  });

  test("nothing of another user or tenant is ever found", async () => {
    const service = await useDocuments({ url: postgres.url, store: db.store });
    await addAll(service, [
      { user: "acme/bob", text: "the zanzibarian secret of bob" },
      { user: "other/alice", text: "the zanzibarian secret of the other alice" },
      { user: "acme/alice", text: "the zanzibarian secret of alice" },
    ]);
    for (const [tenantId, userId, text] of [
      ["acme", "alice", "the zanzibarian secret of alice"],
      ["acme", "bob", "the zanzibarian secret of bob"],
      ["other", "alice", "the zanzibarian secret of the other alice"],
    ] as const) {
      const found = await find(service, "zanzibarian secret", { tenantId, userId });
      expect(found.map((passage) => passage.text)).toEqual([text]);
    }
    expect(await find(service, "zanzibarian", { tenantId: "acme", userId: "" })).toEqual([]);
  });

  test("a common word costs no more than the candidates that are ranked, and prominent passages win", async () => {
    const service = await useDocuments({ url: postgres.url, store: db.store });
    const user = "acme/common";
    const paragraph = `${"ordinary filler sentence without much in it at all, ".repeat(30)}commonword.\n\n`;
    await addAll(service, [
      ...Array.from({ length: 6 }, () => ({ user, title: "bulk", text: paragraph.repeat(300) })),
      { user, title: "about it", text: `# commonword\n\n${"All about the commonword. ".repeat(20)}` },
    ]);
    const found = await find(service, "commonword", { tenantId: "acme", userId: "common" });
    expect(found[0]!.title).toBe("about it");
    const perDocument = found.map(
      ({ documentId }) => found.filter((other) => other.documentId === documentId).length,
    );
    expect(Math.max(...perDocument)).toBeLessThanOrEqual(4);
  });
});

describe("documents - search among much", () => {
  const filler = "A good deal of other things is said here before it is mentioned. ";

  test("a long document that says it best in hundreds of places does not hide a short one", async () => {
    const service = await useDocuments({ url: postgres.url, store: db.store, started: false });
    const owner = { tenantId: "acme", userId: "long" };
    await addPassages(service, owner, "book", Array<string>(300).fill("Turbine, turbine, turbine."));
    await addPassages(service, owner, "note", [`${filler.repeat(5)}A turbine.`]);
    expect(titles(await find(service, "turbine", owner))).toEqual(["book", "book", "book", "book", "note"]);
  });

  test("a document that is being indexed takes no place from those that are ready", async () => {
    const service = await useDocuments({ url: postgres.url, store: db.store, started: false });
    const owner = { tenantId: "acme", userId: "busy" };
    await addPassages(
      service,
      owner,
      "unready",
      Array<string>(1_600).fill("Turbine, turbine, turbine."),
      false,
    );
    await addPassages(service, owner, "ready", [
      `${filler}A turbine, and another turbine: turbine after turbine.`,
    ]);
    expect(titles(await find(service, "turbine", owner))).toEqual(["ready"]);
  });

  test("common words are found together, whatever else is asked for with them", async () => {
    const service = await useDocuments({ url: postgres.url, store: db.store, started: false });
    const owner = { tenantId: "acme", userId: "words" };
    const words = [
      "turbine",
      "blade",
      "river",
      "wind",
      "steam",
      "stone",
      "glass",
      "paper",
      "lamp",
      "chair",
      "table",
    ];
    words.push("window", "garden", "bridge");
    const rest = words.slice(2).join(" ");
    await addPassages(service, owner, "turbines", Array<string>(1_600).fill(`The turbine: ${rest}.`));
    await addPassages(service, owner, "blades", Array<string>(1_600).fill(`The blade: ${rest}.`));
    await addPassages(service, owner, "both", [`The turbine and the blade: ${rest}.`]);
    expect(titles(await find(service, "turbine blade", owner))[0]).toBe("both");
    expect(titles(await find(service, "turbine blade unheard", owner))[0]).toBe("both");
    expect(titles(await find(service, words.join(" "), owner))[0]).toBe("both");
  });

  test("how many words are looked up has a bound, however long the query and however many the languages", async () => {
    const service = await useDocuments({ url: postgres.url, store: db.store, started: false });
    const owner = { tenantId: "acme", userId: "asker" };
    await addPassages(service, owner, "first", ["The gardeners were watering flowering plants."]);
    for (const language of ["german", "french", "russian", "spanish", "dutch"])
      await service.channel.query(
        `insert into turnwire.source_documents (document_id, tenant_id, user_id, request_hash, title, media_type, tags,
           project_id, source, url, file_id, status, size_bytes, language)
         values ($1, $2, $3, '', '', '', '{}', '', 'text', '', '', 2, 1, $4)`,
        [`asker-${language}`, owner.tenantId, owner.userId, language],
      );
    const query = Array.from({ length: 150 }, (_, at) => `word${at}`).join(" ");
    let mostWords = 0;
    const listening = new Proxy(service.channel, {
      get: (channel, name) =>
        name !== "transaction"
          ? (Reflect.get(channel, name) as unknown)
          : (work: (tx: Queryable) => Promise<unknown>) =>
              channel.transaction((tx) =>
                work({
                  query: (statement, params = []) => {
                    for (const param of params)
                      if (Array.isArray(param)) mostWords = Math.max(mostWords, param.length);
                    return tx.query(statement, params);
                  },
                }),
              ),
    });
    expect(titles(await searchPassages(listening, owner, `watering ${query}`, {}, 10))).toEqual(["first"]);
    expect(mostWords).toBeGreaterThan(10);
    expect(mostWords).toBeLessThanOrEqual(48);
  });
});

describe("search - the tool", () => {
  let ids: string[];
  const index = { current: undefined as ReturnType<typeof openDocumentIndex> | undefined };
  const LATER = new Date(Date.now() + 3_600_000);

  beforeAll(async () => {
    // Made here, since a fixture ends with its test.
    index.current = openDocumentIndex(postgres.url, silentLogger);
    return () => index.current!.close();
  });

  async function seed(): Promise<TestDocuments> {
    const service = await useDocuments({ url: postgres.url, store: db.store });
    ids = await addAll(service, [
      {
        user: "acme/tool",
        title: "Herons",
        tags: ["birds", "water"],
        text: `${"Herons wade in shallow water. ".repeat(60)}`,
      },
      {
        user: "acme/tool",
        title: "Storks",
        tags: ["birds"],
        text: "Storks nest on roofs near water and eat frogs.",
      },
      {
        user: "acme/tool",
        title: "Frogs",
        text: "🐸 Frogs live in water and are eaten by storks and herons.",
      },
    ]);
    return service;
  }

  async function run(
    args: Record<string, unknown>,
    more: Partial<ToolInput> = {},
    searched: DocumentIndex = index.current!,
  ): Promise<{ packets: ToolPayload[]; result: ToolResult }> {
    const tool = createSearchTool({ index: searched });
    const checked = createToolRegistry([tool]).get("search")!.checkArguments(JSON.stringify(args));
    if (checked.kind === "invalid") throw new Error(checked.text);
    const input: ToolInput = {
      args: checked.args,
      caller: create(ToolCallerSchema, { tenantId: "acme", userId: "tool" }),
      callId: "c1",
      files: [],
      credentials: {},
      firstCitationNumber: 101,
      userQuery: "",
      maxModelChars: 0,
      ...more,
    };
    const steps = tool.run(input, { signal: new AbortController().signal, logger: silentLogger });
    const packets: ToolPayload[] = [];
    for (;;) {
      const step = await steps.next();
      if (step.done) return { packets, result: step.value };
      packets.push(step.value);
    }
  }

  test("packets in order, numbered passages, documents that open at their place", async () => {
    await seed();
    const { packets, result } = await run({ queries: ["storks frogs", "herons"] });
    expect(packets.map((packet) => packet.case)).toEqual([
      "searchToolStart",
      "searchToolQueriesDelta",
      "searchToolDocumentsDelta",
    ]);
    expect(packets[1]!.value).toEqual({ queries: ["storks frogs", "herons"] });
    expect(result.outcome).toBe(ToolOutcome.OK);
    const numbers = result.documents.map((document) => document.citationNumber);
    expect(numbers).toEqual(numbers.map((_, place) => 101 + place));
    for (const document of result.documents) {
      expect(result.modelText).toContain(`[${document.citationNumber}] ${document.title}\n`);
      const documentId = document.metadata["document_id"]!;
      expect(document.url).toBe(`/#/documents/${documentId}?at=${document.startChar}`);
      expect(document.documentId).toBe(`${documentId}:${document.chunkIndex}`);
      expect(document.source).toBe("text");
    }
    // Both queries find it, so it stands first.
    expect(result.documents[0]!.title).toBe("Frogs");
  });

  test("the queries of a call run together", async () => {
    await seed();
    const queries = ["storks", "frogs", "herons"];
    const begun: string[] = [];
    const allBegun = deferred();
    const gated: DocumentIndex = {
      hasDocuments: (owner) => index.current!.hasDocuments(owner),
      search: async (owner, query, ...more) => {
        if (begun.push(query) === queries.length) allBegun.resolve();
        await allBegun.promise;
        return index.current!.search(owner, query, ...more);
      },
    };
    const together = await run({ queries }, {}, gated);
    expect(begun).toEqual(queries);
    expect(together.result.documents).toEqual((await run({ queries })).result.documents);
  });

  test("snippets are positions in code points", async () => {
    const service = await seed();
    const { result } = await run({ queries: ["herons"] });
    for (const document of result.documents) {
      const { text } = await service.as("acme/tool").documents.getDocument({
        documentId: document.metadata["document_id"]!,
        partToken: String(document.startChar),
      });
      expect(text.startsWith(document.snippet)).toBe(true);
      expect(document.endChar - document.startChar).toBe([...document.snippet].length);
    }
  });

  test("filters of the send and of the model narrow each other", async () => {
    await seed();
    const found = async (filters?: object, searchScope?: object): Promise<string[]> => {
      const scope = searchScope && create(SearchScopeSchema, searchScope);
      const { result } = await run(
        { queries: ["water"], ...(filters ? { filters } : {}) },
        { searchScope: scope },
      );
      return [...new Set(result.documents.map(({ title }) => title))].sort();
    };
    expect(await found()).toEqual(["Frogs", "Herons", "Storks"]);
    expect(await found({ tags: ["birds"] })).toEqual(["Herons", "Storks"]);
    expect(await found({ tags: ["birds"] }, { tags: ["water"] })).toEqual(["Herons"]);
    expect(await found({}, { documentIds: ids.slice(1) })).toEqual(["Frogs", "Storks"]);
    expect(await found({ document_ids: [ids[0]!] }, { documentIds: ids.slice(1) })).toEqual([]);
    expect(await found({}, { sources: ["web"] })).toEqual([]);
    expect(await found({ after: LATER.toISOString() })).toEqual([]);
    expect(await found({}, { before: timestampFromDate(LATER), sources: ["text"] })).toHaveLength(3);
    const { packets } = await run({ queries: ["water"], filters: { before: LATER.toISOString() } });
    expect(packets[1]).toMatchObject({ case: "searchToolFilterDelta" });
  });

  test("a user without documents, a question without an answer, a call without a user", async () => {
    await seed();
    const none = await run(
      { queries: ["water"] },
      { caller: create(ToolCallerSchema, { tenantId: "acme", userId: "new" }) },
    );
    expect(none.result).toMatchObject({ outcome: ToolOutcome.OK, documents: [] });
    expect(none.result.modelText).toContain("has no documents");
    expect((await run({ queries: ["zzz"] })).result.modelText).toContain("No passage was found");
    expect((await run({ queries: ["water"] }, { caller: undefined })).result.outcome).toBe(ToolOutcome.ERROR);
  });

  test("what the model reads is bounded, and says where it was cut", async () => {
    await seed();
    const { result } = await run({ queries: ["herons water"] }, { maxModelChars: 600 });
    expect(result.modelText.length).toBeLessThanOrEqual(600);
    expect(result.modelText).toContain("[...]");
    expect(result.truncated).toBe(true);
  });
});

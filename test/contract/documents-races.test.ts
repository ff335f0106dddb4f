/** Documents when things happen at once: cancelled and deleted while they are read, two replicas, dead workers, outages. */
import { randomBytes } from "node:crypto";
import { fromBinary } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { expect, onTestFinished, test } from "vitest";
import {
  DocumentFailure,
  DocumentStatus,
  SourceDocumentSchema,
} from "../../gen/turnwire/chat/v1/types_pb.js";
import { pgDocumentStore } from "../../src/documents/pg-document-store.js";
import { newId } from "../../src/lib/ids.js";
import { deferred, type Deferred } from "../../src/lib/signals.js";
import type { Store } from "../../src/store/store.js";
import {
  upload,
  useDocuments,
  type DocumentsOptions,
  type TestDocuments,
} from "../support/documents-fixture.js";
import { usePostgres } from "../support/postgres.js";
import { useStore } from "../support/store-fixtures.js";

const postgres = usePostgres();
const db = useStore(postgres);
const use = (options: Partial<DocumentsOptions> = {}) =>
  useDocuments({ url: postgres.url, store: db.store, ...options });

/** Reads of files that stop after their first part until `gate` opens; `reached` says that one has. */
function gatedFiles(): {
  files: Pick<Store, "getFile" | "readFile">;
  reached: Deferred<void>;
  gate: Deferred<void>;
} {
  const reached = deferred();
  const gate = deferred();
  return {
    reached,
    gate,
    files: {
      getFile: (principal, fileId) => db.store.getFile(principal, fileId),
      async *readFile(principal, fileId, offset) {
        for await (const part of db.store.readFile(principal, fileId, offset)) {
          yield part;
          reached.resolve();
          await gate.promise;
        }
      },
    },
  };
}

const LONG = Buffer.from("Words of a long document that is read in several parts. ".repeat(15_000));

async function addLong(service: TestDocuments): Promise<string> {
  const fileId = await upload(service.files, LONG, { name: "long.txt" });
  const { document } = await service.documents.addDocument({ source: { case: "fileId", value: fileId } });
  return document!.documentId;
}

async function passages(service: TestDocuments, documentId: string): Promise<number> {
  const rows = await service.channel.query("select 1 from turnwire.passages where document_id = $1", [
    documentId,
  ]);
  return rows.length;
}

test("documents - cancelled while it is read: nothing of it stays, its worker goes on with the next", async () => {
  const { files, reached, gate } = gatedFiles();
  const service = await use({ ingest: { files, limits: { concurrency: 1 } } });
  const documentId = await addLong(service);
  await reached.promise;
  const { document } = await service.documents.cancelDocument({ documentId });
  expect(document).toMatchObject({ status: DocumentStatus.CANCELLED, chunks: 0 });
  gate.resolve();
  const next = await service.documents.addDocument({ source: { case: "text", value: "the next one" } });
  expect((await service.settled(next.document!.documentId)).status).toBe(DocumentStatus.READY);
  expect(await passages(service, documentId)).toBe(0);
  expect((await service.documents.cancelDocument({ documentId })).document!.status).toBe(
    DocumentStatus.CANCELLED,
  );
});

test("documents - deleted while it is read: it is gone, and so are its passages", async () => {
  const { files, reached, gate } = gatedFiles();
  const service = await use({ ingest: { files, limits: { concurrency: 1 } } });
  const documentId = await addLong(service);
  await reached.promise;
  await service.documents.deleteDocument({ documentId });
  gate.resolve();
  const next = await service.documents.addDocument({ source: { case: "text", value: "the next one" } });
  await service.settled(next.document!.documentId);
  await expect(service.documents.getDocument({ documentId })).rejects.toMatchObject({ code: Code.NotFound });
  expect(await passages(service, documentId)).toBe(0);
});

test("documents - the file deleted first: the document says so", async () => {
  const service = await use({ started: false });
  const fileId = await upload(service.files, Buffer.from("x"), { name: "x.txt" });
  const { document } = await service.documents.addDocument({ source: { case: "fileId", value: fileId } });
  await service.files.deleteFile({ fileId });
  service.ingest.start();
  expect(await service.settled(document!.documentId)).toMatchObject({ failure: DocumentFailure.SOURCE_GONE });
});

test("documents - the file deleted while it is read: the document says so, and it is no fault", async () => {
  const { files, reached, gate } = gatedFiles();
  const service = await use({ ingest: { files, limits: { concurrency: 1 } } });
  const fileId = await upload(service.files, LONG, { name: "long.txt" });
  const { document } = await service.documents.addDocument({ source: { case: "fileId", value: fileId } });
  await reached.promise;
  await service.files.deleteFile({ fileId });
  gate.resolve();
  expect(await service.settled(document!.documentId)).toMatchObject({ failure: DocumentFailure.SOURCE_GONE });
});

test("documents - a request sent again when its file is gone answers the same document", async () => {
  const service = await use({ started: false });
  const fileId = await upload(service.files, Buffer.from("x"), { name: "x.txt" });
  const request = { source: { case: "fileId" as const, value: fileId }, requestId: newId() };
  const { document } = await service.documents.addDocument(request);
  await service.files.deleteFile({ fileId });
  expect((await service.documents.addDocument(request)).document).toEqual(document);
  await expect(service.documents.addDocument({ ...request, title: "other" })).rejects.toMatchObject({
    code: Code.AlreadyExists,
  });
  await expect(service.documents.addDocument({ ...request, requestId: newId() })).rejects.toMatchObject({
    code: Code.NotFound,
  });
});

test("documents - 10,000 passages that the planner knows nothing of are removed in time", async () => {
  const service = await use({ started: false });
  await service.channel.query("alter table turnwire.passages set (autovacuum_enabled = false)");
  const add = async (count: number) => {
    const { document } = await service.documents.addDocument({ source: { case: "text", value: "many" } });
    const { documentId } = document!;
    await service.channel.query(
      `insert into turnwire.passages (document_id, chunk_index, tenant_id, user_id, start_char, end_char, page, heading, text, terms)
       select $1, n, 'acme', 'alice', n, n + 1, 0, '', repeat('x', 1000), to_tsvector('simple', 'x' || n)
       from generate_series(1, $2::integer) n`,
      [documentId, count],
    );
    return { documentId };
  };
  await add(1_000);
  await service.channel.query("analyze turnwire.passages"); // it knows of others, and takes the new for a few
  const cancelled = await add(10_000);
  await service.documents.cancelDocument(cancelled);
  const deleted = await add(10_000);
  await service.documents.deleteDocument(deleted);
  for (const { documentId } of [cancelled, deleted]) expect(await passages(service, documentId)).toBe(0);
  await service.channel.query("alter table turnwire.passages reset (autovacuum_enabled)");
});

test("documents - two replicas share the work, each document is indexed once", async () => {
  const one = await use({ started: false });
  const two = await use({ started: false });
  const ids = await Promise.all(
    Array.from({ length: 20 }, async (_, number) => {
      const text = `# Number ${number}\n\n${"Some text of it. ".repeat(500)}`;
      const { document } = await one.documents.addDocument({
        mediaType: "text/markdown",
        source: { case: "text", value: text },
      });
      return { documentId: document!.documentId, text };
    }),
  );
  one.ingest.start();
  two.ingest.start();
  for (const { documentId, text } of ids) {
    const { chunks } = await one.settled(documentId);
    expect(await passages(one, documentId)).toBe(chunks);
    expect((await two.documents.getDocument({ documentId })).text).toBe(text);
  }
});

test("documents - what a dead worker left is begun anew by another, and its late writes change nothing", async () => {
  const service = await use({ started: false });
  const { document } = await service.documents.addDocument({ source: { case: "text", value: "taken over" } });
  const { documentId } = document!;
  const store = pgDocumentStore(service.channel);
  const dead = (await store.claim("dead", 1, undefined))!;
  const about = { title: "t", name: "", mediaType: "text/plain", language: "simple", sizeBytes: 1 };
  const passage = (index: number) => ({ index, text: "of the dead", start: 0, end: 1, heading: "", page: 0 });
  expect(await store.addPassages(dead, [passage(0), passage(7)], about, 1, 1)).toBe(true);
  service.ingest.start();
  expect(await service.settled(documentId)).toMatchObject({ status: DocumentStatus.READY, chunks: 1 });
  expect((await service.documents.getDocument({ documentId })).text).toBe("taken over");
  expect(await store.addPassages(dead, [passage(1)], about, 1, 1)).toBe(false);
  expect(await store.clear(dead)).toBe(false);
  expect(await store.renew(dead, 1)).toBe(false);
  expect(await store.finish(dead, about)).toBeUndefined();
  expect(await passages(service, documentId)).toBe(1);
});

test("documents - what ends while its passages cannot be removed has not ended; the next attempt leaves none", async () => {
  const service = await use({ started: false });
  const store = pgDocumentStore(service.channel);
  const about = { title: "t", name: "", mediaType: "text/plain", language: "simple", sizeBytes: 1 };
  const begun = async () => {
    const { document } = await service.documents.addDocument({ source: { case: "text", value: "ends" } });
    const lease = (await store.claim("worker", 60_000, undefined))!;
    await store.addPassages(
      lease,
      [{ index: 0, text: "x", start: 0, end: 1, heading: "", page: 0 }],
      about,
      1,
      60_000,
    );
    return { documentId: document!.documentId, lease };
  };
  const cancelled = await begun();
  const deleted = await begun();
  const failed = await begun();
  const fail = () => store.fail(failed.lease, DocumentFailure.BROKEN, "broken");
  await service.channel.query(`
    create function refuse_removal() returns trigger language plpgsql as 'begin raise exception ''refused''; end';
    create trigger refuse before delete on turnwire.passages for each row execute function refuse_removal()`);
  await expect(service.documents.cancelDocument(cancelled)).rejects.toThrow();
  await expect(service.documents.deleteDocument(deleted)).rejects.toThrow();
  await expect(fail()).rejects.toThrow();
  await service.channel.query("drop trigger refuse on turnwire.passages; drop function refuse_removal()");
  await service.documents.cancelDocument(cancelled);
  await service.documents.deleteDocument(deleted);
  expect(await fail()).toMatchObject({ status: DocumentStatus.FAILED });
  for (const { documentId } of [cancelled, deleted, failed])
    expect(await passages(service, documentId)).toBe(0);
});

test("documents - every change tells whoever watches, in the transaction that makes it", async () => {
  const service = await use({ started: false });
  const watcher = { tenantId: "acme", userId: "watcher", admin: false };
  const { documents } = service.as("acme/watcher");
  const addText = async (value: string) =>
    (await documents.addDocument({ source: { case: "text", value } })).document!.documentId;
  const refuseEvents = `create trigger refuse before insert on turnwire.session_events for each row execute function refuse()`;
  await service.channel.query(
    "create function refuse() returns trigger language plpgsql as 'begin raise exception ''refused''; end'",
  );
  let { token } = await db.store.readSessionEvents(watcher, "");
  const told = async () => {
    const { rows, token: next } = await db.store.readSessionEvents(watcher, token);
    token = next;
    return rows.map((row) => {
      if (!("data" in row)) return row.kind;
      const { documentId, status } = fromBinary(SourceDocumentSchema, row.data);
      return [row.kind, documentId, status];
    });
  };
  let wakes = 0;
  onTestFinished(db.store.onSessionEvent(watcher, () => wakes++));

  const cancelled = await addText("cancelled");
  await documents.cancelDocument({ documentId: cancelled });
  await documents.cancelDocument({ documentId: cancelled });
  await documents.deleteDocument({ documentId: cancelled });
  expect(wakes).toBeGreaterThanOrEqual(3);
  expect(await told()).toEqual([
    ["document", cancelled, DocumentStatus.INDEXING],
    ["document", cancelled, DocumentStatus.CANCELLED],
    ["document_deleted", cancelled, DocumentStatus.UNSPECIFIED],
  ]);

  const ready = await addText("ready");
  const empty = await addText(" ");
  await service.channel.query(refuseEvents);
  const store = pgDocumentStore(service.channel);
  const lease = (await store.claim("refused", 1, undefined))!;
  const about = { title: "t", name: "", mediaType: "text/plain", language: "simple", sizeBytes: 1 };
  await expect(store.finish(lease, about)).rejects.toThrow();
  await expect(documents.deleteDocument({ documentId: empty })).rejects.toThrow();
  await expect(addText("refused")).rejects.toThrow();
  expect((await documents.listDocuments({})).documents.map(({ status }) => status)).toEqual([
    DocumentStatus.INDEXING,
    DocumentStatus.INDEXING,
  ]);
  await service.channel.query("drop trigger refuse on turnwire.session_events; drop function refuse()");

  service.ingest.start();
  for (const documentId of [ready, empty]) await service.settled(documentId, "acme/watcher");
  const last = await told();
  expect(last.slice(0, 2)).toEqual([
    ["document", ready, DocumentStatus.INDEXING],
    ["document", empty, DocumentStatus.INDEXING],
  ]);
  expect(last.slice(2)).toHaveLength(2);
  expect(last).toContainEqual(["document", ready, DocumentStatus.READY]);
  expect(last).toContainEqual(["document", empty, DocumentStatus.FAILED]);
});

test("documents - one that kills its workers is given up; a clean shutdown does not count", async () => {
  const service = await use({ started: false });
  const { document } = await service.documents.addDocument({ source: { case: "text", value: "poison" } });
  const store = pgDocumentStore(service.channel);
  for (let round = 0; round < 6; round++)
    await store.release((await store.claim("clean", 60_000, undefined))!);
  for (let round = 0; round < 4; round++) await store.claim("killed", -1, undefined);
  service.ingest.start();
  expect(await service.settled(document!.documentId)).toMatchObject({
    status: DocumentStatus.FAILED,
    failure: DocumentFailure.INTERRUPTED,
  });
});

test("documents - a replica that stops gives back what it has begun, at once", async () => {
  const { files, reached, gate } = gatedFiles();
  const one = await use({ ingest: { files, limits: { concurrency: 1 } } });
  const documentId = await addLong(one);
  await reached.promise;
  const closing = one.ingest.close();
  gate.resolve();
  await closing;
  const two = await use();
  expect(await two.settled(documentId)).toMatchObject({ status: DocumentStatus.READY });
  let read = "";
  for (let partToken = ""; ;) {
    const part = await two.documents.getDocument({ documentId, partToken });
    read += part.text;
    partToken = part.nextPartToken;
    if (partToken === "") break;
  }
  expect(read).toBe(LONG.toString());
});

test("documents - an outage of the database costs a document nothing", async () => {
  const { files, reached, gate } = gatedFiles();
  const service = await use({ ingest: { files, limits: { concurrency: 1, leaseMs: 2_000, pollMs: 100 } } });
  const documentId = await addLong(service);
  await reached.promise;
  process.kill(postgres.server.pid, "SIGKILL"); // it is started again by its keeper
  gate.resolve();
  for (;;) {
    const settled = await service.settled(documentId).catch(() => undefined); // while it is away nobody answers
    if (!settled) continue;
    expect(settled.status).toBe(DocumentStatus.READY);
    break;
  }
});

test("uploads - the same upload over two connections at once gives one whole file", async () => {
  const service = await use();
  const data = randomBytes(1_500_000);
  const uploadId = newId();
  const url = `${service.httpUrl}/files/${uploadId}`;
  const answers = await Promise.all(
    Array.from({ length: 3 }, async () => {
      const response = await fetch(url, { method: "PUT", body: data });
      return [response.status, ((await response.json()) as { sizeBytes: string }).sizeBytes];
    }),
  );
  expect(answers).toEqual(answers.map(() => [200, "1500000"]));
});

/** DocumentService on a real Postgres: every kind of source, states, idempotency, isolation, pages of text. */
import { Code } from "@connectrpc/connect";
import { describe, expect, test } from "vitest";
import { DocumentFailure, DocumentStatus } from "../../gen/turnwire/chat/v1/types_pb.js";
import { upload, useDocuments } from "../support/documents-fixture.js";
import { usePostgres } from "../support/postgres.js";
import { useStore } from "../support/store-fixtures.js";
import { makePdf } from "../support/web-pages.js";

const postgres = usePostgres();
const db = useStore(postgres);
const use = (options = {}) => useDocuments({ url: postgres.url, store: db.store, ...options });

test("documents - text is indexed and can be read back, whole and from any place", async () => {
  const service = await use();
  const text = `# Handbook\n\n${"Each sentence here says 🕰️ something. ".repeat(8_000)}\n`;
  const added = await service.documents.addDocument({
    source: { case: "text", value: text },
    mediaType: "text/markdown",
    tags: ["a", "b"],
    requestId: "r1",
  });
  expect(added.document).toMatchObject({ status: DocumentStatus.INDEXING, tags: ["a", "b"] });
  const documentId = added.document!.documentId;
  const ready = await service.settled(documentId);
  const sizeBytes = String(Buffer.byteLength(text));
  expect(ready).toMatchObject({
    status: DocumentStatus.READY,
    title: "Handbook",
    mediaType: "text/markdown",
    error: "",
    failure: DocumentFailure.UNSPECIFIED,
    sizeBytes,
    processedBytes: sizeBytes,
  });
  let read = "";
  let parts = 0;
  for (let partToken = ""; ; parts++) {
    const part = await service.documents.getDocument({ documentId, partToken });
    read += part.text;
    partToken = part.nextPartToken;
    if (partToken === "") break;
  }
  expect(read).toBe(text);
  expect(parts).toBeGreaterThan(0);
  const characters = [...text];
  for (const at of [1, 12, 1_999, 55_555, characters.length - 1]) {
    const part = await service.documents.getDocument({ documentId, partToken: String(at) });
    expect([...part.text].slice(0, 50).join("")).toBe(characters.slice(at, at + 50).join(""));
  }
  expect((await service.documents.getDocument({ documentId, partToken: "99999999" })).text).toBe("");
  await expect(service.documents.getDocument({ documentId, partToken: "x" })).rejects.toMatchObject({
    code: Code.InvalidArgument,
  });
});

test("documents - a PDF and an HTML page that were uploaded in parts", async () => {
  const service = await use();
  const pdf = makePdf(["The first page is about herons.", "The second page is about storks."], "Birds");
  const html =
    "<html><head><title>The &amp; Title</title></head><body><h1>Head</h1><p>One <b>two</b></p><script>no()</script></body></html>";
  const pdfFile = await upload(service.files, pdf, { name: "birds.pdf", partBytes: 300 });
  const htmlFile = await upload(service.files, Buffer.from(html), { name: "page.html" });
  const [pdfDocument, htmlDocument] = await Promise.all(
    [pdfFile, htmlFile].map(async (fileId) => {
      const { document } = await service.documents.addDocument({ source: { case: "fileId", value: fileId } });
      return service.settled(document!.documentId);
    }),
  );
  expect(pdfDocument).toMatchObject({
    status: DocumentStatus.READY,
    mediaType: "application/pdf",
    title: "birds.pdf",
  });
  const readPdf = await service.documents.getDocument({ documentId: pdfDocument!.documentId });
  expect(readPdf.text).toContain("[page 2 of 2]\nThe second page is about storks.");
  expect(htmlDocument).toMatchObject({ status: DocumentStatus.READY, mediaType: "text/html" });
  const readHtml = await service.documents.getDocument({ documentId: htmlDocument!.documentId });
  expect(readHtml.text).toBe("# Head\n\nOne two");
});

test("documents - the same request_id is the same document, another content under it is refused", async () => {
  const service = await use();
  const request = { source: { case: "text" as const, value: "once" }, requestId: "same" };
  const adds = await Promise.all(Array.from({ length: 8 }, () => service.documents.addDocument(request)));
  expect(new Set(adds.map(({ document }) => document!.documentId)).size).toBe(1);
  await expect(
    service.documents.addDocument({ ...request, source: { case: "text", value: "twice" } }),
  ).rejects.toMatchObject({ code: Code.AlreadyExists });
  const other = await service.as("acme/bob").documents.addDocument(request);
  expect(other.document!.documentId).not.toBe(adds[0]!.document!.documentId);
});

test("documents - of others are not there, in the same words as those that never were", async () => {
  const service = await use();
  const fileId = await upload(service.files, Buffer.from("mine"), { name: "mine.txt" });
  const { document } = await service.documents.addDocument({ source: { case: "fileId", value: fileId } });
  const { documentId } = await service.settled(document!.documentId);
  for (const user of ["acme/bob", "other/alice"]) {
    const stranger = service.as(user);
    for (const call of ["getDocument", "cancelDocument", "deleteDocument"] as const) {
      const refusal = (id: string) => messageOf(stranger.documents[call]({ documentId: id }));
      expect(await refusal(documentId)).toBe((await refusal("none")).replace("none", documentId));
    }
    await expect(
      stranger.documents.addDocument({ source: { case: "fileId", value: fileId } }),
    ).rejects.toMatchObject({ code: Code.NotFound });
    await expect(stranger.files.getFile({ fileId })).rejects.toMatchObject({ code: Code.NotFound });
    await expect(stranger.files.deleteFile({ fileId })).rejects.toMatchObject({ code: Code.NotFound });
    const list = await stranger.documents.listDocuments({});
    expect(list.documents.filter((each) => each.documentId === documentId)).toEqual([]);
  }
  expect((await service.documents.getDocument({ documentId })).text).toBe("mine");
});

test("documents - are listed newest first, page by page, and by words of the title", async () => {
  const service = await use();
  const user = service.as("acme/lister");
  for (const title of ["Annual report", "Budget of the year", "100% wool"])
    await user.documents.addDocument({ title, source: { case: "text", value: title } });
  const titles: string[] = [];
  for (let pageToken = ""; ;) {
    const page = await user.documents.listDocuments({ pageSize: 2, pageToken });
    titles.push(...page.documents.map(({ title }) => title));
    pageToken = page.nextPageToken;
    if (pageToken === "") break;
  }
  expect(titles).toEqual(["100% wool", "Budget of the year", "Annual report"]);
  const found = await user.documents.listDocuments({ query: "REPORT annual" });
  expect(found.documents.map(({ title }) => title)).toEqual(["Annual report"]);
  expect((await user.documents.listDocuments({ query: "0%" })).documents).toHaveLength(1);
});

test("documents - deleting one takes its passages along", async () => {
  const service = await use();
  const { document } = await service.documents.addDocument({ source: { case: "text", value: "gone soon" } });
  const { documentId } = await service.settled(document!.documentId);
  await service.documents.deleteDocument({ documentId });
  await expect(service.documents.getDocument({ documentId })).rejects.toMatchObject({ code: Code.NotFound });
  const left = await service.channel.query("select 1 from turnwire.passages where document_id = $1", [
    documentId,
  ]);
  expect(left).toEqual([]);
});

describe("documents - quotas", () => {
  test("documents, bytes and what is being indexed are bounded per user", async () => {
    const quotas = { maxDocuments: 3, maxBytes: 100, maxIndexing: 2 };
    const service = await use({ quotas, started: false });
    const add = (value: string, user = "acme/quota") =>
      service.as(user).documents.addDocument({ source: { case: "text", value } });
    await expect(add("x".repeat(101))).rejects.toMatchObject({ code: Code.ResourceExhausted });
    const first = await add("one");
    await add("two");
    await expect(add("three")).rejects.toThrow(/still being indexed/);
    await add("another user's", "acme/quota-2");
    await service.as("acme/quota").documents.cancelDocument({ documentId: first.document!.documentId });
    await add("three");
    await expect(add("four")).rejects.toThrow(/you have 3 documents/);
  });

  test("a page counts as much as it may have until it is read", async () => {
    const quotas = { maxBytes: 100, pageBytes: 60 };
    const service = await use({ quotas, started: false });
    const { documents } = service.as("acme/pages");
    const addPage = (name: string) =>
      documents.addDocument({ source: { case: "url", value: `https://127.0.0.1:1/${name}` } });
    const { document } = await addPage("one");
    await expect(addPage("two")).rejects.toThrow(/wait until some are ready/);
    const addText = () => documents.addDocument({ source: { case: "text", value: "x".repeat(41) } });
    await expect(addText()).rejects.toThrow(/wait until some are ready/);
    await documents.cancelDocument({ documentId: document!.documentId });
    await addText();
    await expect(addPage("two")).rejects.toThrow(/together: delete some/);
  });

  test("what is added at once keeps the bounds, too", async () => {
    const quotas = { maxDocuments: 3 };
    const [one, two] = [await use({ quotas, started: false }), await use({ quotas, started: false })];
    const added = await Promise.allSettled(
      Array.from({ length: 12 }, (_, number) =>
        (number % 2 ? one : two)
          .as("acme/at-once")
          .documents.addDocument({ source: { case: "text", value: `text ${number}` } }),
      ),
    );
    expect(added.filter(({ status }) => status === "fulfilled")).toHaveLength(3);
  });
});

async function messageOf(call: Promise<unknown>): Promise<string> {
  return call.then(
    () => "no refusal",
    (error: Error) => error.message,
  );
}

/** Documents that cannot be read, or that would take the service down: a typed reason each, and the service goes on. */
import { monitorEventLoopDelay } from "node:perf_hooks";
import { afterAll, beforeAll, expect, test } from "vitest";
import { DocumentFailure, DocumentStatus, type SourceDocument } from "../../gen/turnwire/chat/v1/types_pb.js";
import {
  upload,
  useDocuments,
  type DocumentsOptions,
  type TestDocuments,
} from "../support/documents-fixture.js";
import { usePostgres } from "../support/postgres.js";
import { useStore } from "../support/store-fixtures.js";
import { makePdf, startWebPages, type WebPages } from "../support/web-pages.js";

const postgres = usePostgres();
const db = useStore(postgres);
let web: WebPages;
beforeAll(async () => {
  web = await startWebPages();
});
afterAll(() => web.close());

const use = (options: Partial<DocumentsOptions> = {}) =>
  useDocuments({ url: postgres.url, store: db.store, allowHosts: [web.host], ...options });

async function addFile(
  service: TestDocuments,
  data: Uint8Array,
  name: string,
  mediaType = "",
): Promise<SourceDocument> {
  const fileId = await upload(service.files, data, { name, mediaType });
  const { document } = await service.documents.addDocument({ source: { case: "fileId", value: fileId } });
  return service.settled(document!.documentId);
}

/** A PDF whose one page unpacks to this many bytes of drawing. */
function bomb(bytes: number): Buffer {
  return makePdf(["small"], "Bomb", "0 0 m ".repeat(Math.floor(bytes / 6)));
}

function encryptedPdf(): Buffer {
  const id = "<00112233445566778899aabbccddeeff>";
  const encrypt = `/Encrypt << /Filter /Standard /V 1 /R 2 /O (${"o".repeat(32)}) /U (${"u".repeat(32)}) /P -44 >> /ID [${id} ${id}]`;
  return Buffer.from(
    makePdf(["secret"], "Secret").toString("latin1").replace("trailer\n<< ", `trailer\n<< ${encrypt} `),
    "latin1",
  );
}

const text = (value: string): Buffer => Buffer.from(value);

test.each([
  [
    "a zip of any kind",
    text("PK\u0003\u0004word/document.xml"),
    "report.docx",
    "",
    DocumentFailure.UNSUPPORTED_TYPE,
  ],
  [
    "an image",
    Buffer.from([0x89, 0x50, 0x4e, 0x47, 13, 10, 26, 10]),
    "a.png",
    "",
    DocumentFailure.UNSUPPORTED_TYPE,
  ],
  ["a video by its type", text("video"), "a.mp4", "video/mp4", DocumentFailure.UNSUPPORTED_TYPE],
  [
    "bytes that are no text",
    Buffer.from([1, 0, 2, 0, 255]),
    "a.txt",
    "text/plain",
    DocumentFailure.UNSUPPORTED_TYPE,
  ],
  ["text called a PDF", text("hello"), "a.pdf", "application/pdf", DocumentFailure.BROKEN],
  ["a PDF cut short", makePdf(["one"], "T").subarray(0, 200), "a.pdf", "", DocumentFailure.BROKEN],
  ["a PDF with a password", encryptedPdf(), "a.pdf", "", DocumentFailure.ENCRYPTED],
  ["a PDF without text", makePdf([""], "Scan"), "scan.pdf", "", DocumentFailure.EMPTY],
  ["an empty file", Buffer.alloc(0), "a.txt", "", DocumentFailure.EMPTY],
  ["white space", text(" \n\t\n "), "a.md", "", DocumentFailure.EMPTY],
  ["HTML nested without end", text("<div>".repeat(200_000)), "a.html", "", DocumentFailure.BROKEN],
  [
    "HTML that closes what is not open",
    text("<b>".repeat(25_000) + "</x>".repeat(500_000)),
    "a.html",
    "",
    DocumentFailure.BROKEN,
  ],
  ["HTML without text", text("<html><script>1</script></html>"), "a.html", "", DocumentFailure.EMPTY],
] as const)(
  "documents - %s fails with its reason, and says what to do",
  async (_, data, name, type, failure) => {
    const service = await use();
    const document = await addFile(service, data, name, type);
    expect(document).toMatchObject({ status: DocumentStatus.FAILED, failure, chunks: 0 });
    expect(document.error).toMatch(/^[A-Z].{10,300}\.$/);
  },
);

test("documents - what makes careless parsers quadratic is read, or refused, like any other page", async () => {
  const service = await use();
  const many = (part: string): string => part.repeat(Math.ceil(400_000 / part.length));
  const pages = {
    attributes: `<p ${many('a="b" ')}>x</p>`,
    names: `<p ${Array.from({ length: 100_000 }, (_, n) => `a${n}=1`).join(" ")}>x</p>`,
    comments: `x${many("<!-- y -->")}${many("<!--")}`,
    entities: `x${many("&amp;&#x41;&no;")}&${many("a")}`,
    cells: `<table>${many("<td>x")}`,
    paragraphs: many("<p>x"),
    starts: `x${many("<")}${many("</")}${many("<!")}`,
    scripts: `x<script>${many("</scrip")}`,
    spaces: `x<pre>${many("\r")}${many(" \t")}</pre>`,
    tables: "<table><tr><td>x".repeat(100_000),
  };
  const settled = await Promise.all(
    Object.entries(pages).map(async ([name, page]) => {
      const document = await addFile(service, text(`<html><body>${page}`), `${name}.html`, "text/html");
      return [name, document.failure] as const;
    }),
  );
  const refused = settled.filter(([, failure]) => failure !== DocumentFailure.UNSPECIFIED);
  expect(refused).toEqual([["tables", DocumentFailure.BROKEN]]);
});

test("documents - addresses: read, refused, missing", async () => {
  const service = await use();
  const add = async (url: string) => {
    const { document } = await service.documents.addDocument({ source: { case: "url", value: url } });
    return service.settled(document!.documentId);
  };
  expect(await add(web.url("/article"))).toMatchObject({
    status: DocumentStatus.READY,
    title: "The Long Walk",
    mediaType: "text/html",
    url: web.url("/article"),
  });
  expect(await add(web.url("/pdf"))).toMatchObject({ status: DocumentStatus.READY, title: "A Report" });
  const missing = await add(web.url("/status/503"));
  expect(missing).toMatchObject({ status: DocumentStatus.FAILED, failure: DocumentFailure.UNREACHABLE });
  expect(missing.error).toContain("HTTP status 503");
  expect(await add("http://169.254.169.254/latest/meta-data")).toMatchObject({
    status: DocumentStatus.FAILED,
    failure: DocumentFailure.UNREACHABLE,
  });
});

test("documents - bombs and mazes cost a process of their own, while the service answers", async () => {
  const service = await use({
    extractor: { maxMiB: 192, maxHeapMiB: 96, timeoutMs: 8_000 },
    ingest: { limits: { maxExtractedChars: 2_000_000, maxPages: 50 } },
  });
  const delay = monitorEventLoopDelay({ resolution: 5 });
  delay.enable();
  const deep = `<html><body>${"<div>".repeat(20_000)}at the bottom${"</div>".repeat(20_000)}</body></html>`;
  const [bombed, mazed, long, pages] = await Promise.all([
    addFile(service, bomb(300_000_000), "bomb.pdf"),
    addFile(service, text(deep), "deep.html"),
    addFile(service, text(`<p>${"word ".repeat(500_000)}</p>`), "long.html", "text/html"),
    addFile(
      service,
      makePdf(
        Array.from({ length: 60 }, (_, page) => `page ${page}`),
        "Many",
      ),
      "many.pdf",
    ),
  ]);
  delay.disable();
  expect(bombed.status).toBe(DocumentStatus.FAILED);
  expect([DocumentFailure.TOO_LARGE, DocumentFailure.TIMEOUT]).toContain(bombed.failure);
  expect(mazed).toMatchObject({ status: DocumentStatus.READY, error: "" });
  expect(long).toMatchObject({ status: DocumentStatus.FAILED, failure: DocumentFailure.TOO_LARGE });
  expect(pages).toMatchObject({ status: DocumentStatus.FAILED, failure: DocumentFailure.TOO_LARGE });
  // Its own work never holds the loop for long; what a busy machine adds is not this.
  expect(delay.percentile(90) / 1e6).toBeLessThan(250);
});

test("documents - many encodings, line ends and stray zeros become one text", async () => {
  const service = await use();
  const read = async (data: Uint8Array, type = "") => {
    const { documentId } = await addFile(service, data, "a.txt", type);
    return (await service.documents.getDocument({ documentId })).text;
  };
  expect(await read(Buffer.from("caf\u00e9 \u20ac", "utf8"))).toBe("café €");
  expect(await read(Buffer.from("caf\u00e9", "latin1"))).toBe("café");
  expect(await read(Buffer.from("\ufeffcaf\u00e9", "utf16le"))).toBe("café");
  expect(await read(Buffer.from([0xc0, 0xe1]), "text/plain; charset=windows-1251")).toBe("Аб");
  expect(await read(Buffer.from("a\r\nb\rc\n"))).toBe("a\nb\nc\n");
  expect(await read(Buffer.from("without a mark: caf\u00e9", "utf16le"))).toBe("without a mark: café");
  expect(await read(Buffer.from("without a mark", "utf16le").swap16())).toBe("without a mark");
  expect(await read(Buffer.from("東京都の庭師は日の出前に\n花に水をやっていた。", "utf16le"))).toContain(
    "庭師",
  );
  expect(await read(Buffer.from(`a stray\0 zero ${"in a text ".repeat(20)}`))).toContain("stray\ufffd zero");
});

test("documents - which encoding was read is said with the type", async () => {
  const service = await use();
  const latin = await addFile(service, Buffer.from("caf\u00e9", "latin1"), "a.txt", "text/plain");
  expect(latin.mediaType).toBe("text/plain; charset=windows-1252");
  const wide = await addFile(service, Buffer.from("# Wide text", "utf16le"), "a.md", "text/markdown");
  expect(wide.mediaType).toBe("text/markdown; charset=utf-16le");
});

test("documents - a text of one line of many megabytes is read like any other", async () => {
  const service = await use();
  const line = await addFile(service, Buffer.alloc(8_000_000, "x"), "line.txt");
  expect(line).toMatchObject({ status: DocumentStatus.READY, chunks: 4_000 });
});

test("documents - what unpacks to far more than it is does not come in over an address either", async () => {
  const service = await use();
  const gzip = web.url("/gzip-bomb");
  const { document } = await service.documents.addDocument({ source: { case: "url", value: gzip } });
  const settled = await service.settled(document!.documentId);
  expect(settled).toMatchObject({ status: DocumentStatus.FAILED, failure: DocumentFailure.TOO_LARGE });
});

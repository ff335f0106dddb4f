/** Files on a real Postgres: uploads in parts and over HTTP, resumed and repeated; reads with ranges; who may do what. */
import { createHash, randomBytes } from "node:crypto";
import http from "node:http";
import { Code } from "@connectrpc/connect";
import { pino } from "pino";
import { describe, expect, test } from "vitest";
import { newId } from "../../src/lib/ids.js";
import { silentLogger } from "../../src/lib/log.js";
import { deferred } from "../../src/lib/signals.js";
import { Channel } from "../../src/store/db.js";
import { pgUploadStore } from "../../src/store/uploads.js";
import { upload, useDocuments } from "../support/documents-fixture.js";
import { usePostgres } from "../support/postgres.js";
import { useStore } from "../support/store-fixtures.js";

const postgres = usePostgres();
const db = useStore(postgres);
const use = (options = {}) => useDocuments({ url: postgres.url, store: db.store, ...options });
const sha256 = (data: Uint8Array): string => createHash("sha256").update(data).digest("hex");

async function download(
  files: Awaited<ReturnType<typeof use>>["files"],
  fileId: string,
  offset = 0,
): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  for await (const { data } of files.downloadFile({ fileId, offset: String(offset) })) parts.push(data);
  return Buffer.concat(parts);
}

describe("files - uploaded in parts", () => {
  test.each([1, 100_000, 262_144, 300_001, 1_048_576])("parts of %i bytes", async (partBytes) => {
    const service = await use();
    const data = randomBytes(partBytes === 1 ? 5 : 700_000);
    const fileId = await upload(service.files, data, {
      name: "/home/me/data.bin",
      mediaType: "Application/X-Data",
      partBytes,
    });
    const { file } = await service.files.getFile({ fileId });
    expect(file).toMatchObject({
      name: "data.bin",
      mediaType: "application/x-data",
      sizeBytes: String(data.length),
      sha256: sha256(data),
      downloadPath: `/files/${fileId}`,
      turnId: "",
    });
    expect((await download(service.files, fileId)).equals(data)).toBe(true);
    const tail = Math.floor(data.length / 2);
    expect((await download(service.files, fileId, tail)).equals(data.subarray(tail))).toBe(true);
  });

  test("a part sent again changes nothing, also in another cut; the answer to the last one is the same file", async () => {
    const { files } = await use();
    const data = randomBytes(600_000);
    const uploadId = newId();
    const send = (from: number, to: number, last = false) =>
      files.uploadFile({ uploadId, name: "a", offset: String(from), data: data.subarray(from, to), last });
    await send(0, 300_000);
    await send(0, 300_000);
    await send(200_000, 450_000);
    const [one, two] = await Promise.all([send(450_000, 600_000, true), send(450_000, 600_000, true)]);
    expect(one.file).toEqual(two.file);
    expect((await send(0, 300_000)).file).toEqual(one.file);
    expect(one.file!.sha256).toBe(sha256(data));
  });

  test("a gap says where to go on; other bytes, a longer or a shorter file under the same id are refused", async () => {
    const { files } = await use();
    const uploadId = newId();
    const send = (offset: number, text: string, last = false) =>
      files.uploadFile({ uploadId, name: "a", offset: String(offset), data: Buffer.from(text), last });
    await expect(send(3, "def")).rejects.toMatchObject({
      code: Code.InvalidArgument,
      message: /has 0 bytes/,
    });
    await send(0, "abcdef");
    await expect(send(9, "x")).rejects.toThrow(/has 6 bytes, go on from there/);
    await expect(send(2, "XX")).rejects.toMatchObject({ code: Code.AlreadyExists });
    await expect(send(0, "abc", true)).rejects.toMatchObject({ code: Code.AlreadyExists });
    await send(6, "", true);
    await expect(send(6, "g")).rejects.toMatchObject({ code: Code.AlreadyExists });
  });

  test("bounds: one file, all files of a user, unfinished uploads; those left alone are removed", async () => {
    const service = await use({
      uploadLimits: { maxFileBytes: 1_000, maxUserBytes: 1_500, maxOpenUploads: 2 },
    });
    const { files } = service.as("acme/bounded");
    const begin = (size: number, last = false) =>
      files.uploadFile({ uploadId: newId(), name: "a", data: Buffer.alloc(size), last });
    await expect(begin(1_001)).rejects.toMatchObject({ code: Code.ResourceExhausted });
    await begin(900, true);
    await expect(begin(700, true)).rejects.toThrow(/together/);
    await begin(1);
    await begin(1);
    await expect(begin(1)).rejects.toThrow(/unfinished uploads/);
    const channel = new Channel(postgres.url, 1, silentLogger);
    try {
      expect(await pgUploadStore(channel).deleteAbandoned(60_000, 10)).toBe(0);
      expect(await pgUploadStore(channel).deleteAbandoned(-60_000, 10)).toBe(2);
    } finally {
      await channel.close();
    }
    await begin(1);
  });

  test("bounds: files of any size, begun at once or growing together", async () => {
    const uploadLimits = { maxFiles: 3, maxUserBytes: 1_000, maxOpenUploads: 2 };
    const service = await use({ uploadLimits });
    const { files } = service.as("acme/many");
    const part = (uploadId: string, offset: number, size: number, last = false) =>
      files.uploadFile({ uploadId, name: "a", offset: String(offset), data: Buffer.alloc(size), last });
    const ids = Array.from({ length: 8 }, () => newId());
    const begun = await Promise.allSettled(ids.map((id) => part(id, 0, 400)));
    const open = ids.filter((_, number) => begun[number]!.status === "fulfilled");
    expect(open).toHaveLength(2);
    await expect(part(open[0]!, 400, 201)).rejects.toThrow(/together/);
    await part(open[0]!, 400, 200, true);
    await part(open[1]!, 400, 0, true);
    await expect(part(newId(), 0, 1)).rejects.toThrow(/together/);
    await part(newId(), 0, 0, true);
    await expect(part(newId(), 0, 0, true)).rejects.toThrow(/you have 3 files/);
  });

  test("what is not whole is no file; a file of a session goes with it; others see nothing", async () => {
    const service = await use();
    const alice = { tenantId: "acme", userId: "alice", admin: false };
    const session = await db.store.createSession(alice, {
      sessionId: newId(),
      requestId: "",
      settings: new Uint8Array(),
      title: "",
      tags: [],
    });
    const { sessionId } = session;
    const part = { uploadId: newId(), name: "a.txt", data: Buffer.from("hello"), sessionId };
    await service.files.uploadFile(part);
    const [row] = await service.channel.query<{ file_id: string }>(
      "select file_id from turnwire.files where upload_id = $1",
      [part.uploadId],
    );
    await expect(service.files.getFile({ fileId: row!.file_id })).rejects.toMatchObject({
      code: Code.NotFound,
    });
    const { file } = await service.files.uploadFile({
      ...part,
      offset: "5",
      data: Buffer.alloc(0),
      last: true,
    });
    expect((await download(service.files, file!.fileId)).toString()).toBe("hello");
    await expect(
      service.as("acme/bob").files.uploadFile({ ...part, uploadId: newId() }),
    ).rejects.toMatchObject({ code: Code.NotFound });
    const unfinished = { ...part, uploadId: newId() };
    await service.files.uploadFile(unfinished);
    await db.store.deleteSession(alice, sessionId);
    await expect(service.files.uploadFile({ ...unfinished, offset: "5" })).rejects.toMatchObject({
      code: Code.NotFound,
    });
    await expect(service.files.getFile({ fileId: file!.fileId })).rejects.toMatchObject({
      code: Code.NotFound,
    });
  });

  test("deleting: the owner's, once", async () => {
    const service = await use();
    const fileId = await upload(service.files, Buffer.from("x"), { name: "x.md" });
    await expect(service.as("acme/bob").files.deleteFile({ fileId })).rejects.toMatchObject({
      code: Code.NotFound,
    });
    await service.files.deleteFile({ fileId });
    await expect(service.files.deleteFile({ fileId })).rejects.toMatchObject({ code: Code.NotFound });
  });
});

describe("files - over HTTP", () => {
  const put = (url: string, body: BodyInit, headers: Record<string, string> = {}) =>
    fetch(url, { method: "PUT", body, headers, duplex: "half" } as RequestInit);

  test("PUT stores, a repeat answers the same file, GET gives the bytes as data and never as a page", async () => {
    const service = await use();
    const html = "<script>alert(1)</script>".repeat(100_000);
    const url = `${service.httpUrl}/files/${newId()}?name=${encodeURIComponent('d\'été "1".html')}`;
    const stored = await put(url, html, { "content-type": "text/html" });
    expect(stored.status).toBe(200);
    const file = (await stored.json()) as { fileId: string; sha256: string; sizeBytes: string };
    expect(file).toMatchObject({ sizeBytes: String(html.length), sha256: sha256(Buffer.from(html)) });
    expect(await (await put(url, html, { "content-type": "text/html" })).json()).toEqual(file);
    const got = await fetch(`${service.httpUrl}/files/${file.fileId}`);
    expect(await got.text()).toBe(html);
    expect(Object.fromEntries(got.headers)).toMatchObject({
      "content-type": "text/html",
      "content-disposition": `attachment; filename="d__t_ _1_.html"; filename*=UTF-8''d%27%C3%A9t%C3%A9%20%221%22.html`,
      "content-security-policy": "sandbox; default-src 'none'",
      "x-content-type-options": "nosniff",
      "cross-origin-resource-policy": "same-origin",
      "content-length": String(html.length),
    });
  });

  test("ranges, HEAD and conditional reads", async () => {
    const service = await use();
    const data = randomBytes(600_000);
    const fileId = await upload(service.files, data, { name: "a.bin" });
    const url = `${service.httpUrl}/files/${fileId}`;
    const part = await fetch(url, { headers: { range: "bytes=262100-300000" } });
    expect([part.status, part.headers.get("content-range")]).toEqual([206, "bytes 262100-300000/600000"]);
    expect(Buffer.from(await part.arrayBuffer()).equals(data.subarray(262_100, 300_001))).toBe(true);
    const beyond = await fetch(url, { headers: { range: "bytes=600000-" } });
    expect([beyond.status, beyond.headers.get("content-range")]).toEqual([416, "bytes */600000"]);
    const head = await fetch(url, { method: "HEAD" });
    expect([head.status, head.headers.get("content-length"), await head.text()]).toEqual([200, "600000", ""]);
    const etag = head.headers.get("etag")!;
    const conditional = async (headers: Record<string, string>) => {
      const response = await fetch(url, { headers });
      await response.arrayBuffer();
      return response.status;
    };
    expect(await conditional({ "if-none-match": etag })).toBe(304);
    expect(await conditional({ "if-none-match": `"x", W/${etag}` })).toBe(304);
    expect(await conditional({ "if-none-match": "*" })).toBe(304);
    expect(await conditional({ "if-none-match": '"x"' })).toBe(200);
    expect(await conditional({ range: "bytes=0-9", "if-range": etag })).toBe(206);
    expect(await conditional({ range: "bytes=0-9", "if-range": '"x"' })).toBe(200);
    expect(await conditional({ range: "bytes=600000-", "if-range": '"x"' })).toBe(200);
  });

  test("a path with dot segments names no file", async () => {
    const service = await use();
    const fileId = await upload(service.files, Buffer.from("x"), { name: "x" });
    const status = (path: string) =>
      new Promise((resolve, reject) => {
        const { port } = new URL(service.httpUrl);
        http
          .get({ host: "127.0.0.1", port, path }, (response) => resolve(response.resume().statusCode))
          .on("error", reject);
      });
    expect(await status(`/files/${fileId}`)).toBe(200);
    expect(await status(`/files/../12345/${fileId}`)).toBe(400);
    expect(await status(`/files/x/../${fileId}`)).toBe(400);
    expect(await status(`/files/%2e%2e/12345/${fileId}`)).toBe(400);
  });

  test("a PUT that breaks off is no fault of the service", async () => {
    const logged: string[] = [];
    const brokeOff = deferred();
    const write = (line: string): void => {
      logged.push(line);
      brokeOff.resolve();
    };
    const logger = pino({ level: "debug" }, { write });
    const service = await use({ logger });
    const request = http.request(`${service.httpUrl}/files/${newId()}`, {
      method: "PUT",
      headers: { "content-length": 2_000_000 },
    });
    request.on("error", () => undefined);
    request.write(Buffer.alloc(1_500_000), () => request.destroy());
    await brokeOff.promise;
    expect(logged.map((line) => JSON.parse(line) as unknown)).toMatchObject([
      { level: 20, msg: "an upload broke off" },
    ]);
  });

  test("a PUT that broke off is sent again; nobody else's, nothing too large, no strange ids or methods", async () => {
    const service = await use({ uploadLimits: { maxFileBytes: 3 * 1024 * 1024 } });
    const data = randomBytes(2_500_000);
    const path = `/files/${newId()}`;
    await new Promise<void>((resolve) => {
      const request = http.request(`${service.httpUrl}${path}`, {
        method: "PUT",
        headers: { "content-length": data.length },
      });
      request.on("error", () => resolve());
      request.write(data.subarray(0, 2_000_000), () => request.destroy());
    });
    const again = await put(`${service.httpUrl}${path}`, data);
    expect([again.status, ((await again.json()) as { sha256: string }).sha256]).toEqual([200, sha256(data)]);
    const other = await put(`${service.httpUrl}${path}`, Buffer.from("other"));
    expect(other.status).toBe(409);
    const large = await put(`${service.httpUrl}/files/${newId()}`, Buffer.alloc(3 * 1024 * 1024 + 1));
    expect([large.status, await large.json()]).toMatchObject([413, { code: "SIZE_LIMIT" }]);
    const chunked = new ReadableStream({
      pull: (controller) => controller.enqueue(Buffer.alloc(1024 * 1024)),
    });
    const endless = await put(`${service.httpUrl}/files/${newId()}`, chunked).catch(() => undefined);
    expect(endless?.status ?? 413).toBe(413);
    expect((await put(`${service.httpUrl}/files/a%2Fb`, "x")).status).toBe(400);
    expect((await fetch(`${service.httpUrl}/files/none`)).status).toBe(404);
    expect((await fetch(`${service.httpUrl}${path}`, { method: "POST", body: "x" })).status).toBe(405);
    const mine = ((await (await put(`${service.httpUrl}${path}`, data)).json()) as { fileId: string }).fileId;
    const stranger = await fetch(`${service.httpUrl}/files/${mine}`, { headers: { "x-user": "acme/bob" } });
    expect(stranger.status).toBe(404);
    const foreign = await put(`${service.httpUrl}/files/${newId()}`, "x", { origin: "https://evil.example" });
    expect(foreign.status).toBe(403);
  });
});

import { mkdtemp, mkdir, rm, writeFile } from "node:fs/promises";
import http from "node:http";
import type { AddressInfo } from "node:net";
import os from "node:os";
import path from "node:path";
import { brotliCompressSync, brotliDecompressSync, gunzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { loadPage } from "./page.js";

const SCRIPT = "console.log(1)";
const config = { log: `Postgres "quoted" <b>`, store: "Postgres", auth: "none" } as const;
let folder: string;
let server: http.Server;

beforeAll(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), "turnwire-page-"));
  await mkdir(path.join(folder, "assets"));
  await writeFile(
    path.join(folder, "index.html"),
    `<meta name="turnwire-config" content="%TURNWIRE_CONFIG%">`,
  );
  await writeFile(path.join(folder, "assets/main-1.js"), SCRIPT);
  await writeFile(path.join(folder, "assets/main-1.js.br"), brotliCompressSync(SCRIPT));
  const handler = await loadPage({ folder, config });
  server = http.createServer(handler);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
});
afterAll(async () => {
  await new Promise((resolve) => server.close(resolve));
  await rm(folder, { recursive: true });
});

interface Reply {
  readonly status: number;
  readonly headers: http.IncomingHttpHeaders;
  readonly body: Buffer;
}

function get(target: string, headers: Record<string, string> = {}, method = "GET"): Promise<Reply> {
  const { port } = server.address() as AddressInfo;
  return new Promise((resolve, reject) => {
    const request = http.request({ port, host: "127.0.0.1", path: target, method, headers }, (response) => {
      const parts: Buffer[] = [];
      response.on("data", (part: Buffer) => parts.push(part));
      response.on("end", () =>
        resolve({ status: response.statusCode!, headers: response.headers, body: Buffer.concat(parts) }),
      );
    });
    request.on("error", reject);
    request.end();
  });
}

describe("the page's files", () => {
  it("tells the page about the service, in an attribute that nothing breaks out of", async () => {
    const { headers, body } = await get("/");
    const [, content] = /content="([^"]*)"/.exec(body.toString())!;
    const text = content!.replace(/&#(\d+);/g, (_, code) => String.fromCharCode(Number(code)));
    expect(JSON.parse(text)).toEqual(config);
    expect(body.toString()).not.toContain("<b>");
    expect(headers["cache-control"]).toBe("no-cache");
    expect(headers["content-security-policy"]).toContain("default-src 'none'");
  });

  it("gives each browser the best form that it takes", async () => {
    const br = await get("/assets/main-1.js", { "accept-encoding": "gzip, br" });
    expect(br.headers["content-encoding"]).toBe("br");
    expect(brotliDecompressSync(br.body).toString()).toBe(SCRIPT);
    const refused = await get("/assets/main-1.js", { "accept-encoding": "br;q=0, gzip" });
    expect(refused.headers["content-encoding"]).toBeUndefined(); // there is no gzip form of it
    expect(refused.body.toString()).toBe(SCRIPT);
    const index = await get("/", { "accept-encoding": "gzip" });
    expect(gunzipSync(index.body).toString()).toContain("turnwire-config");
    expect(br.headers["vary"]).toContain("Accept-Encoding");
  });

  it("lets browsers keep what cannot change, and says when nothing has", async () => {
    const { headers } = await get("/assets/main-1.js");
    expect(headers["cache-control"]).toBe("public, max-age=31536000, immutable");
    const again = await get("/assets/main-1.js", { "if-none-match": `W/"other", ${headers["etag"]}` });
    expect(again).toMatchObject({ status: 304, body: Buffer.alloc(0) });
  });

  it.each(["/nothing", "/assets", "/../page.ts", "/%2e%2e/%2e%2e/etc/passwd", "/%", "/assets/main-1.js.br"])(
    "has nothing at %s",
    async (target) => expect((await get(target)).status).toBe(404),
  );

  it("answers HEAD without a body, and nothing else than GET and HEAD", async () => {
    const head = await get("/assets/main-1.js", {}, "HEAD");
    expect(head).toMatchObject({ status: 200, body: Buffer.alloc(0) });
    expect(head.headers["content-length"]).toBe(String(SCRIPT.length));
    expect(await get("/", {}, "POST")).toMatchObject({ status: 405 });
  });

  it("says how to build a page that is not there", async () => {
    const handler = await loadPage({ folder: path.join(folder, "none"), config });
    const bare = http.createServer(handler);
    await new Promise<void>((resolve) => bare.listen(0, "127.0.0.1", resolve));
    const { port } = bare.address() as AddressInfo;
    const response = await fetch(`http://127.0.0.1:${port}/`);
    expect(response.status).toBe(404);
    expect(await response.text()).toContain("npm run build");
    await new Promise((resolve) => bare.close(resolve));
  });
});

/** open_url against real HTTP: pages of every kind, hostile ones, cancellation. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { ToolOutcome, type ToolResult } from "../../gen/turnwire/tool/v1/tool_service_pb.js";
import { createOpenUrlTool } from "../../src/tool/builtin/open-url.js";
import { createExtractor, type Extractor } from "../../src/extract/extractor.js";
import { extractChildFile } from "../../src/extract/child-file.js";
import { createSafeFetch } from "../../src/egress/safe-fetch.js";
import type { ToolDefinition, ToolInput, ToolPayload } from "../../src/tool/tool.js";
import { silentLogger } from "../../src/lib/log.js";
import { makePdf, startWebPages, type WebPages } from "../support/web-pages.js";

let web: WebPages;
let extractor: Extractor;
let tool: ToolDefinition;

beforeAll(async () => {
  web = await startWebPages();
  extractor = createExtractor();
  tool = createOpenUrlTool({
    fetch: createSafeFetch({ allowHosts: [web.host], totalTimeoutMs: 5_000 }),
    extractor,
  });
});
afterEach(() => web.socketsDownTo(0));
afterAll(async () => {
  await tool.close?.();
  expect(extractor.processes).toEqual([]);
  await web.close();
});

function input(urls: string[], more: Partial<ToolInput> = {}): ToolInput {
  return {
    args: { urls },
    caller: undefined,
    callId: "c1",
    files: [],
    credentials: {},
    firstCitationNumber: 1,
    userQuery: "",
    maxModelChars: 0,
    ...more,
  };
}

async function open(
  urls: string[],
  more: Partial<ToolInput> = {},
  signal = new AbortController().signal,
  which = tool,
): Promise<{ packets: ToolPayload[]; result: ToolResult }> {
  const packets: ToolPayload[] = [];
  const run = which.run(input(urls, more), { signal, logger: silentLogger });
  for (;;) {
    const step = await run.next();
    if (step.done) return { packets, result: step.value };
    packets.push(step.value);
  }
}

async function textOf(path: string): Promise<string> {
  const { result } = await open([web.url(path)]);
  expect(result.modelText).not.toBe("");
  return result.modelText;
}

test("open_url - packets in order, then numbered documents", async () => {
  const urls = [web.url("/article"), web.url("/pdf"), web.url("/status/503"), web.url("/data.json")];
  const { packets, result } = await open(urls, { firstCitationNumber: 101 });
  expect(packets.map((packet) => packet.case)).toEqual(["openUrlStart", "openUrlUrls", "openUrlDocuments"]);
  expect(result.outcome).toBe(ToolOutcome.OK);
  expect(result.documents.map(({ citationNumber, title }) => [citationNumber, title])).toEqual([
    [101, "The Long Walk"],
    [102, "A Report"],
    [103, "data.json"],
  ]);
  expect(result.modelText).toContain(`[101] The Long Walk\n${urls[0]}\n\n`);
  expect(result.modelText).toContain(`- ${urls[2]}: the server answered with HTTP status 503`);
  expect(result.modelText).not.toContain("secret-of-the-error-page");
});

test("open_url - numbers nothing when no first number is given", async () => {
  const url = web.url("/markdown");
  const { result } = await open([url], { firstCitationNumber: 0 });
  expect(result.modelText).toBe(`markdown\n${url}\n\n# Title\n\n- one\n- two`);
  expect(result.documents[0]?.citationNumber).toBe(0);
});

test("open_url - an article is told from its frame, with its lists and code", async () => {
  const text = await textOf("/article");
  expect(text).toContain("Paragraph 6 of the walk");
  expect(text).toContain("- boots\n- water");
  expect(text).toContain("line one\n  line two");
  expect(text).not.toContain("Imprint");
  expect(text).not.toContain("document.title");
});

test.each(["/gzip", "/brotli", "/deflate"])("open_url - %s is decompressed", async (path) => {
  expect(await textOf(path)).toContain("Paragraph 3 of the walk");
});

test.each([
  ["/latin1", "Gr\u00fc\u00dfe aus K\u00f6ln"],
  ["/latin1-meta", "Gr\u00fc\u00dfe"],
  ["/latin1-silent", "Gr\u00fc\u00dfe"],
  ["/utf16", "Gr\u00fc\u00dfe \u4f60\u597d"],
  ["/shift-jis", "\u65e5\u672c"],
  ["/markdown", "# Title\n\n- one\n- two"],
  ["/data.json", '{"answer":42}'],
  ["/broken", "cell one | cell two"],
  ["/deep", "at the bottom"],
  ["/pdf", "[page 1 of 2]\nFirst page of the report\n\n[page 2 of 2]\nSecond page: the end"],
  ["/pdf-unnamed", "Only page"],
  ["/refresh", "A page that wants to send you elsewhere."],
  ["/hop/5", "end of the hops"],
])("open_url - %s reads as %j", async (path, text) => {
  expect(await textOf(path)).toContain(text);
});

test.each([
  ["/gzip-bomb", "unpacks to far more than its size"],
  ["/gzip-damaged", "the compressed content is damaged"],
  ["/gzip-twice", "content encoding"],
  ["/pdf-large", "larger than 20 MiB"],
  ["/pdf-damaged", "not a readable PDF"],
  ["/image", "content of type image/png cannot be read"],
  ["/hop/6", "redirects more than 5 times"],
  ["/hop/20", "redirects more than 5 times"],
  ["/loop", "redirects more than 5 times"],
  ["/redirect-userinfo", "user name or password"],
  ["/redirect-file", "only http and https"],
  ["/status/404", "HTTP status 404"],
])("open_url - %s fails: %s", async (path, reason) => {
  const { packets, result } = await open([web.url(path)]);
  expect(result.outcome).toBe(ToolOutcome.ERROR);
  expect(result.modelText).toContain(reason);
  expect(result.error?.message).toBe(result.modelText);
  expect(packets.map((packet) => packet.case)).toEqual(["openUrlStart", "openUrlUrls"]);
});

test.each(["/huge", "/endless"])("open_url - %s is cut at its limit and says so", async (path) => {
  const { result } = await open([web.url(path)]);
  expect(result.truncated).toBe(true);
  expect(result.documents[0]?.truncated).toBe(true);
  expect(result.modelText.length).toBeLessThanOrEqual(40_000);
  expect(result.modelText).toContain("[cut here: the page is longer]");
});

test.each(["/drip", "/silent"])("open_url - %s ends at the total time", async (path) => {
  const fetch = createSafeFetch({ allowHosts: [web.host], totalTimeoutMs: 300 });
  const { result } = await open([web.url(path)], {}, undefined, createOpenUrlTool({ fetch, extractor }));
  expect(result.modelText).toContain("it took longer than 0.3 s");
});

test("open_url - the text's limit is shared: small pages whole, large ones cut alike", async () => {
  const urls = [web.url("/data.json"), web.url("/huge"), web.url("/huge?2")];
  const { result } = await open([urls[0]!, urls[1]!], { maxModelChars: 4_000 });
  expect(result.modelText.length).toBeLessThanOrEqual(4_000);
  expect(result.modelText).toContain('{"answer":42}');
  expect(result.modelText.length).toBeGreaterThan(3_500);
});

test("open_url - cancelling in the middle of a body closes the socket", async () => {
  const abort = new AbortController();
  const opening = open([web.url("/drip")], {}, abort.signal);
  await web.requested("/drip");
  abort.abort(new Error("stop"));
  await expect(opening).rejects.toThrow("stop");
  await web.socketsDownTo(0);
});

test("open_url - at most four pages at once, results in the order asked for", async () => {
  const local = await startWebPages();
  const fetch = createSafeFetch({ allowHosts: [local.host] });
  const urls = Array.from({ length: 10 }, (_, i) => local.url(`/held/${i}`));
  const opening = open(urls, {}, undefined, createOpenUrlTool({ fetch, extractor }));
  for (let i = 0; i < 10; i += 4) {
    for (let j = i; j < Math.min(i + 4, 10); j++) await local.requested(`/held/${j}`);
    local.release();
  }
  const { result } = await opening;
  expect(result.documents.map((document) => document.url)).toEqual(urls);
  expect(local.maxInFlight()).toBe(4);
  await local.close();
});

test("open_url - sends an honest user agent and nothing that identifies", async () => {
  await open([web.url("/markdown")]);
  const { headers } = web.requests.at(-1)!;
  expect(headers["user-agent"]).toMatch(/^Turnwire/);
  expect(headers.host).toBe(web.host);
  for (const name of ["cookie", "authorization", "referer"]) expect(headers[name]).toBeUndefined();
});

test("open_url - a PDF that unpacks without end costs a process of its own, not this one", async () => {
  const bomb = makePdf(["after the filler"], "Bomb", "q ".repeat(60_000_000));
  expect(bomb.length).toBeLessThan(1024 * 1024);
  const small = createExtractor({ timeoutMs: 6_000, maxProcesses: 1 });
  const request = { kind: "pdf", bytes: bomb, contentType: "application/pdf", maxChars: 1_000 } as const;
  await expect(small.extract(request, new AbortController().signal)).rejects.toThrow(
    /took (longer|too much)/,
  );
  const good = { ...request, bytes: makePdf(["fine"], "Good") };
  expect((await small.extract(good, new AbortController().signal)).text).toContain("fine");
  await small.close();
  expect(small.processes).toEqual([]);
});

test("open_url - extraction is cancelled at once, waiting or working, and idle processes end", async () => {
  const pool = createExtractor({ maxProcesses: 1, idleMs: 20 });
  const abort = new AbortController();
  const html = Buffer.from("<p>x</p>".repeat(600_000));
  const request = { kind: "html", bytes: html, contentType: "text/html", maxChars: 100 } as const;
  const working = pool.extract(request, abort.signal);
  const waiting = pool.extract(request, abort.signal);
  abort.abort();
  await expect(working).rejects.toThrow("cancelled");
  await expect(waiting).rejects.toThrow("cancelled");
  const answer = await pool.extract(
    { ...request, bytes: Buffer.from("<p>hello</p>") },
    new AbortController().signal,
  );
  expect(answer.text).toBe("hello");
  await expect.poll(() => pool.processes).toEqual([]);
});

test("open_url - a page whose article cannot be found in time gives its whole text", async () => {
  const pool = createExtractor({ articleTimeoutMs: 0 });
  const bytes = Buffer.from(
    `<nav>Menu</nav>${"<p>Many words that could be an article, if it were looked for.</p>".repeat(400)}<footer>Imprint</footer>`,
  );
  const request = { kind: "html", bytes, contentType: "text/html", maxChars: 100_000 } as const;
  const { text } = await pool.extract(request, new AbortController().signal);
  expect(text).toContain("Imprint");
  const patient = await extractor.extract(request, new AbortController().signal);
  expect(patient.text).not.toContain("Imprint");
  await pool.close();
});

test("open_url - a page that eats all the heap it gets costs a process of its own, not this one", async () => {
  const pool = createExtractor({ maxHeapMiB: 20 });
  const bytes = Buffer.from("<p>words <b>and</b> more words</p>".repeat(14_000));
  const request = { kind: "html", bytes, contentType: "text/html", maxChars: 1_000 } as const;
  const { text } = await pool.extract(request, new AbortController().signal);
  expect(text).toContain("words and more words"); // read before the article was looked for
  await pool.close();
});

test("open_url - five MiB of small elements are read in time", async () => {
  const bytes = Buffer.from("<p>words <b>and</b> more words</p>".repeat(150_000));
  const request = { kind: "html", bytes, contentType: "text/html", maxChars: 40_000 } as const;
  const { text, truncated } = await extractor.extract(request, new AbortController().signal);
  expect([text.length, truncated]).toEqual([40_000, true]);
});

test.runIf(existsSync("/proc/self/stat"))(
  "open_url - an extraction whose parent was killed ends by itself, busy as it may be",
  async () => {
    const file = await extractChildFile();
    const bomb = makePdf(["x"], "Bomb", "q ".repeat(60_000_000)).toString("base64");
    const script = `
    import { fork } from "node:child_process";
    const options = { env: {}, serialization: "advanced", execArgv: [] };
    const child = fork(${JSON.stringify(file)}, ["2000"], options);
    const bytes = Buffer.from(${JSON.stringify(bomb)}, "base64");
    child.send({ kind: "pdf", bytes, contentType: "", maxChars: 1000 }, () => console.log(child.pid));`;
    const parent = spawn(process.execPath, ["--input-type=module"], { stdio: ["pipe", "pipe", "inherit"] });
    parent.stdin.end(script);
    const [line] = (await once(parent.stdout, "data")) as [Buffer];
    const pid = Number(line.toString());
    await expect.poll(() => cpuSeconds(pid), { timeout: 20_000 }).toBeGreaterThan(2); // it is in the middle of the work
    parent.kill("SIGKILL");
    await expect.poll(() => isAlive(pid)).toBe(false);
  },
);

/** Of /proc: processor time in ticks of 10 ms. */
function cpuSeconds(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, "latin1").split(") ")[1]!.split(" ");
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false; // no such process
  }
}

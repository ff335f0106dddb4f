/** The same long answer through everything: a model provider, the server as users run it, the page as it is served. */
import { mkdtempSync, rmSync } from "node:fs";
import http from "node:http";
import os from "node:os";
import path from "node:path";
import { startProcess } from "../../load/processes.mjs";
import { longMarkdown, measureSecondHalf } from "./long-answer.mjs";

/** Starts provider and server; returns { origin, answer(text, count, perSecond), close }. */
export async function startWholeService() {
  const provider = await startProvider();
  const dataDir = mkdtempSync(path.join(os.tmpdir(), "turnwire-page-"));
  const server = await startProcess("dist/src/main/all-in-one.js", [], {
    TURNWIRE_LOG: "info",
    TURNWIRE_HTTP_PORT: "0",
    TURNWIRE_GRPC_PORT: "0",
    TURNWIRE_DATA_DIR: dataDir,
    OPENAI_BASE_URL: provider.url,
    OPENAI_API_KEY: "none",
  });
  return {
    origin: `http://127.0.0.1:${server.facts.httpPort}`,
    log: String(server.facts.log),
    answer: provider.answer,
    close: async () => {
      await server.end();
      await provider.close();
      rmSync(dataDir, { recursive: true, force: true });
    },
  };
}

/** Asks on the page and measures the second half of the answer, as streamLongAnswer does. */
export async function streamThroughPage(browser, service, { chars, packets, perSecond }) {
  const text = longMarkdown(chars);
  const page = await browser.newPage();
  try {
    await page.goto(service.origin);
    const answer = service.answer(text, packets, perSecond);
    await page.locator("#composer-text").fill("Write at length");
    await page.locator("#composer-text").press("Enter");
    await answer.half;
    const measured = await measureSecondHalf(browser, page, async () => {
      answer.goOn();
      await page.locator('.lane[aria-busy="false"]').waitFor({ timeout: 120_000 });
    });
    const shownText = await page.locator(".answer .md").last().textContent();
    return { ...measured, shownText };
  } finally {
    await page.close();
  }
}

/** A provider that streams the text it was given, in `count` chunks at a rate, and waits in the middle until it may go on. */
async function startProvider() {
  let script;
  const server = http.createServer(async (request, response) => {
    if (request.method === "GET") {
      response.setHeader("content-type", "application/json");
      return response.end(JSON.stringify({ object: "list", data: [{ id: "bench", object: "model" }] }));
    }
    request.resume();
    request.socket.setNoDelay(true);
    response.writeHead(200, { "content-type": "text/event-stream" });
    const { pieces, perSecond, reachedHalf, resumed } = script;
    const middle = pieces.length >> 1;
    await sendPaced(response, pieces.slice(0, middle), perSecond);
    reachedHalf();
    await resumed;
    await sendPaced(response, pieces.slice(middle), perSecond);
    response.end(`data: ${chunk({}, "stop")}\n\ndata: [DONE]\n\n`);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}/v1`,
    answer(text, count, perSecond) {
      const chars = Array.from(text);
      const cut = (i) => Math.floor((i * chars.length) / count);
      const pieces = Array.from({ length: count }, (_, i) => chars.slice(cut(i), cut(i + 1)).join(""));
      let reachedHalf, goOn;
      const half = new Promise((resolve) => (reachedHalf = resolve));
      const resumed = new Promise((resolve) => (goOn = resolve));
      script = { pieces, perSecond, reachedHalf, resumed };
      return { half, goOn };
    },
    close: () => {
      server.closeAllConnections();
      return new Promise((resolve) => server.close(resolve));
    },
  };
}

async function sendPaced(response, pieces, perSecond) {
  const beganMs = performance.now();
  let sent = 0;
  while (sent < pieces.length && !response.destroyed) {
    const due = Math.min(pieces.length, Math.floor(((performance.now() - beganMs) * perSecond) / 1_000));
    for (; sent < due; sent++) response.write(`data: ${chunk({ content: pieces[sent] }, null)}\n\n`);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}

const chunk = (delta, reason) =>
  JSON.stringify({
    id: "c",
    object: "chat.completion.chunk",
    created: 1,
    model: "bench",
    choices: [{ index: 0, delta, finish_reason: reason }],
  });

/**
 * The extraction process: one document per message, one last answer each. It holds nothing between documents and is ended
 * at any time. It is started by `extractor.ts` and has no other user.
 *
 * The work may keep the main thread busy for ever or eat memory, so a thread of its own watches over the process: it ends
 * it when the parent has gone or when it has grown beyond the MiB of the first argument.
 */
import { Worker } from "node:worker_threads";
import { decodeText } from "./charset.js";
import type { ExtractAnswer, ExtractedText, ExtractRequest } from "./extracted-text.js";
import { UnreadablePage } from "./unreadable-page.js";

const WATCHDOG = `
  const { workerData } = require("node:worker_threads");
  const parent = process.ppid;
  setInterval(() => {
    const grown = process.memoryUsage.rss() > workerData.maxBytes;
    if (grown || process.ppid !== parent) process.kill(process.pid, "SIGKILL");
  }, 100);
`;

const maxMiB = Number(process.argv[2]);
new Worker(WATCHDOG, { eval: true, workerData: { maxBytes: maxMiB * 1024 * 1024 } }).unref();

process.on("disconnect", () => process.exit(0));
process.on(
  "message",
  (request: ExtractRequest) => void answer(request).then((message) => process.send?.(message)),
);

async function answer(request: ExtractRequest): Promise<ExtractAnswer> {
  try {
    return { kind: "text", extracted: await extract(request) };
  } catch (error) {
    if ((error as Error).name === "PasswordException")
      return { kind: "unreadable", why: "encrypted", reason: "it needs a password" };
    if (error instanceof UnreadablePage)
      return { kind: "unreadable", why: "unreadable", reason: error.reason };
    return {
      kind: "unreadable",
      why: "unreadable",
      reason: request.kind === "pdf" ? "it is not a readable PDF" : "it is not a readable page",
    };
  }
}

async function extract(request: ExtractRequest): Promise<ExtractedText> {
  const { bytes, maxChars } = request;
  if (request.kind === "pdf") {
    const { pdfToText } = await import("./pdf-text.js");
    return pdfToText(Uint8Array.from(bytes), maxChars, request.maxPages); // it refuses Buffers
  }
  const html = decodeText(bytes, request.contentType, true);
  const { htmlToText, pageToText } = await import("./html-text.js");
  if (request.wholePage) return pageToText(html, maxChars);
  return htmlToText(html, maxChars, (extracted) => {
    process.send?.({ kind: "body", extracted } satisfies ExtractAnswer);
  });
}

/**
 * The extraction thread: one document per message, one answer each. It holds nothing between documents, so the pool may
 * end it at any time. It is started by `extractor.ts` and has no other user.
 */
import { parentPort } from "node:worker_threads";
import { decodeText } from "./charset.js";
import type { ExtractAnswer, ExtractedText, ExtractRequest } from "./extracted-text.js";

parentPort?.on("message", (request: ExtractRequest) => {
  void answer(request).then((message) => parentPort?.postMessage(message));
});

async function answer(request: ExtractRequest): Promise<ExtractAnswer> {
  try {
    return { kind: "text", extracted: await extract(request) };
  } catch {
    return {
      kind: "unreadable",
      reason: request.kind === "pdf" ? "it is not a readable PDF" : "it is not a readable page",
    };
  }
}

async function extract({ kind, bytes, contentType, maxChars }: ExtractRequest): Promise<ExtractedText> {
  if (kind === "pdf") return (await import("./pdf-text.js")).pdfToText(bytes, maxChars);
  const { htmlToText } = await import("./html-text.js");
  return htmlToText(decodeText(bytes, contentType, true), maxChars, (extracted) => {
    parentPort?.postMessage({ kind: "body", extracted } satisfies ExtractAnswer);
  });
}

/** The text of a PDF, page by page. Runs in the extraction process. */
import { getDocumentProxy } from "unpdf";
import type { ExtractedText } from "./extracted-text.js";

const MAX_PAGES = 1_000;

/** Reads pages until there are `maxChars` characters; each page begins with a line that names its number. */
export async function pdfToText(
  bytes: Uint8Array,
  maxChars: number,
  maxPages = MAX_PAGES,
): Promise<ExtractedText> {
  const pdf = await getDocumentProxy(bytes, {
    isEvalSupported: false,
    maxImageSize: 1,
    stopAtErrors: false,
    verbosity: 0,
  });
  const title = await readTitle(pdf);
  const pages: string[] = [];
  let length = 0;
  let page = 1;
  for (; page <= Math.min(pdf.numPages, maxPages) && length <= maxChars; page++) {
    const text = `[page ${page} of ${pdf.numPages}]\n${await readPage(pdf, page)}`;
    pages.push(text);
    length += text.length + 2;
  }
  const text = pages.join("\n\n");
  return {
    title,
    text: text.slice(0, maxChars),
    truncated: text.length > maxChars || page <= pdf.numPages,
    metadata: { pages: String(pdf.numPages) },
  };
}

type Pdf = Awaited<ReturnType<typeof getDocumentProxy>>;

async function readPage(pdf: Pdf, number: number): Promise<string> {
  const page = await pdf.getPage(number);
  const { items } = await page.getTextContent();
  let text = "";
  for (const item of items) {
    if ("str" in item) text += item.str + (item.hasEOL ? "\n" : "");
  }
  page.cleanup();
  return text.trim();
}

async function readTitle(pdf: Pdf): Promise<string> {
  const { info } = await pdf.getMetadata().catch(() => ({ info: {} })); // damaged metadata: a PDF without a title
  const title = (info as Record<string, unknown>)["Title"];
  return typeof title === "string" ? title.trim().slice(0, 1_000) : "";
}

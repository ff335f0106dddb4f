/** One page: fetched, told apart by its type, turned into text. */
import { FetchFailure } from "../egress/fetch-failure.js";
import type { FetchedPage, SafeFetch } from "../egress/safe-fetch.js";
import type { BodyLimits } from "../egress/body.js";
import { decodeText } from "./charset.js";
import type { ExtractedText } from "./extracted-text.js";
import type { Extractor } from "./extractor.js";
import { isHtml, isText, isUnnamed, looksLikeHtml, mediaTypeOnly } from "./media-type.js";
import { cutChars } from "../lib/text.js";

/** A page as text. */
export interface OpenedPage extends ExtractedText {
  /** Where it came from, after redirects. */
  readonly url: string;
  /** Media type without parameters. */
  readonly contentType: string;
}

export interface OpenPageOptions {
  readonly fetch: SafeFetch;
  readonly extractor: Extractor;
  /** Most characters of text wanted. */
  readonly maxChars: number;
}

const MAX_TEXT_BYTES = 5 * 1024 * 1024;
const MAX_PDF_BYTES = 20 * 1024 * 1024;

/** Opens a page. Rejects with a FetchFailure whose text is public. */
export async function openPage(
  url: string,
  options: OpenPageOptions,
  signal: AbortSignal,
): Promise<OpenedPage> {
  const fetched = await options.fetch(url, limitsFor, signal);
  const kind = kindOf(fetched);
  const extracted = await extract(kind, fetched, options, signal);
  if (extracted.text.trim() === "") throw new FetchFailure("unreadable", "it has no readable text");
  return {
    ...extracted,
    truncated: extracted.truncated || fetched.truncated,
    url: fetched.url.href,
    contentType:
      mediaTypeOnly(fetched.contentType) ||
      (kind === "pdf" ? "application/pdf" : kind === "html" ? "text/html" : "text/plain"),
  };
}

type PageKind = "html" | "pdf" | "text";

async function extract(
  kind: PageKind,
  page: FetchedPage,
  options: OpenPageOptions,
  signal: AbortSignal,
): Promise<ExtractedText> {
  const { body: bytes, contentType } = page;
  if (kind !== "text")
    return options.extractor.extract({ kind, bytes, contentType, maxChars: options.maxChars }, signal);
  const text = decodeText(bytes, contentType, false).replace(/\r\n?/g, "\n").trim();
  const title = decodeURIComponentOr(page.url.pathname.split("/").at(-1) ?? "");
  return {
    title,
    text: cutChars(text, options.maxChars),
    truncated: text.length > options.maxChars,
    metadata: {},
  };
}

/** A PDF cut short cannot be read; text cut short can. What the header calls something else is looked at like text. */
function limitsFor(contentType: string, url: URL): BodyLimits {
  const type = mediaTypeOnly(contentType);
  const unnamed = isUnnamed(type);
  if (type === "application/pdf" || (unnamed && url.pathname.toLowerCase().endsWith(".pdf"))) {
    return { maxBytes: MAX_PDF_BYTES, beyond: "fail" };
  }
  if (!unnamed && !isText(type))
    throw new FetchFailure("unreadable", `content of type ${cutChars(type, 100)} cannot be read as text`);
  return { maxBytes: MAX_TEXT_BYTES, beyond: "cut" };
}

function kindOf({ body, contentType }: FetchedPage): PageKind {
  const type = mediaTypeOnly(contentType);
  const start = body.subarray(0, 1024).toString("latin1");
  if (start.trimStart().startsWith("%PDF-")) return "pdf";
  if (type === "application/pdf") throw new FetchFailure("unreadable", "it is not a readable PDF");
  if (isHtml(type)) return "html";
  if (isText(type)) return "text";
  if (looksLikeHtml(start)) return "html";
  if (start.includes("\0")) throw new FetchFailure("unreadable", "it is not text");
  return "text";
}

function decodeURIComponentOr(text: string): string {
  try {
    return cutChars(decodeURIComponent(text), 300);
  } catch {
    return cutChars(text, 300); // not percent-encoded: as it stands
  }
}

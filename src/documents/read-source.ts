/** A document's source as text: its kind found out, its bytes decoded or extracted, given in pieces. */
import { DocumentFailure } from "../../gen/turnwire/chat/v1/types_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { FetchFailure } from "../egress/fetch-failure.js";
import type { SafeFetch } from "../egress/safe-fetch.js";
import type { Extractor } from "../extract/extractor.js";
import { mediaTypeOnly } from "../extract/media-type.js";
import { TurnError } from "../lib/errors.js";
import { wellFormed } from "../lib/text.js";
import type { Store } from "../store/store.js";
import type { DocumentStore, Lease } from "./document-store.js";
import { kindOf, textDecoderFor, type SourceKind } from "./source-kind.js";
import { UnreadableDocument, unreadableFrom } from "./unreadable.js";

export interface SourceDeps {
  readonly store: Pick<DocumentStore, "pendingText">;
  readonly files: Pick<Store, "getFile" | "readFile">;
  readonly fetch: SafeFetch;
  readonly extractor: Extractor;
}

export interface SourceLimits {
  /** Bytes of a file or page. */
  readonly maxBytes: number;
  /** Characters of text extracted from HTML or PDF. */
  readonly maxExtractedChars: number;
  readonly maxPages: number;
}

export interface SourceText {
  /** What the source itself says; may be empty. */
  readonly title: string;
  /** Of the file or page; empty for text that was sent. */
  readonly name: string;
  readonly mediaType: string;
  readonly sizeBytes: number;
  /** The text has lines that name pages. */
  readonly pages: boolean;
  /** Well-formed, without U+0000; with how many bytes of the source are read by then. */
  readonly pieces: AsyncIterable<{ readonly text: string; readonly processedBytes: number }>;
}

const HEAD_BYTES = 4_096;
const PIECE_CHARS = 128 * 1024;

/** Opens what a document is read from. Throws UnreadableDocument; a FetchFailure only when it was cancelled. */
export async function openSource(
  lease: Lease,
  deps: SourceDeps,
  limits: SourceLimits,
  signal: AbortSignal,
): Promise<SourceText> {
  const { document } = lease;
  switch (document.source) {
    case "text": {
      const bytes = Buffer.from(await deps.store.pendingText(lease));
      return textFrom({ name: "", contentType: document.mediaType, bytes }, deps, limits, signal);
    }
    case "upload":
      return openFile(lease, deps, limits, signal);
    case "web": {
      const page = await deps
        .fetch(document.url, () => ({ maxBytes: limits.maxBytes, beyond: "fail" }), signal)
        .catch((error: unknown) => rethrow(error, true));
      const name = page.url.pathname.split("/").at(-1) ?? "";
      return textFrom({ name, contentType: page.contentType, bytes: page.body }, deps, limits, signal);
    }
  }
}

async function openFile(
  { document }: Lease,
  deps: SourceDeps,
  limits: SourceLimits,
  signal: AbortSignal,
): Promise<SourceText> {
  const principal = { ...document.owner, admin: false };
  const file = await deps.files.getFile(principal, document.fileId);
  if (!file) throw sourceGone();
  const sizeBytes = Number(file.sizeBytes);
  if (sizeBytes > limits.maxBytes) throw tooLarge(limits);
  const parts = goneIfDeleted(deps.files.readFile(principal, document.fileId, 0n))[Symbol.asyncIterator]();
  const first = (await parts.next()).value as Uint8Array | undefined; // undefined: an empty file
  const head = first ?? new Uint8Array();
  const kind = kindOf(file.mediaType, file.name, head.subarray(0, HEAD_BYTES));
  const all = (async function* () {
    yield head;
    for (let next = await parts.next(); next.done !== true; next = await parts.next()) yield next.value;
  })();
  const facts = { title: "", name: file.name, sizeBytes };
  // Text is never in memory as a whole: it goes through in the parts that the store has.
  if (kind === "text") return { ...facts, ...decodedAs(all, file.mediaType, head, sizeBytes) };
  const chunks: Uint8Array[] = [];
  for await (const chunk of all) chunks.push(chunk);
  const bytes = Buffer.concat(chunks, sizeBytes);
  return extracted(kind, { name: file.name, contentType: file.mediaType, bytes }, deps, limits, signal);
}

/** The same parts; a file that is deleted in the middle is a source that is gone. */
async function* goneIfDeleted(parts: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  try {
    yield* parts;
  } catch (error) {
    throw error instanceof TurnError && error.code === ErrorCode.NOT_FOUND ? sourceGone() : error;
  }
}

interface WholeSource {
  readonly name: string;
  readonly contentType: string;
  readonly bytes: Buffer;
}

function textFrom(
  source: WholeSource,
  deps: SourceDeps,
  limits: SourceLimits,
  signal: AbortSignal,
): Promise<SourceText> | SourceText {
  const kind = kindOf(source.contentType, source.name, source.bytes.subarray(0, HEAD_BYTES));
  if (kind !== "text") return extracted(kind, source, deps, limits, signal);
  const { bytes, contentType, name } = source;
  const parts = (async function* () {
    for (let at = 0; at < bytes.length; at += PIECE_CHARS) yield bytes.subarray(at, at + PIECE_CHARS);
  })();
  return {
    title: "",
    name,
    sizeBytes: bytes.length,
    ...decodedAs(parts, contentType, bytes, bytes.length),
  };
}

/** Text in an encoding, which its type says unless it is UTF-8. */
function decodedAs(
  parts: AsyncIterable<Uint8Array>,
  contentType: string,
  head: Uint8Array,
  sizeBytes: number,
): Pick<SourceText, "mediaType" | "pages" | "pieces"> {
  const decoder = textDecoderFor(contentType, head, head.length === sizeBytes);
  const type = mediaTypeOnly(contentType) || "text/plain";
  const mediaType = decoder.encoding === "utf-8" ? type : `${type}; charset=${decoder.encoding}`;
  return { mediaType, pages: false, pieces: decoded(parts, decoder) };
}

async function* decoded(
  parts: AsyncIterable<Uint8Array>,
  decoder: TextDecoder,
): AsyncGenerator<{ text: string; processedBytes: number }> {
  let processedBytes = 0;
  let carriage = ""; // a "\r" at the end of a piece may be half of "\r\n"
  for await (const part of parts) {
    const text = carriage + decoder.decode(part, { stream: true });
    carriage = text.endsWith("\r") ? "\r" : "";
    processedBytes += part.length;
    yield { text: plain(text.slice(0, text.length - carriage.length)), processedBytes };
  }
  yield { text: plain(carriage + decoder.decode()), processedBytes };
}

async function extracted(
  kind: Exclude<SourceKind, "text">,
  { name, contentType, bytes }: WholeSource,
  deps: SourceDeps,
  limits: SourceLimits,
  signal: AbortSignal,
): Promise<SourceText> {
  const result = await deps.extractor
    .extract(
      {
        kind,
        bytes,
        contentType,
        maxChars: limits.maxExtractedChars,
        maxPages: limits.maxPages,
        wholePage: true,
      },
      signal,
    )
    .catch((error: unknown) => rethrow(error, false));
  if (result.truncated)
    throw new UnreadableDocument(
      DocumentFailure.TOO_LARGE,
      `It has more than ${limits.maxExtractedChars} characters or ${limits.maxPages} pages of text. Split it and add the parts.`,
    );
  return {
    title: plain(wellFormed(result.title)),
    name,
    mediaType: kind === "pdf" ? "application/pdf" : mediaTypeOnly(contentType) || "text/html",
    sizeBytes: bytes.length,
    pages: kind === "pdf",
    pieces: slices(result.text, bytes.length),
  };
}

async function* slices(
  text: string,
  sizeBytes: number,
): AsyncGenerator<{ text: string; processedBytes: number }> {
  for (let at = 0; at < text.length;) {
    let end = Math.min(at + PIECE_CHARS, text.length);
    while (end < text.length && /[\udc00-\udfff\n]/.test(text.charAt(end))) end++; // no pair is cut, nor "\r\n"
    const piece = plain(wellFormed(text.slice(at, end))); // all of it at once would hold up everybody else
    yield { text: piece, processedBytes: Math.floor((sizeBytes * end) / text.length) };
    at = end;
  }
}

/** One kind of line end, and nothing that Postgres cannot hold. */
function plain(text: string): string {
  return text.replace(/\r\n?/g, "\n").replaceAll("\0", "\ufffd");
}

function rethrow(error: unknown, fetching: boolean): never {
  if (error instanceof FetchFailure && error.kind !== "cancelled") throw unreadableFrom(error, fetching);
  throw error;
}

function sourceGone(): UnreadableDocument {
  return new UnreadableDocument(
    DocumentFailure.SOURCE_GONE,
    "Its file was deleted before it was read. Upload it again.",
  );
}

function tooLarge(limits: SourceLimits): UnreadableDocument {
  return new UnreadableDocument(
    DocumentFailure.TOO_LARGE,
    `It is larger than ${Math.floor(limits.maxBytes / (1024 * 1024))} MiB. Split it and add the parts.`,
  );
}

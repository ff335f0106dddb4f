/** The sources of a Gemini answer: grounding, citation and URL metadata, each tied to the passage that it supports. */
import { objectOf, objectsOf, stringOf, uint32Of, type Json } from "../../json.js";
import type { SourceCollector } from "../shared/source-collector.js";

/** A text block of the answer, as it was handed out. */
export interface TextBlock {
  readonly index: number;
  text: string;
}

interface Span {
  readonly blockIndex: number | undefined;
  readonly startChar: number;
  readonly endChar: number;
}

const WHOLE_ANSWER: Span = { blockIndex: undefined, startChar: 0, endChar: 0 };

/** Names every source of the metadata, with each passage it supports; those that support none stand for the whole answer. */
export function addGrounding(metadata: Json, blocks: readonly TextBlock[], sources: SourceCollector): void {
  const spans = new Map<number, Span[]>();
  let after = 0;
  for (const item of objectsOf(metadata["groundingSupports"])) {
    const passage = stringOf(objectOf(item["segment"])["text"]);
    const found = findPassage(passage, blocks, after);
    if (!found) continue;
    after = found.unit;
    for (const chunk of listOfNumbers(item["groundingChunkIndices"]))
      spans.set(chunk, [...(spans.get(chunk) ?? []), found.span]);
  }
  for (const [at, chunk] of objectsOf(metadata["groundingChunks"]).entries())
    for (const span of spans.get(at) ?? [WHOLE_ANSWER])
      sources.push({ ...sourceOf(chunk, at), number: 0, ...span });
}

/** Sources that the model recited from. */
export function addCitations(metadata: Json, sources: SourceCollector): void {
  for (const citation of objectsOf(metadata["citations"] ?? metadata["citationSources"])) {
    const url = stringOf(citation["uri"]);
    const title = stringOf(citation["title"]);
    sources.push({ url, title, snippet: "", number: 0, ...WHOLE_ANSWER });
  }
}

/** What a chunk of grounding is: a web page, a place, or a passage of the caller's own documents. */
function sourceOf(chunk: Json, at: number) {
  const kind = ["web", "retrievedContext", "maps", "image"].find((name) => name in chunk) ?? "web";
  const source = objectOf(chunk[kind]);
  const address = stringOf(source["uri"]) || stringOf(source["sourceUri"]);
  const url = /^https?:/i.test(address) ? address : "";
  const snippet = stringOf(source["text"]);
  const title = stringOf(source["title"]);
  const documentId = url || address || title || `${kind}-${at + 1}`;
  return { url, title, snippet, documentId, origin: kind === "retrievedContext" ? "document" : "web" };
}

/** Where the passage stands, looked for after the one before it first: the wire's own offsets count bytes of unknown parts. */
function findPassage(
  passage: string,
  blocks: readonly TextBlock[],
  after: number,
): { readonly span: Span; readonly unit: number } | undefined {
  if (passage === "") return undefined;
  for (const from of [after, 0]) {
    for (const { index, text } of blocks) {
      const unit = text.indexOf(passage, from);
      if (unit === -1) continue;
      const startChar = codePoints(text.slice(0, unit));
      const span = { blockIndex: index, startChar, endChar: startChar + codePoints(passage) };
      return { span, unit };
    }
  }
  return undefined;
}

function codePoints(text: string): number {
  let count = text.length;
  for (let at = 0; at < text.length; at++) {
    const unit = text.charCodeAt(at);
    if (unit >= 0xd800 && unit <= 0xdbff) count--;
  }
  return count;
}

function listOfNumbers(value: unknown): number[] {
  return Array.isArray(value) ? (value as unknown[]).flatMap((item) => uint32Of(item) ?? []) : [];
}

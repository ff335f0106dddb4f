/** What several queries found, made one list, and what models and people are shown of it. Pure. */
import { create } from "@bufbuild/protobuf";
import { type Document, DocumentSchema } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { cutChars, shareFairly } from "../../lib/text.js";
import type { IndexedPassage } from "./document-index.js";

/** Damps the lead of a first place: the usual constant of reciprocal rank fusion. */
const RANK_DAMPING = 60;
const SNIPPET_CHARS = 600;
const SNIPPET_STEP = 100;

/** One list out of several: a passage counts more the higher and the more often it stands (reciprocal rank fusion). */
export function fuse(lists: readonly (readonly IndexedPassage[])[], limit: number): IndexedPassage[] {
  const found = new Map<string, { passage: IndexedPassage; score: number }>();
  for (const list of lists) {
    for (const [rank, passage] of list.entries()) {
      const key = passageId(passage);
      const entry = found.get(key) ?? { passage, score: 0 };
      entry.score += 1 / (RANK_DAMPING + rank + 1);
      found.set(key, entry);
    }
  }
  return [...found.values()]
    .sort((a, b) => b.score - a.score)
    .slice(0, limit)
    .map(({ passage, score }) => ({ ...passage, score }));
}

/** The text that a model reads: numbered passages that together stay below a length. */
export function renderPassages(
  passages: readonly IndexedPassage[],
  firstNumber: number,
  maxChars: number,
): { readonly text: string; readonly truncated: boolean } {
  const heads = passages.map((passage, index) => {
    const number = firstNumber > 0 ? `[${firstNumber + index}] ` : "";
    return `${number}${placeOf(passage)}\n`;
  });
  const frames = heads.reduce((sum, head) => sum + head.length + CUT_MARK.length + 2, 0);
  const bodies = passages.map(({ text }) => text.trim());
  const shares = shareFairly(
    bodies.map((body) => body.length),
    Math.max(0, maxChars - frames),
  );
  const cut = bodies.map((body, index) => body.length > shares[index]!);
  const parts = bodies.map(
    (body, index) => heads[index]! + (cut[index] ? cutChars(body, shares[index]!) + CUT_MARK : body),
  );
  return { text: parts.join("\n\n"), truncated: cut.includes(true) };
}

const CUT_MARK = " [...]";

function placeOf({ title, heading, page }: IndexedPassage): string {
  const under = heading !== "" && heading !== title ? ` > ${heading}` : "";
  return `${title}${under}${page > 0 ? ` (page ${page})` : ""}`;
}

/** A passage as packets and citations carry it: cut to where the words stand, with the address of that place. */
export function toDocument(
  passage: IndexedPassage,
  words: readonly string[],
  citationNumber: number,
): Document {
  const from = snippetStart(passage.text, words);
  const snippet = cutChars(passage.text.slice(from), SNIPPET_CHARS);
  const startChar = passage.startChar + [...passage.text.slice(0, from)].length;
  const place = `/#/documents/${encodeURIComponent(passage.documentId)}?at=${startChar}`;
  const facts = {
    document_id: passage.documentId,
    place,
    media_type: passage.mediaType,
    heading: passage.heading,
    tags: passage.tags.join(", "),
  };
  return create(DocumentSchema, {
    documentId: passageId(passage),
    title: passage.title,
    url: passage.url || place,
    snippet,
    score: passage.score,
    source: passage.source,
    metadata: Object.fromEntries(Object.entries(facts).filter(([, value]) => value !== "")),
    chunkIndex: passage.chunkIndex,
    fileId: passage.fileId,
    citationNumber,
    page: passage.page,
    startChar,
    endChar: startChar + [...snippet].length,
    truncated: snippet.length < passage.text.length,
  });
}

/** Unlike for two passages of one document. */
function passageId({ documentId, chunkIndex }: IndexedPassage): string {
  return `${documentId}:${chunkIndex}`;
}

/** The words of queries by which a snippet is chosen, lower case, without their ends: inflected forms count too. */
export function snippetWords(queries: readonly string[]): string[] {
  const words = queries.flatMap((query) => query.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []);
  return [...new Set(words.map((word) => word.slice(0, Math.max(4, word.length - 2))))].slice(0, 32);
}

/** Where the part of the text begins that holds most of the words. */
function snippetStart(text: string, words: readonly string[]): number {
  if (text.length <= SNIPPET_CHARS) return 0;
  const lower = text.toLowerCase();
  if (lower.length !== text.length) return 0; // a letter whose lower case is longer: positions would not fit
  const starts = [0];
  for (let at = SNIPPET_STEP; at + SNIPPET_CHARS - SNIPPET_STEP < text.length; at += SNIPPET_STEP)
    starts.push(at);
  const holds = (at: number): number => {
    const window = lower.slice(at, at + SNIPPET_CHARS);
    return words.filter((word) => window.includes(word)).length;
  };
  const counts = starts.map(holds);
  const best = starts[counts.indexOf(Math.max(...counts))]!;
  return best === 0 ? 0 : wordStart(text, best);
}

function wordStart(text: string, at: number): number {
  const space = text.slice(at, at + 40).search(/\s/);
  const from = space < 0 ? at : at + space + 1;
  return /[\udc00-\udfff]/.test(text.charAt(from)) ? from + 1 : from;
}

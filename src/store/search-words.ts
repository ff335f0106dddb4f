/**
 * The words of a text, the same for what is stored and for what is asked: normalised and in lower case; in scripts that
 * write no spaces each character is a word, so that a part of a sentence is found. No language is assumed, and Postgres
 * parses nothing: how it would depends on its locale.
 */
import type { Owner } from "../lib/rpc/service-binding.js";
import { UNSPACED } from "../lib/unspaced.js";
import type { Param } from "./db.js";
import { ownerKey } from "./owner-key.js";

/** Of a longer text the beginning is found: a tsvector holds at most 1 MiB. */
const MAX_CHARS = 100_000;
/** Longer words are no words; Postgres holds lexemes of up to 2 KiB. */
const MAX_WORD_CHARS = 256;
/** Greatest position of a tsvector; all words beyond stand there. */
const MAX_POSITION = 16_383;
/** A query of more words is about the first ones. */
const MAX_QUERY_WORDS = 32;

const WORDS = /[\p{L}\p{N}\p{M}]+/gu;
const UNSPACED_CHARACTER = new RegExp(UNSPACED, "gu");

export function wordsOf(text: string): string[] {
  const normal = text.slice(0, MAX_CHARS).normalize("NFKC").toLowerCase().slice(0, MAX_CHARS);
  const words = normal.replace(UNSPACED_CHARACTER, " $& ").match(WORDS) ?? [];
  return words.filter((word) => word.length <= MAX_WORD_CHARS);
}

/** Two parameters: a text as Postgres can hold it, and its tsvector (null = it has no words) with a lexeme for its owner. */
export function searchParams(owner: Owner, text: string): [Param, Param] {
  const words = wordsOf(text).map((word, at) => `'${word}':${Math.min(at + 1, MAX_POSITION)}`);
  const vector = words.length === 0 ? null : `'${ownerLexeme(owner)}' ${words.join(" ")}`;
  return [text.replaceAll("\0", "\uFFFD"), vector];
}

/**
 * A tsquery that finds the owner's texts with all words of a query, the last one also as the beginning of a word;
 * undefined = the query has no words. Words hold letters and digits only, so quoting them is enough.
 */
export function searchQuery(owner: Owner, query: string): string | undefined {
  const words = wordsOf(query).slice(0, MAX_QUERY_WORDS);
  if (words.length === 0) return undefined;
  const terms = words.map((word, at) => `'${word}'${at === words.length - 1 ? ":*" : ""}`);
  return [`'${ownerLexeme(owner)}'`, ...terms].join(" & ");
}

/** No word of a text looks like it: words have no bar. */
function ownerLexeme(owner: Owner): string {
  return `|${ownerKey(owner)}`;
}

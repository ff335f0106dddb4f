/**
 * Cuts a text that arrives in pieces into passages, at headings, paragraphs, lines, sentences or words, whichever comes
 * best.
 *
 * C1 the passages, one after the other, are the text: nothing is left out, nothing stands twice.
 * C2 they do not depend on how the text was cut into pieces.
 * C3 no passage is longer than MAX_CHARS, and none breaks a code point.
 */
import { cutChars } from "../lib/text.js";

export interface Passage {
  /** Counts from 0. */
  readonly index: number;
  readonly text: string;
  /** Position in the whole text, in code points; `end` is exclusive. */
  readonly start: number;
  readonly end: number;
  /** The headings that it stands under, outermost first, joined. Empty without one. */
  readonly heading: string;
  /** Where it begins, from 1; 0 in a text without pages. */
  readonly page: number;
}

/** Bounds of a passage in UTF-16 units: a heading may begin a new one from MIN on, a paragraph from TARGET on. */
export const MIN_CHARS = 400;
export const TARGET_CHARS = 1_400;
export const MAX_CHARS = 2_000;
const MAX_HEADING_CHARS = 200;
const FENCE = /^ {0,3}(```|~~~)/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*?)[ \t#]*$/;
const PAGE_LINE = /^\[page (\d+) of \d+\]$/;

export interface ChunkerOptions {
  /** The text has lines "[page 3 of 12]" where pages begin. */
  readonly pages?: boolean;
}

export class Chunker {
  readonly #pages: boolean;
  #buffer = "";
  #index = 0;
  #position = 0;
  #page = 0;
  #inFence = false;
  readonly #headings: string[] = [];

  constructor({ pages = false }: ChunkerOptions = {}) {
    this.#pages = pages;
  }

  /** Takes more text; gives the passages that are certain by now. */
  *push(piece: string): Generator<Passage> {
    this.#buffer += piece;
    // The longest passage, and the line after it, are in sight: more text would change nothing.
    yield* this.#cutWhile((left) => left > MAX_CHARS);
  }

  /** The text is over: gives the rest. */
  *end(): Generator<Passage> {
    yield* this.#cutWhile((left) => left > 0);
  }

  *#cutWhile(enough: (left: number) => boolean): Generator<Passage> {
    let at = 0;
    while (enough(this.#buffer.length - at)) {
      const window = this.#buffer.slice(at, at + MAX_CHARS + 1);
      const text = window.slice(0, passageEnd(window, this.#inFence));
      at += text.length;
      yield this.#passage(text);
    }
    this.#buffer = this.#buffer.slice(at);
  }

  #passage(text: string): Passage {
    let { heading, page } = { heading: this.#path(), page: this.#page };
    let hasContent = false; // headings at a passage's very beginning are the ones it stands under
    for (const line of text.split("\n")) {
      const isHeading = this.#read(line);
      if (!hasContent) ({ heading, page } = { heading: this.#path(), page: this.#page });
      if (!isHeading && line.trim() !== "") hasContent = true;
    }
    const start = this.#position;
    this.#position += codePoints(text);
    return { index: this.#index++, text, start, end: this.#position, heading, page };
  }

  /** Takes note of what a line says about the place; true for lines that are no content. */
  #read(line: string): boolean {
    if (FENCE.test(line)) this.#inFence = !this.#inFence;
    if (this.#inFence) return false;
    const pageLine = this.#pages ? PAGE_LINE.exec(line) : null;
    if (pageLine) this.#page = Number(pageLine[1]);
    const heading = HEADING.exec(line);
    if (!heading) return pageLine !== null;
    const level = heading[1]!.length;
    this.#headings.length = Math.min(this.#headings.length, level - 1);
    while (this.#headings.length < level - 1) this.#headings.push("");
    this.#headings.push(cutChars(heading[2]!, MAX_HEADING_CHARS));
    return true;
  }

  #path(): string {
    return this.#headings.filter((heading) => heading !== "").join(" > ");
  }
}

/** Where the first passage of `window` ends. A window of at most MAX_CHARS is all that is left. */
function passageEnd(window: string, inFence: boolean): number {
  const last = window.length <= MAX_CHARS;
  const limit = last ? window.length : MAX_CHARS;
  const lines = lineEnds(window, limit, inFence);
  const heading = lines.find(({ at, kind }) => kind === "heading" && at >= MIN_CHARS);
  const paragraph = lines.find(({ at, kind }) => kind === "paragraph" && at >= TARGET_CHARS);
  const first = [heading?.at, paragraph?.at].filter((at) => at !== undefined);
  if (first.length > 0) return Math.min(...first);
  if (last) return limit;
  const early = lines.findLast(({ at, kind }) => kind === "paragraph" && at >= MIN_CHARS);
  const line = lines.findLast(({ at }) => at >= MIN_CHARS);
  const end = early?.at ?? line?.at ?? wordEnd(window, limit);
  return isLowSurrogate(window.charCodeAt(end)) ? end - 1 : end;
}

interface LineEnd {
  /** Where the next line begins. */
  readonly at: number;
  /** What ends here. "heading": the next line is one. */
  readonly kind: "heading" | "paragraph" | "line";
}

function lineEnds(window: string, limit: number, inFence: boolean): LineEnd[] {
  const ends: LineEnd[] = [];
  let fenced = inFence;
  let begin = 0;
  for (;;) {
    const newline = window.indexOf("\n", begin);
    if (newline < 0 || newline + 1 >= limit) return ends;
    const line = window.slice(begin, newline);
    if (FENCE.test(line)) fenced = !fenced;
    begin = newline + 1;
    const nextEnd = window.indexOf("\n", begin);
    const next = window.slice(begin, nextEnd < 0 ? limit : Math.min(nextEnd, limit));
    // A line that begins with "#" and is not seen whole counts: it depends on what is in the window alone.
    if (!fenced && /^ {0,3}#{1,6}[ \t]/.test(next)) ends.push({ at: begin, kind: "heading" });
    else if (!fenced && line.trim() === "") ends.push({ at: begin, kind: "paragraph" });
    else ends.push({ at: begin, kind: "line" });
  }
}

/** The last end of a sentence, else of a word; else the limit. */
function wordEnd(window: string, limit: number): number {
  const text = window.slice(0, limit);
  const sentence = lastEnd(text, /[.!?]["')\]]?\s|[。！？]/g);
  if (sentence >= MIN_CHARS) return sentence;
  const word = lastEnd(text, /\s/g);
  return word >= MIN_CHARS ? word : limit;
}

function lastEnd(text: string, pattern: RegExp): number {
  let end = 0;
  for (const match of text.matchAll(pattern)) end = match.index + match[0].length;
  return end;
}

function isLowSurrogate(unit: number): boolean {
  return unit >= 0xdc00 && unit <= 0xdfff;
}

/** Length of a well-formed text in code points. */
export function codePoints(text: string): number {
  return text.length - (text.match(/[\ud800-\udbff][\udc00-\udfff]/g)?.length ?? 0);
}

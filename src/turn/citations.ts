/**
 * Citations in an answer: markers such as `[1]`, `[1, 2]`, `[[1]]` or `【1】` become links to the documents that tools found.
 *
 * C1 the result does not depend on how the text was cut. C2 code (inline, fenced), links that are there already and escaped
 * brackets stay as they are. C3 a marker without a mapped number stays as text; a list keeps its mapped numbers. C4 what is
 * held back is bounded (`MAX_LINK_TEXT`) and comes out at the end. C5 time is linear in the text.
 */

/** What a number stands for. */
export interface CitableDocument {
  readonly documentId: string;
  /** "" = the document has no address: the marker is written without a link. */
  readonly url: string;
}

/** hyperlink: `[[n]](url)`, or `[n]` without an address. remove: markers with a mapped number are taken out. */
export type CitationStyle = "hyperlink" | "remove";

/** Text as it is shown, or the news that the marker which follows cites a document for the first time. */
export type CitedPiece =
  | { readonly kind: "text"; readonly text: string }
  | {
      readonly kind: "citation";
      readonly number: number;
      readonly documentId: string;
      /** Place of the marker in the written text, in code points; the end is exclusive. */
      readonly startChar: number;
      readonly endChar: number;
    };

const MAX_NUMBERS = 32;
const MAX_DIGITS = 9;
/** Characters that a link's text may have to be known as one. */
const MAX_LINK_TEXT = 256;
/** The longest run of one mark that counts as one. */
const MAX_RUN = 64;

const NOTABLE = /[[【［`\\<\n]/g;
/** What may stand before a fence. */
const INDENT = /[ \t>]{0,64}/y;
const CODE_END = /[`\n]/g;
const OPENING = "[【［";
const CLOSING = "]】］";
/** A marker that follows one of these directly gets a space before it. */
const WORD_END = /[\p{L}\p{N}.,;:!?)\]}"'”’»…%]$/u;
/** What a removed marker leaves no space before. */
const CLINGS = /^[\s.,;:!?)\]}]/;

type Context =
  | { readonly kind: "prose" }
  /** The line that opens a fence. */
  | { readonly kind: "fence_info"; readonly mark: string; readonly length: number }
  | { readonly kind: "fence"; readonly mark: string; readonly length: number }
  | { readonly kind: "code"; readonly length: number }
  | { readonly kind: "link_target"; depth: number }
  | { readonly kind: "address" };

const PROSE: Context = { kind: "prose" };

/** Rewrites the text of one block of answer. */
export class CitationWriter {
  readonly #style: CitationStyle;
  readonly #documentOf: (number: number) => CitableDocument | undefined;
  /** What was not dealt with yet. */
  #source = "";
  /** No more text comes. */
  #final = false;
  #context: Context = PROSE;
  /** Nothing but indentation since the line began. */
  #atLineStart = true;
  #pieces: CitedPiece[] = [];
  #text = "";
  #writtenChars = 0;
  #lastText = "";
  #afterMarker = false;
  /** White space that goes if a removed marker turns out to cling. Only when removing. */
  #blanks = "";
  #removed = false;
  readonly #cited = new Set<number>();

  /** `documentOf` is asked when a marker is complete; undefined = the number is not mapped. */
  constructor(style: CitationStyle, documentOf: (number: number) => CitableDocument | undefined) {
    this.#style = style;
    this.#documentOf = documentOf;
  }

  push(text: string): CitedPiece[] {
    return this.#advance(text, false);
  }

  /** The block is over: what was held back comes out. */
  end(): CitedPiece[] {
    const pieces = this.#advance("", true);
    if (this.#blanks !== "") pieces.push({ kind: "text", text: this.#blanks });
    this.#blanks = "";
    return pieces;
  }

  #advance(text: string, final: boolean): CitedPiece[] {
    this.#source += text;
    this.#final = final;
    let at = 0;
    while (at < this.#source.length) {
      const next = this.#step(at);
      if (next === at) break; // what comes next decides
      at = next;
    }
    this.#source = this.#source.slice(at);
    this.#flushText();
    const pieces = this.#pieces;
    this.#pieces = [];
    return pieces;
  }

  /** Deals with what stands at `at`; returns where to go on, `at` itself when more text is needed. */
  #step(at: number): number {
    if (this.#atLineStart) return this.#lineStart(at);
    const context = this.#context;
    switch (context.kind) {
      case "prose":
        return this.#prose(at);
      case "fence_info":
      case "fence":
        return this.#fenceLine(at, context);
      case "code":
        return this.#code(at, context.length);
      case "link_target":
        return this.#linkTarget(at, context);
      case "address":
        return this.#address(at);
    }
  }

  /** A fence opens or closes at the start of a line only. */
  #lineStart(at: number): number {
    INDENT.lastIndex = at;
    const start = at + INDENT.exec(this.#source)![0].length;
    const mark = this.#source.charAt(start);
    const end = mark === "`" || mark === "~" ? runEnd(this.#source, start) : start;
    if (end === this.#source.length && !this.#final) return at;
    const length = end - start;
    const { kind } = this.#context;
    if (kind === "fence") return this.#maybeCloseFence(at, start, end);
    if (length < 3) return this.#plainLineStart(at, start);
    this.#atLineStart = false;
    this.#context = { kind: "fence_info", mark, length };
    this.#write(this.#source.slice(at, end));
    return end;
  }

  #plainLineStart(at: number, start: number): number {
    const end = start > at ? this.#copy(at, start) : this.#prose(at, true);
    if (end > at) this.#atLineStart = this.#source[end - 1] === "\n";
    return end;
  }

  #maybeCloseFence(at: number, start: number, end: number): number {
    const fence = this.#context as Extract<Context, { kind: "fence" }>;
    const isMark = this.#source.charAt(start) === fence.mark && end - start >= fence.length;
    let rest = end;
    while (isMark && rest - end < MAX_RUN && (this.#source[rest] === " " || this.#source[rest] === "\t"))
      rest++;
    if (isMark && rest === this.#source.length && !this.#final) return at;
    this.#atLineStart = false;
    if (isMark && (rest === this.#source.length || this.#source[rest] === "\n")) this.#context = PROSE;
    this.#write(this.#source.slice(at, rest));
    return rest > at ? rest : this.#fenceLine(at, fence);
  }

  /** Up to the end of the line everything is code. A backtick on the opening line means: no fence, but code in the line. */
  #fenceLine(at: number, fence: Extract<Context, { length: number; mark: string }>): number {
    const lineEnd = this.#source.indexOf("\n", at);
    const end = lineEnd === -1 ? this.#source.length : lineEnd + 1;
    if (fence.kind === "fence_info") {
      const tick = fence.mark === "`" ? this.#source.indexOf("`", at) : -1;
      if (tick !== -1 && tick < end) {
        this.#context = { kind: "code", length: fence.length };
        this.#write(this.#source.slice(at, tick));
        return tick > at ? tick : this.#code(at, fence.length);
      }
      if (lineEnd !== -1) this.#context = { ...fence, kind: "fence" };
    }
    if (lineEnd !== -1) this.#atLineStart = true;
    this.#write(this.#source.slice(at, end));
    return end;
  }

  /** Code in a line ends at a run of as many backticks, or with the line. */
  #code(at: number, length: number): number {
    CODE_END.lastIndex = at;
    const found = CODE_END.exec(this.#source)?.index ?? this.#source.length;
    if (found > at) return this.#copy(at, found);
    if (this.#source[at] === "\n") {
      this.#context = PROSE;
      return this.#newline(at);
    }
    const end = runEnd(this.#source, at);
    if (end === this.#source.length && !this.#final) return at;
    if (end - at === length) this.#context = PROSE;
    return this.#copy(at, end);
  }

  /** `lineStart`: the line begins here. */
  #prose(at: number, lineStart = false): number {
    NOTABLE.lastIndex = at;
    const found = NOTABLE.exec(this.#source)?.index ?? this.#source.length;
    if (found > at) {
      this.#write(this.#source.slice(at, found));
      return found;
    }
    const mark = this.#source[at]!;
    switch (mark) {
      case "\n":
        return this.#newline(at);
      case "`":
        return this.#openCode(at);
      case "\\": {
        if (at + 1 === this.#source.length && !this.#final) return at;
        return this.#copy(at, this.#source[at + 1] === "\n" ? at + 1 : at + 2);
      }
      case "<":
        return this.#openAddress(at);
      default:
        return this.#bracket(at, lineStart);
    }
  }

  #openCode(at: number): number {
    const end = runEnd(this.#source, at);
    if (end === this.#source.length && !this.#final) return at;
    this.#context = { kind: "code", length: end - at };
    return this.#copy(at, end);
  }

  #openAddress(at: number): number {
    const rest = this.#source.slice(at, at + 9);
    const isAddress = rest.startsWith("<http://") || rest.startsWith("<https://");
    if (!isAddress && !this.#final && ("<http://".startsWith(rest) || "<https://".startsWith(rest)))
      return at;
    if (isAddress) this.#context = { kind: "address" };
    return this.#copy(at, at + 1);
  }

  #address(at: number): number {
    const length = this.#source.slice(at).search(/[>\s]/);
    if (length === -1) return this.#copy(at, this.#source.length);
    this.#context = PROSE;
    return length > 0 ? this.#copy(at, at + length) : this.#prose(at);
  }

  #newline(at: number): number {
    this.#atLineStart = true;
    return this.#copy(at, at + 1);
  }

  /** The target of a link, to its closing parenthesis or the end of the line. */
  #linkTarget(at: number, target: { depth: number }): number {
    let end = at;
    for (; end < this.#source.length && target.depth > 0; end++) {
      const char = this.#source[end];
      if (char === "\n") break;
      if (char === "(") target.depth++;
      else if (char === ")") target.depth--;
    }
    if (target.depth === 0 || end < this.#source.length) this.#context = PROSE;
    return end > at ? this.#copy(at, end) : this.#prose(at);
  }

  #bracket(at: number, lineStart: boolean): number {
    const marker = readMarker(this.#source, at);
    if (marker === "partial") return this.#final ? this.#copy(at, at + 1) : at;
    if (marker === undefined) return this.#otherBracket(at);
    const after = this.#source[marker.end];
    if (after === undefined && !this.#final) return at;
    if (after === "(" && this.#source[marker.end - 1] === "]") return this.#existingLink(at, marker.end);
    const isDefinition = after === ":" && lineStart;
    const mapped = marker.numbers.flatMap((number) => {
      const document = this.#documentOf(number);
      return document ? [{ number, document }] : [];
    });
    if (isDefinition || mapped.length === 0) return this.#copy(at, marker.end);
    if (this.#style === "remove") this.#removed = true;
    else this.#cite(mapped);
    return marker.end;
  }

  /** A link with other text, or a bracket that is none of ours. */
  #otherBracket(at: number): number {
    if (this.#source[at] !== "[") return this.#copy(at, at + 1);
    const end = linkTextEnd(this.#source, at);
    if ((end === "partial" || end === this.#source.length) && !this.#final) return at;
    if (typeof end === "number" && this.#source[end] === "(") return this.#existingLink(at, end);
    return this.#copy(at, at + 1);
  }

  #existingLink(at: number, parenthesis: number): number {
    this.#context = { kind: "link_target", depth: 1 };
    return this.#copy(at, parenthesis + 1);
  }

  #cite(mapped: readonly { readonly number: number; readonly document: CitableDocument }[]): void {
    if (!this.#afterMarker && WORD_END.test(this.#lastText)) this.#write(" ");
    for (const [index, { number, document }] of mapped.entries()) {
      if (index > 0) this.#write(" ");
      const marker = document.url === "" ? `[${number}]` : `[[${number}]](${linkTarget(document.url)})`;
      if (!this.#cited.has(number)) {
        this.#cited.add(number);
        this.#flushText();
        const startChar = this.#writtenChars;
        const endChar = startChar + codePoints(marker);
        this.#pieces.push({ kind: "citation", number, documentId: document.documentId, startChar, endChar });
      }
      this.#write(marker);
    }
    this.#afterMarker = true;
  }

  #copy(at: number, end: number): number {
    this.#write(this.#source.slice(at, end));
    return Math.min(end, this.#source.length);
  }

  #write(text: string): void {
    if (text === "") return;
    let shown = text;
    if (this.#style === "remove") {
      const keepsBlanks = !this.#removed || !CLINGS.test(text);
      const whole = keepsBlanks ? this.#blanks + text : text;
      this.#removed = false;
      shown = whole.trimEnd();
      this.#blanks = whole.slice(shown.length);
    }
    this.#text += shown;
    this.#afterMarker = false;
    this.#lastText = text;
  }

  #flushText(): void {
    if (this.#text === "") return;
    this.#pieces.push({ kind: "text", text: this.#text });
    this.#writtenChars += codePoints(this.#text);
    this.#text = "";
  }
}

interface Marker {
  readonly numbers: readonly number[];
  readonly end: number;
}

/** The marker at `at`; partial = the text ends within what may become one; undefined = none. */
function readMarker(source: string, at: number): Marker | "partial" | undefined {
  const isDouble = at + 1 < source.length && OPENING.includes(source[at + 1]!);
  let end = at + (isDouble ? 2 : 1);
  const numbers: number[] = [];
  for (;;) {
    const start = end;
    while (end < source.length && end - start <= MAX_DIGITS && isDigit(source.charCodeAt(end))) end++;
    if (end === source.length && end - start <= MAX_DIGITS) return "partial";
    if (end === start || end - start > MAX_DIGITS) return undefined;
    numbers.push(Number(source.slice(start, end)));
    if (source[end] !== ",") break;
    if (numbers.length === MAX_NUMBERS) return undefined;
    end++;
    if (source[end] === " ") end++;
  }
  for (let closed = 0; closed < (isDouble ? 2 : 1); closed++) {
    if (end === source.length) return "partial";
    if (!CLOSING.includes(source[end]!)) return undefined;
    end++;
  }
  return { numbers, end };
}

/** Just after the bracket that closes the one at `at` on the same line; partial = more text is needed; undefined = none. */
function linkTextEnd(source: string, at: number): number | "partial" | undefined {
  let depth = 0;
  const limit = Math.min(source.length, at + MAX_LINK_TEXT);
  for (let end = at; end < limit; end++) {
    const char = source[end];
    if (char === "\n") return undefined;
    if (char === "\\") end++;
    else if (char === "[") depth++;
    else if (char === "]" && --depth === 0) return end + 1;
  }
  return limit === source.length && limit < at + MAX_LINK_TEXT ? "partial" : undefined;
}

function runEnd(source: string, at: number): number {
  let end = at;
  while (end < source.length && end - at < MAX_RUN && source[end] === source[at]) end++;
  return end;
}

function isDigit(code: number): boolean {
  return code >= 0x30 && code <= 0x39;
}

/** An address as it can stand in a Markdown link. */
function linkTarget(url: string): string {
  return url.replace(
    /[()<>\\\s]/g,
    (char) => `%${char.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")}`,
  );
}

function codePoints(text: string): number {
  let count = text.length;
  for (let i = 0; i < text.length; i++) if ((text.charCodeAt(i) & 0xfc00) === 0xd800) count--;
  return count;
}

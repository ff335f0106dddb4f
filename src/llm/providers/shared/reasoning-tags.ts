/**
 * Reasoning that a model writes into its answer between tags (`<think>...</think>`), for servers that do not take it out
 * themselves. Only on when a model's settings say so.
 * K1 a tag opens at the start of the answer or of a line, blanks before it allowed, never in a fence; names compare without case;
 * inside reasoning the first end tag of the same name closes, anywhere, fences or not. K2 text that may yet become a tag is
 * held back, at most 512 characters; at the end it is released as what it stands in. K3 around reasoning white space is trimmed, after an end tag
 * line breaks, before the first tag of the answer what is blank; all else is exact (runs of more than 512 blanks are never
 * trimmed). K4 the result does not depend on how the text was cut. K5 an end tag without a start is dropped when only blanks follow
 * it on its line, or when it is the first of an answer whose predecessor ended in reasoning; else it is text. K6 once the
 * server itself says what is reasoning, tags are text, and an empty pair is dropped.
 */
import { CodeTracker } from "./code-tracker.js";
import { isBlank, isLineBreak, isSpace, matchEndTag, matchStartTag, MAX_TAG_CHARS } from "./tag-scanner.js";

/** The names that models use, where their settings name none. */
export const DEFAULT_REASONING_TAGS: readonly string[] = ["think", "thinking", "thought", "reasoning"];

export interface TaggedPiece {
  readonly kind: "text" | "reasoning";
  readonly text: string;
}

export interface ReasoningTagOptions {
  /** Names of the tags, lower case. */
  readonly names: readonly string[];
  /** The previous answer ended in reasoning. */
  readonly reasoningOpen?: boolean;
  /** The prompt opened a tag: the text before the first end tag is reasoning. */
  readonly startsInReasoning?: boolean;
}

/** The splitter for an answer; undefined = its text has no tags. */
export function createTagSplitter(options: {
  readonly reasoningTags: readonly string[];
  readonly reasoningOpen: boolean;
  readonly startsInReasoning?: boolean;
}): ReasoningTagSplitter | undefined {
  const { reasoningTags: names, reasoningOpen, startsInReasoning = false } = options;
  return names.length > 0 ? new ReasoningTagSplitter({ names, reasoningOpen, startsInReasoning }) : undefined;
}

export class ReasoningTagSplitter {
  readonly #names: readonly string[];
  readonly #code = new CodeTracker();
  #held = "";
  /** Names whose end tag closes the open reasoning; undefined = in the answer. */
  #closers: readonly string[] | undefined;
  /** Nothing but blanks since the start of the answer or line. */
  #atLineStart = true;
  /** Text was handed out since the start or the last end tag. */
  #textStarted = false;
  /** Line breaks that follow are part of the end tag. */
  #trimBreaks = false;
  /** An end tag at the start closes what an earlier answer, or the server, left open. */
  #endTagDue: boolean;
  /** Nothing of the open reasoning was handed out yet. */
  #fresh = true;
  /** White space at the end of the reasoning so far that was too much to hold back. */
  #spacesOut = 0;
  /** K6. */
  #structured = false;
  /** A start tag was text, so its end tag is, too. */
  #literalTag = false;

  constructor(options: ReasoningTagOptions) {
    this.#names = options.names;
    this.#endTagDue = options.reasoningOpen ?? false;
    if (options.startsInReasoning) this.#closers = options.names;
  }

  /** True while a tag is open, also one of an earlier answer if nothing came since. */
  get open(): boolean {
    return this.#closers !== undefined || this.#endTagDue;
  }

  push(text: string): TaggedPiece[] {
    this.#held += text;
    return this.#run(false);
  }

  /** What was held back. */
  end(): TaggedPiece[] {
    return this.#run(true);
  }

  /** The server sends reasoning in a field of its own (K6). Open reasoning ends here; what its tag needs may still come. */
  structured(): TaggedPiece[] {
    if (this.#structured) return [];
    this.#structured = true;
    if (this.#closers === undefined && !this.#textStarted && this.#held.trim() === "") return [];
    const pieces = this.#run(true);
    if (this.#closers !== undefined) this.#endTagDue = true;
    this.#closers = undefined;
    this.#atLineStart = true;
    return pieces;
  }

  #run(final: boolean): TaggedPiece[] {
    const pieces: TaggedPiece[] = [];
    while (
      this.#held !== "" &&
      (this.#closers === undefined ? this.#stepText(pieces, final) : this.#stepReasoning(pieces, final))
    );
    return pieces;
  }

  /** Each step consumes something, or says that more text is needed (false). */
  #stepText(pieces: TaggedPiece[], final: boolean): boolean {
    if (this.#trimBreaks) {
      const breaks = countWhile(this.#held, isLineBreak);
      this.#held = this.#held.slice(breaks);
      if (this.#held === "") return false;
      this.#trimBreaks = false;
    }
    if (this.#atLineStart) return this.#stepLineStart(pieces, final);
    const newline = this.#held.indexOf("\n");
    const stop = newline === -1 ? this.#held.length : newline;
    const orphan = this.#code.inFence || this.#literalTag ? undefined : this.#findOrphan(stop, final);
    if (orphan) {
      this.#emitText(pieces, orphan.at);
      this.#held = this.#held.slice(orphan.end - orphan.at);
      return orphan.end > orphan.at;
    }
    this.#emitText(pieces, newline === -1 ? stop : stop + 1);
    if (newline === -1) return false;
    this.#code.endLine();
    this.#atLineStart = true;
    return true;
  }

  #stepLineStart(pieces: TaggedPiece[], final: boolean): boolean {
    const blanks = countWhile(this.#held, this.#textStarted ? isBlank : isSpace);
    if (blanks <= MAX_TAG_CHARS && !this.#code.inFence) {
      if (blanks === this.#held.length && !final) return false;
      const handled = this.#tagAtLineStart(pieces, blanks, final);
      if (handled !== undefined) return handled;
    }
    this.#endTagDue = false;
    this.#atLineStart = false;
    return true;
  }

  /** undefined = no tag stands there. */
  #tagAtLineStart(pieces: TaggedPiece[], blanks: number, final: boolean): boolean | undefined {
    if (this.#held[blanks] !== "<") return undefined;
    const startTag = matchStartTag(this.#held, blanks, this.#names);
    if (startTag === "partial") return final ? undefined : false;
    if (startTag && !this.#structured) {
      this.#dropTag(pieces, blanks, startTag.end);
      this.#closers = [startTag.name];
      this.#fresh = true;
      this.#endTagDue = false;
      return true;
    }
    if (startTag) {
      const handled = this.#emptyPair(pieces, blanks, startTag, final);
      this.#literalTag ||= handled === undefined;
      return handled;
    }
    if (!this.#endTagDue) return undefined;
    const endTag = matchEndTag(this.#held, blanks, this.#names);
    if (endTag === "partial") return final ? undefined : false;
    if (!endTag) return undefined;
    this.#dropTag(pieces, blanks, endTag.end);
    this.#endTagDue = false;
    this.#afterEndTag();
    return true;
  }

  /** K6. */
  #emptyPair(
    pieces: TaggedPiece[],
    blanks: number,
    startTag: { readonly name: string; readonly end: number },
    final: boolean,
  ): boolean | undefined {
    const inside = countWhile(this.#held, isSpace, startTag.end);
    if (inside > MAX_TAG_CHARS) return undefined;
    const at = startTag.end + inside;
    if (at === this.#held.length) return final ? undefined : false;
    const endTag = this.#held[at] === "<" ? matchEndTag(this.#held, at, [startTag.name]) : undefined;
    if (endTag === "partial") return final ? undefined : false;
    if (!endTag) return undefined;
    this.#dropTag(pieces, blanks, endTag.end);
    this.#afterEndTag();
    return true;
  }

  /** White space before the first tag is no answer; after text it is part of the text. */
  #dropTag(pieces: TaggedPiece[], blanks: number, end: number): void {
    const rest = this.#held.slice(end);
    if (this.#textStarted) this.#emitText(pieces, blanks);
    this.#held = rest;
  }

  #afterEndTag(): void {
    this.#closers = undefined;
    this.#code.startLine();
    this.#atLineStart = true;
    this.#trimBreaks = true;
    this.#textStarted = false;
  }

  /** K5: an end tag in this part of the line that is to be dropped, or (end = at) that needs more text to be told. */
  #findOrphan(stop: number, final: boolean): { readonly at: number; readonly end: number } | undefined {
    const line = this.#held.slice(0, stop);
    for (let at = line.indexOf("<"); at !== -1; at = line.indexOf("<", at + 1)) {
      const tag = matchEndTag(this.#held, at, this.#names);
      if (tag === undefined || this.#code.inInlineCode(line.slice(0, at))) continue;
      if (tag === "partial") {
        if (final) continue;
        return { at, end: at };
      }
      const blanks = countWhile(this.#held, isBlank, tag.end);
      if (blanks > MAX_TAG_CHARS) continue;
      const next = tag.end + blanks;
      if (next === this.#held.length && !final) return { at, end: at };
      if (next === this.#held.length || isLineBreak(this.#held.charCodeAt(next))) return { at, end: tag.end };
    }
    return undefined;
  }

  #emitText(pieces: TaggedPiece[], chars: number): void {
    if (chars === 0) return;
    const text = this.#held.slice(0, chars);
    pieces.push({ kind: "text", text });
    this.#code.add(text);
    this.#textStarted = true;
    this.#held = this.#held.slice(chars);
  }

  #stepReasoning(pieces: TaggedPiece[], final: boolean): boolean {
    if (this.#fresh) this.#held = this.#held.trimStart();
    const endTag = this.#findEndTag(final);
    const body = this.#held.slice(0, endTag?.at ?? this.#held.length);
    const certain = body.trimEnd();
    if (certain !== "") this.#spacesOut = 0;
    const spaces = this.#spacesOut + body.length - certain.length;
    const closes = endTag !== undefined && endTag.end > endTag.at;
    const out = spaces > MAX_TAG_CHARS ? body : certain;
    if (out !== "") {
      pieces.push({ kind: "reasoning", text: out });
      this.#fresh = false;
    }
    this.#spacesOut = spaces > MAX_TAG_CHARS ? spaces : 0;
    if (closes) {
      this.#held = this.#held.slice(endTag.end);
      this.#spacesOut = 0;
      this.#afterEndTag();
    } else {
      this.#held = final ? "" : this.#held.slice(out.length);
    }
    return closes;
  }

  /** The end tag that closes, or (end = at) where one may begin. */
  #findEndTag(final: boolean): { readonly at: number; readonly end: number } | undefined {
    for (let at = this.#held.indexOf("<"); at !== -1; at = this.#held.indexOf("<", at + 1)) {
      const tag = matchEndTag(this.#held, at, this.#closers ?? []);
      if (tag === undefined || (tag === "partial" && final)) continue;
      return { at, end: tag === "partial" ? at : tag.end };
    }
    return undefined;
  }
}

function countWhile(text: string, accept: (unit: number) => boolean, from = 0): number {
  let at = from;
  while (at < text.length && accept(text.charCodeAt(at))) at++;
  return at - from;
}

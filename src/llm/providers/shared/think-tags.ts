/**
 * Reasoning that a model writes into its answer between tags (`<think>...</think>`), for servers that do not take it out
 * themselves. Only on when a model's settings say so.
 * K1 a tag opens at the start of the answer or of a line, spaces before it allowed; inside reasoning the end tag of the
 * same name closes anywhere. K2 text that may yet become a tag is held back; at the end it is released as what it stands
 * in. K3 around reasoning white space is trimmed, after an end tag line breaks; all else is exact. K4 the result does not
 * depend on how the text was cut.
 */

export interface TaggedPiece {
  readonly kind: "text" | "reasoning";
  readonly text: string;
}

/** The names that models use, where their settings name none. */
export const DEFAULT_REASONING_TAGS: readonly string[] = ["think", "thinking", "thought", "reasoning"];

const OPEN_TAG = /^<(think|thinking|thought|reasoning)[ \t]*>/i;
/** What can still become an open tag. */
const OPEN_TAG_PREFIX =
  /^<(?:t(?:h(?:i(?:n(?:k(?:i(?:n(?:g)?)?)?)?)?|o(?:u(?:g(?:h(?:t)?)?)?)?)?)?|r(?:e(?:a(?:s(?:o(?:n(?:i(?:n(?:g)?)?)?)?)?)?)?)?)?[ \t]{0,64}$/i;

/** A tag after more blanks than this is text. */
const MAX_HELD_BLANKS = 512;

export class ThinkTagSplitter {
  #held = "";
  /** The tag that is open; undefined = in the answer. */
  #tag: string | undefined;
  /** Nothing but blanks since the start of the answer or line. */
  #atLineStart = true;
  /** Nothing of the open reasoning was handed out yet. */
  #fresh = true;
  /** Text was handed out since the start or the last end tag. */
  #textStarted = false;
  #afterEndTag = false;

  /** `reasoningOpen`: the answer goes on inside a tag that an earlier one left open. */
  constructor(reasoningOpen = false) {
    if (reasoningOpen) this.#tag = "think";
  }

  /** True while a tag is open. */
  get open(): boolean {
    return this.#tag !== undefined;
  }

  push(text: string): TaggedPiece[] {
    this.#held += text;
    const pieces: TaggedPiece[] = [];
    while (
      this.#held !== "" &&
      (this.#tag === undefined ? this.#stepText(pieces) : this.#stepReasoning(pieces))
    );
    return pieces;
  }

  /** What was held back. */
  end(): TaggedPiece[] {
    const kind = this.#tag === undefined ? "text" : "reasoning";
    const text = kind === "text" ? this.#held : this.#held.trimEnd();
    this.#held = "";
    return text === "" ? [] : [{ kind, text }];
  }

  /** Hands out answer text up to the next possible tag. True = something was consumed and there may be more. */
  #stepText(pieces: TaggedPiece[]): boolean {
    if (this.#afterEndTag) {
      this.#held = this.#held.replace(/^[\r\n]+/, "");
      if (this.#held === "") return false;
      this.#afterEndTag = false;
    }
    const blanks = this.#atLineStart ? (/^\s*/.exec(this.#held)?.[0].length ?? 0) : 0;
    if (this.#atLineStart && blanks <= MAX_HELD_BLANKS) {
      const rest = this.#held.slice(blanks);
      const tag = OPEN_TAG.exec(rest);
      if (tag) return this.#openTag(pieces, blanks, tag[0].length, tag[1] ?? "");
      if (rest === "" || OPEN_TAG_PREFIX.test(rest)) return false;
    }
    const newline = this.#held.indexOf("\n", blanks);
    this.#atLineStart = newline !== -1;
    this.#emitText(pieces, newline === -1 ? this.#held.length : newline);
    return newline !== -1;
  }

  #openTag(pieces: TaggedPiece[], blanks: number, tagChars: number, name: string): true {
    // White space before the first tag is no answer; after text its line breaks are part of the text.
    if (this.#textStarted) this.#emitText(pieces, blanks);
    else this.#held = this.#held.slice(blanks);
    this.#held = this.#held.slice(tagChars);
    this.#tag = name.toLowerCase();
    this.#fresh = true;
    return true;
  }

  #emitText(pieces: TaggedPiece[], chars: number): void {
    if (chars > 0) pieces.push({ kind: "text", text: this.#held.slice(0, chars) });
    this.#textStarted ||= chars > 0;
    this.#held = this.#held.slice(chars);
  }

  #stepReasoning(pieces: TaggedPiece[]): boolean {
    if (this.#fresh) this.#held = this.#held.trimStart();
    if (this.#held === "") return false;
    const endTag = `</${this.#tag ?? ""}>`;
    const at = this.#held.toLowerCase().indexOf(endTag);
    if (at !== -1) {
      this.#emitReasoning(pieces, this.#held.slice(0, at).trimEnd());
      this.#held = this.#held.slice(at + endTag.length);
      this.#tag = undefined;
      this.#atLineStart = true;
      this.#afterEndTag = true;
      this.#textStarted = false;
      return true;
    }
    const certain = this.#held.slice(0, this.#held.length - heldSuffix(this.#held, endTag)).trimEnd();
    this.#emitReasoning(pieces, certain);
    this.#held = this.#held.slice(certain.length);
    if (certain !== "") this.#fresh = false;
    return false;
  }

  #emitReasoning(pieces: TaggedPiece[], text: string): void {
    if (text !== "") pieces.push({ kind: "reasoning", text });
  }
}

/** How many characters at the end may be the start of the tag. */
function heldSuffix(text: string, tag: string): number {
  const lower = text.slice(-tag.length).toLowerCase();
  for (let length = Math.min(tag.length - 1, lower.length); length > 0; length--) {
    if (lower.endsWith(tag.slice(0, length))) return length;
  }
  return 0;
}

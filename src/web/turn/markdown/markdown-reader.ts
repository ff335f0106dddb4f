/**
 * Reads Markdown that is still being written: blocks that can no longer change are read once, only the open end is read
 * again.
 *
 * Owns: the blocks that are closed and the text they cover. M1 the blocks' raw texts joined are the text (but for what is
 * held back at an open end). M2 a closed block stays the same object. M3 `readWhole` does not depend on how the text
 * arrived; `read` may differ from it only where a link's definition or a table follows its use. M4 any text is shown: what
 * cannot be read in reasonable time, or at all, is shown as it is.
 */
import { Lexer, type Token, type Tokens, type TokensList } from "marked";
import { completeTail } from "./complete-tail.js";

/** One block of a text. */
export interface MarkdownBlock {
  /** Where it starts in the text: its identity. */
  readonly start: number;
  readonly raw: string;
  readonly token: Token;
}

type Definitions = TokensList["links"];

const NO_BLOCKS: readonly MarkdownBlock[] = [];
/** An open end that takes longer than this, milliseconds, twice in a row, is shown as it is until the text has ended. */
const SLOW_MS = 200;

/** Longer than any word or address that people read. */
const LONG_WORD = /\S{2000}/;

/** Reads one text as it grows. */
export class MarkdownReader {
  #closedText = "";
  #closed: readonly MarkdownBlock[] = NO_BLOCKS;
  #definitions: Definitions = {};
  #slowReads = 0;
  readonly #nowMs: () => number;

  constructor(nowMs: () => number = () => performance.now()) {
    this.#nowMs = nowMs;
  }

  /** The blocks of `text`; `open` says that more may come. Any text may follow any other, growing is fast. */
  read(text: string, open: boolean): readonly MarkdownBlock[] {
    const source = withoutReturns(text);
    if (!source.startsWith(this.#closedText)) this.#reset();
    const tail = source.slice(this.#closedText.length);
    if (open && this.#slowReads >= 2)
      return [...this.#closed, ...blocksOf([asItIs(tail)], this.#closedText.length)];
    const beganMs = this.#nowMs();
    const tokens = lex(open ? completeTail(tail) : tail, this.#definitions);
    this.#slowReads = this.#nowMs() - beganMs > SLOW_MS ? this.#slowReads + 1 : 0;
    const settled = open ? settledTokens(tokens) : 0;
    this.#close(tokens.slice(0, settled), tail);
    return [...this.#closed, ...blocksOf(tokens.slice(settled), this.#closedText.length)];
  }

  /**
   * The blocks of a text that has ended, read as a whole: a link's definition may stand below its use, and a line may
   * belong elsewhere than it seemed. Blocks that say the same stay the same. Takes some milliseconds per 40 KB.
   */
  readWhole(text: string): readonly MarkdownBlock[] {
    const known = new Map(this.#closed.map((block) => [block.start, block]));
    return blocksOf(lex(withoutReturns(text), {}), 0).map((block) => {
      const same = known.get(block.start);
      return same && JSON.stringify(same.token) === JSON.stringify(block.token) ? same : block;
    });
  }

  /** Whether anything was closed, so that reading the whole may give something else. */
  get hasClosed(): boolean {
    return this.#closed.length > 0;
  }

  #reset(): void {
    this.#closedText = "";
    this.#closed = NO_BLOCKS;
    this.#definitions = {};
    this.#slowReads = 0;
  }

  #close(tokens: readonly Token[], tail: string): void {
    if (tokens.length === 0) return;
    for (const token of tokens)
      if (token.type === "def")
        this.#definitions = { [token.tag as string]: token as Tokens.Def, ...this.#definitions };
    // A part of a string keeps the whole string alive: each closed block is read from a copy of its own.
    const own = tokens.map(({ raw }) => lex(ownCopy(raw), this.#definitions)[0]!);
    const length = tokens.reduce((sum, { raw }) => sum + raw.length, 0);
    this.#closed = [...this.#closed, ...blocksOf(own, this.#closedText.length)];
    this.#closedText = ownCopy(this.#closedText + tail.slice(0, length));
  }
}

function withoutReturns(text: string): string {
  return text.includes("\r") ? text.replace(/\r\n?/g, "\n") : text;
}

/** marked takes quadratic time for long runs without a space (it looks for addresses in them): such a text is shown as it is. */
class BoundedLexer extends Lexer {
  override inlineTokens(src: string, tokens: Token[] = []): Token[] {
    if (!LONG_WORD.test(src)) return super.inlineTokens(src, tokens);
    tokens.push({ type: "escape", raw: src, text: src });
    return tokens;
  }
}

function lex(source: string, definitions: Definitions): TokensList {
  const lexer = new BoundedLexer({ gfm: true });
  lexer.tokens.links = { ...definitions };
  try {
    return lexer.lex(source);
  } catch {
    // Nested deeper than the reader can follow.
    return Object.assign(source === "" ? [] : [asItIs(source)], { links: {} });
  }
}

/** A block of text without any marks. */
function asItIs(raw: string): Tokens.Paragraph {
  return { type: "paragraph", raw, text: raw, tokens: [{ type: "escape", raw, text: raw }] };
}

/**
 * How many of the first tokens nothing that comes later can change: all before the last one, if the line that makes the
 * last one what it is (a table's second, else the first) is complete; else it may turn out to go on with what is before.
 */
function settledTokens(tokens: readonly Token[]): number {
  let last = tokens.length - 1;
  while (last >= 0 && tokens[last]!.type === "space") last--;
  if (last < 0) return 0;
  const { type, raw } = tokens[last]!;
  if (raw.split("\n").length > (type === "table" ? 2 : 1)) return last;
  let before = last - 1;
  while (before >= 0 && tokens[before]!.type === "space") before--;
  return Math.max(before, 0);
}

function blocksOf(tokens: readonly Token[], from: number): MarkdownBlock[] {
  let start = from;
  const blocks: MarkdownBlock[] = [];
  for (const token of tokens) {
    if (token.type !== "space" && token.type !== "def") blocks.push({ start, raw: token.raw, token });
    start += token.raw.length;
  }
  return blocks;
}

/** The same text in memory of its own. */
function ownCopy(text: string): string {
  return ` ${text}`.slice(1);
}

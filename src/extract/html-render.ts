/**
 * HTML as plain text, in one pass over the tags and without a tree: small in memory, and linear in time but for the parser's
 * list of open elements, which it moves for each that opens and searches for each that closes. What that may cost is bounded.
 */
import { Parser } from "htmlparser2";
import { UnreadablePage } from "./unreadable-page.js";

export interface RenderedHtml {
  /** At most the characters asked for. */
  readonly text: string;
  readonly truncated: boolean;
  /** Of the title element; empty without one. */
  readonly title: string;
  /** Elements seen, and the deepest nesting of them. */
  readonly elements: number;
  readonly depth: number;
}

const set = (names: string): ReadonlySet<string> => new Set(names.split(" "));
const SKIPPED = set("script style noscript template svg math iframe object nav button select head");
const BLOCKS = set(
  "address article aside blockquote dd details div dl dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 header hr li main ol p pre section summary table tr ul",
);

/** Fed to the parser at a time: the cost is looked at in between. */
const PIECE_CHARS = 16 * 1024;
/** Tags times the elements open around them: a second's work or two. A page of 50 MB that is 20 deep takes a tenth of it. */
const MAX_STEPS = 1_000_000_000;

/**
 * Renders a page or a part of one: headings with "#", list items with "-", cells with "|", `pre` as it stands.
 * Throws UnreadablePage when it is nested so deeply that reading it would take too long.
 */
export function renderHtml(html: string, maxChars: number): RenderedHtml {
  const out = new TextBuilder(maxChars);
  let title = "";
  let elements = 0;
  let depth = 0;
  let deepest = 0;
  let skippedFrom = Infinity; // depth of the element whose content is left out
  let preFrom = Infinity;
  let titleFrom = Infinity;
  const parser = new Parser(
    {
      onopentag(name, attributes) {
        elements++;
        deepest = Math.max(deepest, ++depth);
        if (name === "title" && title === "") titleFrom = Math.min(titleFrom, depth);
        if (depth > skippedFrom) return;
        if (SKIPPED.has(name) || "hidden" in attributes || attributes["aria-hidden"] === "true") {
          skippedFrom = depth;
          return;
        }
        if (name === "pre") preFrom = Math.min(preFrom, depth);
        openElement(out, name);
      },
      ontext(text) {
        if (depth >= titleFrom) title += title.length < 1_000 ? text : "";
        else if (depth >= skippedFrom) return;
        else if (depth >= preFrom) out.verbatim(text);
        else out.text(text);
      },
      onclosetag(name) {
        const skipped = depth >= skippedFrom;
        if (depth <= titleFrom) titleFrom = Infinity;
        if (depth <= skippedFrom) skippedFrom = Infinity;
        if (depth <= preFrom) preFrom = Infinity;
        if (!skipped && BLOCKS.has(name)) out.close();
        depth--;
      },
    },
    { decodeEntities: true, lowerCaseTags: true },
  );
  let steps = 0;
  for (let at = 0; at < html.length; at += PIECE_CHARS) {
    const piece = html.slice(at, at + PIECE_CHARS);
    const openBefore = depth;
    parser.write(piece);
    steps += countTags(piece) * Math.max(openBefore, depth);
    if (steps > MAX_STEPS) throw new UnreadablePage("its elements are nested too deeply");
  }
  parser.end();
  return { ...out.finish(), title, elements, depth: deepest };
}

function countTags(piece: string): number {
  let count = 0;
  for (let at = piece.indexOf("<"); at >= 0; at = piece.indexOf("<", at + 1)) count++;
  return count;
}

function openElement(out: TextBuilder, name: string): void {
  if (name === "br") out.line();
  else if (name === "td" || name === "th") out.cell();
  else if (name === "li") out.item("- ");
  else if (name === "tr") out.item("");
  else if (BLOCKS.has(name)) out.open();
  if (/^h[1-6]$/.test(name)) out.prefix(`${"#".repeat(Number(name[1]))} `);
}

/** Joins pieces to text: runs of white space become one space, blocks are a blank line apart, items and rows a line. */
class TextBuilder {
  readonly #maxChars: number;
  readonly #parts: string[] = [];
  #length = 0;
  #gap: "" | " " | "\n" | "\n\n" = "";
  #prefix = "";
  #rowStarts = false;

  constructor(maxChars: number) {
    this.#maxChars = maxChars;
  }

  text(raw: string): void {
    const words = raw.replace(/\s+/g, " ");
    if (words === "" || words === " ") {
      if (words === " " && this.#gap === "") this.#gap = " ";
      return;
    }
    if (words.startsWith(" ") && this.#gap === "") this.#gap = " ";
    this.#push(words.trim());
    this.#gap = words.endsWith(" ") ? " " : "";
  }

  verbatim(raw: string): void {
    const text = raw.replace(/\r\n?/g, "\n");
    this.#push(this.#gap === "" ? text : text.replace(/^\n/, ""));
  }

  /** A block begins; directly inside a list item or heading it goes on with that one's line. */
  open(): void {
    if (this.#prefix === "") this.#gap = "\n\n";
  }

  close(): void {
    this.#gap = "\n\n";
    this.#prefix = "";
  }

  /** A list item or table row: on the next line. */
  item(prefix: string): void {
    this.#gap = "\n";
    this.#prefix = prefix;
    this.#rowStarts = true;
  }

  line(): void {
    if (this.#gap !== "\n\n") this.#gap = "\n";
  }

  cell(): void {
    if (!this.#rowStarts) {
      this.#gap = " ";
      this.#prefix = "| ";
    }
    this.#rowStarts = false;
  }

  prefix(text: string): void {
    this.#prefix = text;
  }

  finish(): { text: string; truncated: boolean } {
    const lines = this.#parts.join("").split("\n");
    const text = lines
      .map((line) => line.trimEnd())
      .join("\n")
      .trim();
    return { text: text.slice(0, this.#maxChars), truncated: this.#length > this.#maxChars };
  }

  #push(text: string): void {
    if (text === "" || this.#length > this.#maxChars) return;
    const gap = this.#parts.length === 0 ? "" : this.#gap;
    const piece = gap + this.#prefix + text;
    this.#parts.push(piece);
    this.#length += piece.length;
    this.#prefix = "";
    this.#gap = "";
  }
}

/** The readable text of an HTML page. Runs in the extraction thread: parsing is slow on large pages and may hang. */
import { Readability } from "@mozilla/readability";
import { parseHTML } from "linkedom";
import type { ExtractedText } from "./extracted-text.js";

/** Pages with more elements are not searched for an article: the whole body is taken. */
const MAX_ARTICLE_ELEMENTS = 30_000;
const MAX_ARTICLE_DEPTH = 200;
/** An article shorter than this, of a page that has much more, was probably not the page's content. */
const MIN_ARTICLE_CHARS = 250;
const MAX_ARTICLE_SHARE = 10;

/**
 * Extracts title, text and what the page says of its author. Text has one blank line between blocks and no markup.
 * `onBody` gets the text of the whole page first: looking for the article in it can take far longer than reading it.
 */
export function htmlToText(
  html: string,
  maxChars: number,
  onBody: (body: ExtractedText) => void,
): ExtractedText {
  const document = parse(html);
  const title = clean(document.querySelector("title")?.textContent ?? "");
  const body: ExtractedText = {
    title,
    ...renderText(document.body ?? document.documentElement, maxChars),
    metadata: {},
  };
  if (isUnfitForArticle(document)) return body;
  onBody(body);
  const article = readArticle(document);
  const found = article?.content ? renderText(article.content, maxChars) : undefined;
  const metadata = article ? describe(article) : {};
  const enough =
    found &&
    (found.text.length >= MIN_ARTICLE_CHARS || found.text.length * MAX_ARTICLE_SHARE >= body.text.length);
  const chosen = enough && found.text !== "" ? found : body;
  return {
    title: clean(article?.title ?? "") || title,
    text: chosen.text,
    truncated: chosen.truncated,
    metadata,
  };
}

function describe(article: Article): Record<string, string> {
  const facts = {
    author: article.byline,
    site_name: article.siteName,
    published: article.publishedTime,
    language: article.lang,
  };
  return Object.fromEntries(
    Object.entries(facts).flatMap(([name, value]) => (value ? [[name, clean(value)]] : [])),
  );
}

/** The article reader's time grows with the cube of the depth: such pages are no articles anyway. */
function isUnfitForArticle(document: Document): boolean {
  if (document.getElementsByTagName("*").length > MAX_ARTICLE_ELEMENTS) return true;
  let depth = 0;
  for (let node: Node | null = document.documentElement; node;) {
    if (depth > MAX_ARTICLE_DEPTH) return true;
    if (node.firstChild) {
      node = node.firstChild;
      depth++;
      continue;
    }
    while (node && !node.nextSibling) {
      node = node.parentNode;
      depth--;
    }
    node = node?.nextSibling ?? null;
  }
  return false;
}

function parse(html: string): Document {
  const whole = /<(html|body|head)[\s>]/i.test(html.slice(0, 100_000))
    ? html
    : `<html><head></head><body>${html}</body></html>`;
  return parseHTML(whole).document as unknown as Document;
}

type Article = NonNullable<ReturnType<Readability<Element>["parse"]>>;

function readArticle(document: Document): Article | undefined {
  try {
    return (
      new Readability<Element>(document, {
        serializer: (node) => node as Element,
        maxElemsToParse: MAX_ARTICLE_ELEMENTS,
      }).parse() ?? undefined
    );
  } catch {
    return undefined; // a page that the reader cannot cope with still has its body
  }
}

const SKIPPED = new Set([
  "SCRIPT",
  "STYLE",
  "NOSCRIPT",
  "TEMPLATE",
  "SVG",
  "IFRAME",
  "OBJECT",
  "HEAD",
  "NAV",
  "BUTTON",
  "SELECT",
]);
const BLOCKS = new Set(
  "ADDRESS ARTICLE ASIDE BLOCKQUOTE DD DETAILS DIV DL DT FIELDSET FIGCAPTION FIGURE FOOTER FORM H1 H2 H3 H4 H5 H6 HEADER HR LI MAIN OL P PRE SECTION SUMMARY TABLE TR UL".split(
    " ",
  ),
);
const TEXT_NODE = 3;
const ELEMENT_NODE = 1;

/** Walks the tree without recursion, so that no depth of nesting can overflow the stack. */
function renderText(root: Node, maxChars: number): { text: string; truncated: boolean } {
  const out = new TextBuilder(maxChars);
  let node: Node | null = root;
  while (node && !out.full) {
    const name: string = node.nodeName.toUpperCase();
    let descend: boolean = node.nodeType === ELEMENT_NODE && !SKIPPED.has(name);
    if (node.nodeType === TEXT_NODE) out.text(node.textContent ?? "");
    else if (descend) descend = openElement(out, node as Element, name);
    const child: Node | null = descend ? node.firstChild : null;
    if (child) {
      node = child;
      continue;
    }
    if (descend) closeElement(out, name);
    while (node && node !== root && !node.nextSibling) {
      node = node.parentNode;
      if (node) closeElement(out, node.nodeName.toUpperCase());
    }
    node = !node || node === root ? null : node.nextSibling;
  }
  return out.finish();
}

/** false: the element's children are of no interest. */
function openElement(out: TextBuilder, element: Element, name: string): boolean {
  if (name === "BR") {
    out.line();
    return false;
  }
  if (name === "TD" || name === "TH") out.cell();
  else if (name === "LI") out.item("- ");
  else if (name === "TR") out.item("");
  else if (BLOCKS.has(name)) out.open();
  if (/^H[1-6]$/.test(name)) out.prefix(`${"#".repeat(Number(name[1]))} `);
  if (name === "PRE") {
    out.verbatim(element.textContent ?? "");
    return false;
  }
  return element.getAttribute("aria-hidden") !== "true" && !element.hasAttribute("hidden");
}

function closeElement(out: TextBuilder, name: string): void {
  if (BLOCKS.has(name)) out.close();
}

/** Joins pieces to text: runs of white space become one space, blocks are apart by a blank line (list items, rows: a line). */
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

  get full(): boolean {
    return this.#length > this.#maxChars;
  }

  text(raw: string): void {
    const words = raw.replace(/[\s\u00a0]+/g, " ");
    if (words === "" || words === " ") {
      if (words === " " && this.#gap === "") this.#gap = " ";
      return;
    }
    if (words.startsWith(" ") && this.#gap === "") this.#gap = " ";
    this.#push(words.trim());
    this.#gap = words.endsWith(" ") ? " " : "";
  }

  verbatim(raw: string): void {
    const text = raw
      .replace(/\r\n?/g, "\n")
      .replace(/^\n{1,100}/, "")
      .trimEnd();
    if (text !== "") this.#push(text);
    this.close();
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
    const text = this.#parts.join("");
    return { text: text.slice(0, this.#maxChars).trim(), truncated: this.full };
  }

  #push(text: string): void {
    const gap = this.#parts.length === 0 ? "" : this.#gap;
    if (gap) this.#parts.push(gap);
    const piece = this.#prefix + text;
    this.#parts.push(piece);
    this.#length += gap.length + piece.length;
    this.#prefix = "";
    this.#gap = "";
  }
}

function clean(text: string): string {
  return text.replace(/\s+/g, " ").trim().slice(0, 1_000);
}

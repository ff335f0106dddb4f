/** The readable text of an HTML page. Runs in the extraction process: parsing is slow on large pages and may hang. */
import { Readability } from "@mozilla/readability";
import { parseHTML } from "linkedom";
import type { ExtractedText } from "./extracted-text.js";
import { renderHtml } from "./html-render.js";

/** Pages with more elements are not searched for an article: a tree of them takes too much memory. */
const MAX_ARTICLE_ELEMENTS = 30_000;
/** Nor are deeper ones: the article reader's time grows with the cube of the depth. */
const MAX_ARTICLE_DEPTH = 200;
/** An article shorter than this, of a page that has ten times as much, was probably not the page's content. */
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
  const page = renderHtml(html, maxChars);
  const body = { title: clean(page.title), text: page.text, truncated: page.truncated, metadata: {} };
  if (page.elements > MAX_ARTICLE_ELEMENTS || page.depth > MAX_ARTICLE_DEPTH) return body;
  onBody(body);
  const article = readArticle(html);
  if (!article) return body;
  const found = renderHtml(article.content ?? "", maxChars);
  const enough =
    found.text.length >= MIN_ARTICLE_CHARS || found.text.length * MAX_ARTICLE_SHARE >= body.text.length;
  const chosen = enough && found.text !== "" ? found : page;
  return {
    title: clean(article.title ?? "") || body.title,
    text: chosen.text,
    truncated: chosen.truncated,
    metadata: describe(article),
  };
}

/** The text of the whole page, in time linear to its length. */
export function pageToText(html: string, maxChars: number): ExtractedText {
  const { title, text, truncated } = renderHtml(html, maxChars);
  return { title: clean(title), text, truncated, metadata: {} };
}

type Article = NonNullable<ReturnType<Readability["parse"]>>;

function readArticle(html: string): Article | undefined {
  try {
    const whole = /<(html|body|head)[\s>]/i.test(html)
      ? html
      : `<html><head></head><body>${html}</body></html>`;
    const document = parseHTML(whole).document as unknown as Document;
    return new Readability(document, { maxElemsToParse: MAX_ARTICLE_ELEMENTS }).parse() ?? undefined;
  } catch {
    return undefined; // a page that the reader cannot cope with still has its body
  }
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

function clean(text: string): string {
  return text.replace(/\s+/g, " ").trim().slice(0, 1_000);
}

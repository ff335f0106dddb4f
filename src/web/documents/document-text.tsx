import { Fragment, useEffect, useMemo, useRef, type ReactNode, type Ref } from "react";
import { MarkdownText } from "./markdown-text.js";

export interface DocumentTextProps {
  readonly text: string;
  /** Of the document: Markdown and pages of the web are drawn, a PDF is shown page by page, all else as it stands. */
  readonly mediaType: string;
  /** Where the text begins in the document, in code points. */
  readonly offset: number;
  /** The passage to mark, in code points of the document. No beginning = none, no end = the paragraph. */
  readonly from: number | undefined;
  readonly to: number | undefined;
  readonly hasMore: boolean;
}

/** A document's text, with a passage marked and brought into view. */
export function DocumentText({ text, mediaType, offset, from, to, hasMore }: DocumentTextProps) {
  const mark = useRef<HTMLElement>(null);
  const [start, end] = useMemo(() => placeOf(text, offset, from, to), [text, offset, from, to]);
  const hasPassage = end > start;
  useEffect(() => {
    mark.current?.scrollIntoView({ block: "center" });
  }, [hasPassage, offset, from, to]); // not when more of the text has come
  const kind = kindOf(mediaType);
  // What begins in the middle begins with a whole block.
  const cut = kind === "markdown" && offset > 0 ? blockStart(text, start) : 0;
  return (
    <div className={kind === "markdown" ? "document-text turn is-drawn" : "document-text"}>
      {offset > 0 && <p className="cut">The text before this is not shown.</p>}
      {kind === "markdown" ? (
        <MarkdownText
          text={text.slice(cut)}
          start={start - cut}
          end={end - cut}
          hasMore={hasMore}
          markRef={mark}
        />
      ) : (
        piecesOf(text, kind === "pages").map(({ at, page, length }) => (
          <Fragment key={at}>
            {page !== undefined && <p className="page-line">Page {page}</p>}
            <PlainText text={text} from={at} to={at + length} start={start} end={end} markRef={mark} />
          </Fragment>
        ))
      )}
      {hasMore && <p className="cut">The text goes on.</p>}
    </div>
  );
}

type Kind = "markdown" | "pages" | "plain";

function kindOf(mediaType: string): Kind {
  switch (mediaType.split(";", 1)[0]) {
    case "text/markdown":
    case "text/x-markdown":
    case "text/html":
    case "application/xhtml+xml":
      return "markdown";
    case "application/pdf":
      return "pages";
    default:
      return "plain";
  }
}

/** The first block that begins in the text, if the passage does not begin before it. */
function blockStart(text: string, passage: number): number {
  const blank = text.indexOf("\n\n") + 2;
  return blank >= 2 && blank <= passage ? blank : 0;
}

/** A piece of text from one place to another, and what of it is marked. */
function PlainText(props: {
  readonly text: string;
  readonly from: number;
  readonly to: number;
  readonly start: number;
  readonly end: number;
  readonly markRef: Ref<HTMLElement>;
}): ReactNode {
  const { text, from, to, start, end, markRef } = props;
  const [markFrom, markTo] = [Math.max(from, Math.min(start, to)), Math.min(to, Math.max(end, from))];
  if (markTo <= markFrom) return text.slice(from, to);
  return (
    <>
      {text.slice(from, markFrom)}
      <mark ref={start >= from ? markRef : undefined} tabIndex={-1}>
        {text.slice(markFrom, markTo)}
      </mark>
      {text.slice(markTo, to)}
    </>
  );
}

interface Piece {
  readonly at: number;
  readonly length: number;
  /** Of a PDF: the page that begins here. */
  readonly page?: string;
}

const PAGE_LINE = /^\[page (\d+) of \d+\]\n?/gm;

/** The text as a whole, or page by page without the lines that name them. */
function piecesOf(text: string, hasPages: boolean): readonly Piece[] {
  if (!hasPages) return [{ at: 0, length: text.length }];
  const lines = [...text.matchAll(PAGE_LINE)];
  const pages = lines.map((line, n): Piece => {
    const at = line.index + line[0].length;
    return { at, length: (lines[n + 1]?.index ?? text.length) - at, page: line[1]! };
  });
  const before = lines[0]?.index ?? text.length;
  return before > 0 ? [{ at: 0, length: before }, ...pages] : pages;
}

const LONGEST_PARAGRAPH = 600;

/** Where the passage is in the text, in the string's own units. */
function placeOf(text: string, offset: number, from: number | undefined, to: number | undefined) {
  if (from === undefined) return [0, 0] as const;
  const start = unitsOf(text, from - offset);
  if (to !== undefined) return [start, unitsOf(text, to - offset)] as const;
  const paragraph = text.slice(start, start + LONGEST_PARAGRAPH);
  const length = paragraph.indexOf("\n", 1);
  return [start, start + (length < 0 ? paragraph.length : length)] as const;
}

/** Where a code point stands in a string's own units. */
function unitsOf(text: string, codePoints: number): number {
  let units = 0;
  for (let i = 0; i < codePoints && units < text.length; i += 1)
    units += text.codePointAt(units)! > 0xffff ? 2 : 1;
  return units;
}

/** Documents as a list that opens them. */
import type { ReactNode } from "react";
import type { Document } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { hostOf, safeUrl } from "./markdown/safe-url.js";
import { OutsideLink } from "./markdown/outside-link.js";
import { useTurnActions } from "./turn-actions.js";

/** Characters of a passage that are shown in a list. */
const SNIPPET_CHARS = 220;

/** One document: its number if it has one, its title, where it is from, and on demand the passage. */
export function DocumentItem(props: {
  readonly document: Document;
  /** The number in the answer; undefined = it is not cited there. */
  readonly number?: number;
  readonly withSnippet?: boolean;
}): ReactNode {
  const { document, number, withSnippet = false } = props;
  const { onOpenCitation, onOpenDocument } = useTurnActions();
  const title = document.title || document.url || document.documentId;
  const href = safeUrl(document.url);
  const open =
    number !== undefined && onOpenCitation
      ? () => onOpenCitation(document, number)
      : onOpenDocument && (() => onOpenDocument(document));
  return (
    <li className="document">
      {number !== undefined && <span className="document-number">{number}</span>}
      {open ? (
        <button type="button" className="document-title" onClick={open}>
          {title}
        </button>
      ) : href !== undefined && document.url ? (
        <OutsideLink href={href}>{title}</OutsideLink>
      ) : (
        <span className="document-title">{title}</span>
      )}
      {placeOf(document) && <span className="document-place">{placeOf(document)}</span>}
      {withSnippet && document.snippet && <p className="document-snippet">{shorten(document.snippet)}</p>}
    </li>
  );
}

/** Where a document is from, as far as that helps: its site, its page. */
export function placeOf({ url, source, page }: Document): string {
  const where = hostOf(url) || (source === "upload" ? "" : source);
  return page > 0 ? `${where ? `${where}, ` : ""}page ${page}` : where;
}

/** The beginning of a passage on one line. */
export function shorten(text: string): string {
  const flat = text
    .slice(0, 2 * SNIPPET_CHARS)
    .replace(/\s+/g, " ")
    .trim();
  return flat.length > SNIPPET_CHARS ? `${flat.slice(0, SNIPPET_CHARS).trimEnd()}…` : flat;
}

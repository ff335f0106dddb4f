/**
 * Inline Markdown as React elements. Nothing a model writes becomes HTML: tags are shown as text, images as links, and
 * links lead only to safe addresses.
 */
import type { ReactNode } from "react";
import type { MarkedToken, Token, Tokens } from "marked";
import { CitationChip, CitedText } from "../citation-chip.js";
import { decodeEntities } from "./entities.js";
import { OutsideLink } from "./outside-link.js";
import { safeUrl } from "./safe-url.js";

/** A marker whose document has an address: `[[3]](https://...)`. */
const CITATION = /^\[(\d{1,9})\]$/;

/** The elements of inline tokens. */
export function renderInline(tokens: readonly Token[] | undefined): ReactNode {
  return tokens?.map((token, i) => <Inline key={i} token={token} />);
}

function Inline({ token: anyToken }: { readonly token: Token }): ReactNode {
  const token = anyToken as MarkedToken;
  switch (token.type) {
    case "text":
      return token.tokens ? renderInline(token.tokens) : <CitedText text={decodeEntities(token.text)} />;
    case "escape":
      return token.text;
    case "strong":
      return <strong>{renderInline(token.tokens)}</strong>;
    case "em":
      return <em>{renderInline(token.tokens)}</em>;
    case "del":
      return <del>{renderInline(token.tokens)}</del>;
    case "codespan":
      return <code>{token.text}</code>;
    case "br":
      return <br />;
    case "link":
      return <Link link={token} />;
    case "image":
      return <ImageLink image={token} />;
    case "html":
      return /^<br\s*\/?>$/i.test(token.raw) ? <br /> : token.raw;
    case "checkbox":
      return (
        <input
          type="checkbox"
          checked={token.checked}
          disabled
          aria-label={token.checked ? "done" : "to do"}
        />
      );
    default:
      return anyToken.raw;
  }
}

function Link({ link }: { readonly link: Tokens.Link }): ReactNode {
  const citation = CITATION.exec(link.text);
  if (citation) return <CitationChip number={Number(citation[1])} href={safeUrl(link.href)} />;
  const href = safeUrl(link.href);
  const content = link.autolink ? link.text : renderInline(link.tokens);
  if (href === undefined) return content;
  return (
    <OutsideLink href={href} title={link.title ?? undefined}>
      {content}
    </OutsideLink>
  );
}

/** An image is not fetched: whoever serves it would learn who reads. It is a link that says what it shows. */
function ImageLink({ image }: { readonly image: Tokens.Image }): ReactNode {
  const text = `Image: ${decodeEntities(image.text) || "without a description"}`;
  const href = safeUrl(image.href);
  return href === undefined ? text : <OutsideLink href={href}>{text}</OutsideLink>;
}

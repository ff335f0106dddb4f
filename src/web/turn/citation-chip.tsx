/** Numbers in a text that open their source. */
import { Fragment, useContext, type ReactNode } from "react";
import { CitationsContext, useTurnActions } from "./turn-actions.js";
import { useCitationCard } from "./citation-card.js";
import { OutsideLink } from "./markdown/outside-link.js";

/** A marker whose document has no address: `[3]`, but only where the answer has such a source. */
const MARKER = /\[(\d{1,9})\]/g;

/** A number that opens its source. Without a known document it leads to its address, without one it is text. */
export function CitationChip(props: {
  readonly number: number;
  readonly href?: string | undefined;
}): ReactNode {
  const { number, href } = props;
  const document = useContext(CitationsContext).get(number);
  const { onOpenCitation } = useTurnActions();
  const open = (): void => document && onOpenCitation?.(document, number);
  const [card, trigger] = useCitationCard(document, open);
  if (document && onOpenCitation) {
    const title = document.title || document.url || document.documentId;
    return (
      <sup className="cite">
        <button type="button" aria-label={`Source ${number}: ${title}`} onClick={open} {...trigger}>
          {number}
        </button>
        {card}
      </sup>
    );
  }
  if (href === undefined) return `[${number}]`;
  return (
    <sup className="cite">
      <OutsideLink href={href}>{number}</OutsideLink>
    </sup>
  );
}

/** Text in which the numbers of known sources are chips. */
export function CitedText({ text }: { readonly text: string }): ReactNode {
  return /\[\d/.test(text) ? <TextWithMarkers text={text} /> : text;
}

function TextWithMarkers({ text }: { readonly text: string }): ReactNode {
  const citations = useContext(CitationsContext);
  const parts: ReactNode[] = [];
  let end = 0;
  for (const match of text.matchAll(MARKER)) {
    const number = Number(match[1]);
    if (!citations.has(number)) continue;
    parts.push(<Fragment key={end}>{text.slice(end, match.index)}</Fragment>);
    parts.push(<CitationChip key={`at-${match.index}`} number={number} />);
    end = match.index + match[0].length;
  }
  return parts.length === 0 ? text : [...parts, text.slice(end)];
}

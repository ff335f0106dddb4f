import { useEffect, useMemo, useRef } from "react";

export interface DocumentTextProps {
  readonly text: string;
  /** Where the text begins in the document, in code points. */
  readonly offset: number;
  /** The passage to mark, in code points of the document. No beginning = none, no end = the paragraph. */
  readonly from: number | undefined;
  readonly to: number | undefined;
  readonly hasMore: boolean;
}

/** A document's plain text, with a passage marked and brought into view. */
export function DocumentText({ text, offset, from, to, hasMore }: DocumentTextProps) {
  const mark = useRef<HTMLElement>(null);
  const [start, end] = useMemo(() => placeOf(text, offset, from, to), [text, offset, from, to]);
  const hasPassage = end > start;
  useEffect(() => {
    mark.current?.scrollIntoView({ block: "center" });
  }, [hasPassage, offset, from, to]); // not when more of the text has come
  return (
    <div className="document-text">
      {offset > 0 && <p className="cut">The text before this is not shown.</p>}
      {text.slice(0, start)}
      {hasPassage && (
        <mark ref={mark} tabIndex={-1}>
          {text.slice(start, end)}
        </mark>
      )}
      {text.slice(end)}
      {hasMore && <p className="cut">The text goes on.</p>}
    </div>
  );
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

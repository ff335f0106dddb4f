import { useEffect, useMemo, useRef } from "react";

export interface DocumentTextProps {
  readonly text: string;
  /** The passage to show, in code points; undefined = from the beginning. */
  readonly from: number | undefined;
  readonly to: number | undefined;
}

/** Letters that are drawn around the passage; the whole text of a large document would stop the page. */
const AROUND = 60_000;

/** A document's plain text, with a passage marked and brought into view. */
export function DocumentText({ text, from, to }: DocumentTextProps) {
  const mark = useRef<HTMLElement>(null);
  const parts = useMemo(() => cut(text, from, to), [text, from, to]);
  useEffect(() => {
    mark.current?.scrollIntoView({ block: "center" });
  }, [parts]);
  return (
    <div className="document-text">
      {parts.isCutBefore && <p className="cut">The text before this is not shown.</p>}
      {parts.before}
      {parts.passage && (
        <mark ref={mark} tabIndex={-1}>
          {parts.passage}
        </mark>
      )}
      {parts.after}
      {parts.isCutAfter && <p className="cut">The text goes on.</p>}
    </div>
  );
}

function cut(text: string, from: number | undefined, to: number | undefined) {
  const start = from === undefined ? 0 : unitsOf(text, from);
  const end = from === undefined ? 0 : Math.max(start, unitsOf(text, to ?? from));
  const first = Math.max(0, start - AROUND);
  const last = Math.min(text.length, end + AROUND * 2);
  return {
    before: text.slice(first, start),
    passage: text.slice(start, end),
    after: text.slice(end, last),
    isCutBefore: first > 0,
    isCutAfter: last < text.length,
  };
}

/** Where a code point stands in a string's own units. */
function unitsOf(text: string, codePoints: number): number {
  let units = 0;
  for (let i = 0; i < codePoints && units < text.length; i += 1)
    units += text.codePointAt(units)! > 0xffff ? 2 : 1;
  return units;
}

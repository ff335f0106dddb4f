/** A part of a document's Markdown, drawn as answers are, with the blocks of a passage marked. */
import { useMemo, useState, type ReactNode, type Ref } from "react";
import type { Token, Tokens } from "marked";
import { Block } from "../turn/markdown/block.js";
import { MarkdownReader, type MarkdownBlock } from "../turn/markdown/markdown-reader.js";
import "../turn/turn.css";

export interface MarkdownTextProps {
  readonly text: string;
  /** The passage in the text, in the string's own units; empty = none. */
  readonly start: number;
  readonly end: number;
  readonly hasMore: boolean;
  readonly markRef: Ref<HTMLElement>;
}

/** Draws Markdown. Blocks that are far from the view are laid out when they come near it. */
export function MarkdownText({ text, start, end, hasMore, markRef }: MarkdownTextProps): ReactNode {
  const [reader] = useState(() => new MarkdownReader());
  const blocks = useMemo(() => reader.read(text, hasMore), [reader, text, hasMore]);
  const pieces = useMemo(() => blocks.flatMap((block) => itemsAt(block, start, end)), [blocks, start, end]);
  const isMarked = ({ start: at, raw }: MarkdownBlock): boolean =>
    at < end && at + raw.trimEnd().length > start;
  const from = end > start ? pieces.findIndex(isMarked) : -1;
  const to = from < 0 ? -1 : pieces.findLastIndex(isMarked) + 1;
  const draw = (some: readonly MarkdownBlock[]): ReactNode =>
    some.map((piece) => <Block key={piece.start} token={piece.token} />);
  if (from < 0) return <div className="md">{draw(pieces)}</div>;
  return (
    <div className="md">
      {draw(pieces.slice(0, from))}
      <mark ref={markRef} tabIndex={-1}>
        {draw(pieces.slice(from, to))}
      </mark>
      {draw(pieces.slice(to))}
    </div>
  );
}

/** A list of which a part is marked, as a list for each item; every other block as it is. */
function itemsAt(block: MarkdownBlock, start: number, end: number): readonly MarkdownBlock[] {
  const { start: at, raw, token } = block;
  const isMet = end > start && at < end && at + raw.length > start;
  if (!isMet || !isList(token) || (start <= at && end >= at + raw.trimEnd().length)) return [block];
  let next = at;
  return token.items.map((item, index) => {
    const list = {
      ...token,
      raw: item.raw,
      items: [item],
      start: token.ordered ? Number(token.start) + index : token.start,
    };
    const piece = { start: next, raw: item.raw, token: list };
    next += item.raw.length;
    return piece;
  });
}

function isList(token: Token): token is Tokens.List {
  return token.type === "list";
}

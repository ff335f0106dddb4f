/** A text in Markdown that may still grow. */
import { memo, useEffect, useMemo, useState, type ReactNode } from "react";
import { Block } from "./block.js";
import { MarkdownReader, type MarkdownBlock } from "./markdown-reader.js";

/** Draws Markdown. `open` says that more may come: the open end is then completed for display. */
export const Markdown = memo(function Markdown(props: {
  readonly text: string;
  readonly open?: boolean;
}): ReactNode {
  const { text, open = false } = props;
  return (
    <div className={open ? "md is-open" : "md"}>
      {useBlocks(text, open).map(({ start, token }) => (
        <Block key={start} token={token} />
      ))}
    </div>
  );
});

/** The blocks of a text; once it has ended, and when there is time, those of the text read as a whole. */
function useBlocks(text: string, open: boolean): readonly MarkdownBlock[] {
  const [reader] = useState(() => new MarkdownReader());
  const [whole, setWhole] = useState<{ readonly text: string; readonly blocks: readonly MarkdownBlock[] }>();
  const blocks = useMemo(() => reader.read(text, open), [reader, text, open]);
  useEffect(() => {
    if (open || !reader.hasClosed) return undefined;
    return whenIdle(() => setWhole({ text, blocks: reader.readWhole(text) }));
  }, [reader, text, open]);
  return !open && whole?.text === text ? whole.blocks : blocks;
}

/** Runs something when the browser has nothing better to do; returns what calls it off. */
function whenIdle(run: () => void): () => void {
  if (typeof requestIdleCallback !== "function") {
    const timer = setTimeout(run, 200);
    return () => clearTimeout(timer);
  }
  const id = requestIdleCallback(run, { timeout: 2_000 });
  return () => cancelIdleCallback(id);
}

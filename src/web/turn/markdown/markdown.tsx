/** A text in Markdown that may still grow. */
import { memo, useMemo, useState, type ReactNode } from "react";
import { Block } from "./block.js";
import { MarkdownReader } from "./markdown-reader.js";

/** Draws Markdown. `open` says that more may come: the open end is then completed for display. */
export const Markdown = memo(function Markdown(props: {
  readonly text: string;
  readonly open?: boolean;
}): ReactNode {
  const { text, open = false } = props;
  const [reader] = useState(() => new MarkdownReader());
  const blocks = useMemo(() => reader.read(text, open), [reader, text, open]);
  return (
    <div className={open ? "md is-open" : "md"}>
      {blocks.map(({ start, token }) => (
        <Block key={start} token={token} />
      ))}
    </div>
  );
});

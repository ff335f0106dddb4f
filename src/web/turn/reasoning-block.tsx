/** What the model thought before it spoke. */
import { memo, type ReactNode } from "react";
import type { TextGroup } from "../../client/view.js";
import { Disclosure } from "./disclosure.js";
import { Elapsed, toldDuration } from "./duration.js";
import { Markdown } from "./markdown/markdown.js";

/** Characters of the newest thought that are shown while the block is closed. */
const PREVIEW_CHARS = 160;

/** "Thought for 3.2 s", with the text behind it; while it lasts, a timer and the newest line. */
export const ReasoningBlock = memo(function ReasoningBlock({
  group,
}: {
  readonly group: TextGroup;
}): ReactNode {
  return (
    <Disclosure
      className={group.open ? "reasoning is-running" : "reasoning"}
      summary={
        <>
          <span className="disclosure-title">{title(group)}</span>
          <Elapsed sinceMs={group.openedAtMs} />
          {group.open && <span className="reasoning-preview">{newestLine(group.text)}</span>}
        </>
      }
    >
      {() => (
        <>
          {group.text && <Markdown text={group.text} open={group.open} />}
          {group.redacted && <p className="hint">The provider keeps a part of this to itself.</p>}
          {!group.text && !group.redacted && <p className="hint">No text yet.</p>}
        </>
      )}
    </Disclosure>
  );
});

function title({ open, durationMs }: TextGroup): string {
  if (open) return "Thinking";
  const time = toldDuration(durationMs);
  return time ? `Thought for ${time}` : "Thought";
}

function newestLine(text: string): string {
  const end = text.slice(-2 * PREVIEW_CHARS).trimEnd();
  return end
    .slice(end.lastIndexOf("\n") + 1)
    .slice(-PREVIEW_CHARS)
    .replace(/[*_`#]/g, "");
}

/** The calls of one step: one card, or tabs when there are several. */
import { memo, useId, useState, type KeyboardEvent, type ReactNode } from "react";
import { callStatusWords, type ToolGroup as ToolGroupView } from "../../client/view.js";
import { isRunning, StatusDot, ToolCard, type RenderGroups } from "./tool-card.js";

/** Draws the calls of one step. Arrow keys move between tabs. */
export const ToolGroup = memo(function ToolGroup(props: {
  readonly group: ToolGroupView;
  readonly renderNested: RenderGroups;
}): ReactNode {
  const { group, renderNested } = props;
  const [chosen, setChosen] = useState<string>();
  const id = useId();
  const { calls } = group;
  const active = calls.find(({ key }) => key === chosen) ?? calls.find(isRunning) ?? calls[0];
  if (!active) return null;
  if (calls.length === 1) return <ToolCard call={active} renderNested={renderNested} />;

  const move = (event: KeyboardEvent<HTMLElement>): void => {
    const at = calls.indexOf(active);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: calls.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const next = calls[(to + calls.length) % calls.length]!;
    setChosen(next.key);
    event.currentTarget.querySelector<HTMLElement>(`[data-call="${CSS.escape(next.key)}"]`)?.focus();
  };
  return (
    <div className="tool-group">
      <div role="tablist" aria-label={`${calls.length} tool calls`} onKeyDown={move}>
        {calls.map((call) => (
          <button
            key={call.key}
            type="button"
            role="tab"
            data-call={call.key}
            id={`${id}-${call.key}`}
            aria-selected={call === active}
            aria-controls={`${id}-panel`}
            tabIndex={call === active ? 0 : -1}
            onClick={() => setChosen(call.key)}
          >
            <StatusDot status={call.status} />
            {call.name}
            <span className="hidden-text">{isRunning(call) ? "running" : callStatusWords(call.status)}</span>
          </button>
        ))}
      </div>
      <div role="tabpanel" id={`${id}-panel`} aria-labelledby={`${id}-${active.key}`}>
        <ToolCard key={active.key} call={active} renderNested={renderNested} />
      </div>
    </div>
  );
});

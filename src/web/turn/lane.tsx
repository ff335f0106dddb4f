/** One model's answer: its groups, what goes on, its sources, its end. */
import { memo, useId, type ReactNode } from "react";
import type { LaneView, StatusView } from "../../client/view.js";
import { EndLine } from "./end-line.js";
import { GroupList, Notice } from "./group-list.js";
import { Sources } from "./sources.js";
import { FileButtons } from "./tool-body-view.js";
import { CitationsContext, useTurnActions } from "./turn-actions.js";

/** What the groups themselves show while it goes on. */
const SHOWN_ELSEWHERE: ReadonlySet<StatusView["kind"]> = new Set(["writing", "tool", "reasoning"]);

/** Draws one lane. Beside others it has a heading and can be picked. */
export const Lane = memo(function Lane(props: {
  readonly lane: LaneView;
  readonly isOneOfSeveral: boolean;
  readonly isPicked: boolean;
  /** True if the turn says why it was stopped: then the lane need not say that it was. */
  readonly isStopTold: boolean;
}): ReactNode {
  const { lane, isOneOfSeveral, isPicked, isStopTold } = props;
  const { onPickLane } = useTurnActions();
  const id = useId();
  const canPick = isOneOfSeveral && onPickLane !== undefined && lane.progress !== "running";
  return (
    <article
      className={isPicked ? "lane is-picked" : "lane"}
      aria-labelledby={id}
      aria-busy={lane.progress === "running"}
    >
      <header className="lane-head">
        <h2 id={id} className={isOneOfSeveral ? undefined : "hidden-text"}>
          {lane.modelName}
        </h2>
        {canPick && (
          <button type="button" aria-pressed={isPicked} onClick={() => onPickLane(lane)}>
            {isPicked ? "Goes on from here" : "Go on from here"}
          </button>
        )}
      </header>
      <CitationsContext value={lane.citations}>
        <GroupList groups={lane.groups} />
      </CitationsContext>
      {lane.status && !SHOWN_ELSEWHERE.has(lane.status.kind) && <StatusLine text={lane.status.text} />}
      {lane.notices.map((notice) => (
        <Notice key={notice.key} notice={notice} />
      ))}
      {lane.end && !(isStopTold && lane.end.progress === "stopped") && <EndLine end={lane.end} lane={lane} />}
      <FileButtons files={lane.files} />
      <Sources citations={lane.citations} others={lane.sources} />
    </article>
  );
});

function StatusLine({ text }: { readonly text: string }): ReactNode {
  return (
    <p className="status" aria-hidden="true">
      <span className="status-dots" />
      {text}
    </p>
  );
}

/** A turn as a person sees it: its lanes side by side, what concerns all of them, its end. */
import { memo, type ReactNode } from "react";
import type { ClientCallView, TurnView as View } from "../../client/view.js";
import { EndLine } from "./end-line.js";
import { Notice } from "./group-list.js";
import { Lane } from "./lane.js";
import { LiveRegion } from "./live-region.js";
import { TurnActionsContext, type TurnActions } from "./turn-actions.js";
import "./turn.css";

export interface TurnViewProps {
  readonly view: View;
  /** What the page does when something is clicked. Keep its identity between draws. */
  readonly actions?: TurnActions;
  /** The message of the lane that was picked, when there are several. */
  readonly pickedMessageId?: string | undefined;
}

const NO_ACTIONS: TurnActions = {};

/** Draws a turn, running or stored. Draws again only what changed in the view. */
export const TurnView = memo(function TurnView(props: TurnViewProps): ReactNode {
  const { view, actions = NO_ACTIONS, pickedMessageId } = props;
  const isOneOfSeveral = view.lanes.length > 1;
  return (
    <TurnActionsContext value={actions}>
      <div className="turn">
        {view.notices.map((notice) => (
          <Notice key={notice.key} notice={notice} />
        ))}
        <div className={isOneOfSeveral ? "lanes is-several" : "lanes"}>
          {view.lanes.map((lane) => (
            <Lane
              key={lane.key}
              lane={lane}
              isOneOfSeveral={isOneOfSeveral}
              isStopTold={view.end !== undefined}
              isPicked={isOneOfSeveral && lane.messageId !== "" && lane.messageId === pickedMessageId}
            />
          ))}
        </div>
        {view.clientCalls.map((call) => (
          <ClientCall key={call.key} call={call} />
        ))}
        {view.end && <EndLine end={view.end} />}
        {view.incomplete && (
          <p className="notice is-warning">
            A part of this turn comes from a newer version and is not shown. Reload the page.
          </p>
        )}
        {view.followUps.length > 0 && actions.onFollowUp && (
          <ul className="follow-ups" aria-label="Questions you may ask next">
            {view.followUps.map((text) => (
              <li key={text}>
                <button type="button" onClick={() => actions.onFollowUp?.(text)}>
                  {text}
                </button>
              </li>
            ))}
          </ul>
        )}
        <LiveRegion view={view} />
      </div>
    </TurnActionsContext>
  );
});

function ClientCall({ call }: { readonly call: ClientCallView }): ReactNode {
  return (
    <p className="notice is-info">
      {call.summary || "Something is asked of an app of yours."}
      {call.claimed ? " An app has taken it." : ""}
    </p>
  );
}

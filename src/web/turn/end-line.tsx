/** How a lane or turn ended, with what can be done about it. */
import type { ReactNode } from "react";
import type { EndView, LaneView } from "../../client/view.js";
import { useTurnActions } from "./turn-actions.js";

/** The end in words, and a button where trying again may help. */
export function EndLine({ end, lane }: { readonly end: EndView; readonly lane?: LaneView }): ReactNode {
  const { onRetry } = useTurnActions();
  return (
    <div className={`end is-${end.progress}`}>
      <p>
        <strong>{end.text}</strong> {end.advice}
      </p>
      {end.retryable && onRetry && (
        <button type="button" onClick={() => onRetry(lane)}>
          Try again
        </button>
      )}
    </div>
  );
}

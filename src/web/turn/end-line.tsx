/** How a lane or turn ended, with what can be done about it. */
import type { ReactNode } from "react";
import type { EndView, LaneView } from "../../client/view.js";
import { Icon, type IconName } from "../ui/icon.js";
import { useTurnActions } from "./turn-actions.js";

const ICONS: Readonly<Record<EndView["progress"], IconName>> = {
  stopped: "stop",
  error: "warn",
  interrupted: "warn",
};

/** The end in words, and buttons for what may help. */
export function EndLine({ end, lane }: { readonly end: EndView; readonly lane?: LaneView }): ReactNode {
  const { onRetry, onChooseModel } = useTurnActions();
  return (
    <div className={`end is-${end.progress}`}>
      <Icon name={ICONS[end.progress]} />
      <p>
        <strong>{end.text}</strong> {end.advice}
      </p>
      {end.retryable && onRetry && (
        <button type="button" className="button" onClick={() => onRetry(lane)}>
          Try again
        </button>
      )}
      {end.isForOtherModel && onChooseModel && (
        <button type="button" className="button" onClick={onChooseModel}>
          Choose a model
        </button>
      )}
    </div>
  );
}

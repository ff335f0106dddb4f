/** The answers to a question, and what can be done with them. */
import { memo, useState } from "react";
import type { ExchangeView } from "../../client/live/conversation.js";
import type { LaneView } from "../../client/view.js";
import { TurnView } from "../turn/turn-view.js";
import type { TurnActions } from "../turn/turn-actions.js";
import { IconButton } from "../ui/icon-button.js";
import { VersionSwitcher } from "./version-switcher.js";

export interface AnswerProps {
  readonly exchange: ExchangeView;
  readonly actions: TurnActions;
  /** Something runs in the conversation: no other branch now. */
  readonly isBusy: boolean;
  readonly onSelect: (messageId: string) => void;
  readonly onRegenerate: (messageId: string) => void;
  readonly onRate: (messageId: string, rating: number) => void;
}

export const Answer = memo(function Answer(props: AnswerProps) {
  const { exchange, actions, isBusy, onSelect, onRegenerate, onRate } = props;
  const { turn, selectedId, answerVersions, isRunning } = exchange;
  if (!turn) return isRunning ? <p className="waiting-line">Starting</p> : null;
  const lane = turn.lanes.find(({ messageId }) => messageId === selectedId) ?? turn.lanes[0];
  const rating = exchange.ratings.get(lane?.messageId ?? "") ?? 0;
  const versions = answerVersions.map(({ messageId }) => messageId);
  const current = answerVersions.find(({ turnId }) => turnId === turn.turnId)?.messageId ?? "";
  return (
    <div className={turn.lanes.length > 1 ? "answer is-wide" : "answer"} id={`m-${selectedId}`}>
      <TurnView view={turn} actions={actions} pickedMessageId={selectedId} />
      {!isRunning && lane && (
        <div className="message-actions" role="group" aria-label="Answer">
          {turn.lanes.length > 1 && <span className="actions-of">{lane.modelName}</span>}
          {versions.length > 1 && (
            <VersionSwitcher
              what="answer"
              ids={versions}
              current={current}
              onSelect={onSelect}
              disabled={isBusy}
            />
          )}
          <CopyButton lane={lane} />
          <IconButton
            small
            icon="up"
            label="Good answer"
            aria-pressed={rating === 1}
            onClick={() => onRate(lane.messageId, rating === 1 ? 0 : 1)}
          />
          <IconButton
            small
            icon="down"
            label="Bad answer"
            aria-pressed={rating === -1}
            onClick={() => onRate(lane.messageId, rating === -1 ? 0 : -1)}
          />
          <IconButton
            small
            icon="retry"
            label="Answer again"
            disabled={isBusy}
            onClick={() => onRegenerate(lane.messageId)}
          />
        </div>
      )}
    </div>
  );
});

function CopyButton({ lane }: { readonly lane: LaneView }) {
  const [state, setState] = useState<"idle" | "copied" | "failed">("idle");
  const label = { idle: "Copy the answer", copied: "Copied", failed: "The browser does not allow copying" }[
    state
  ];
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(answerText(lane));
      setState("copied");
    } catch {
      setState("failed"); // no permission, or a page without TLS
    }
    setTimeout(() => setState("idle"), 2_000);
  };
  return (
    <>
      <IconButton
        small
        icon={state === "copied" ? "check" : "copy"}
        label={label}
        onClick={() => void copy()}
      />
      <span className="hidden-text" role="status">
        {state === "idle" ? "" : label}
      </span>
    </>
  );
}

/** The answer as Markdown, without what the model did on the way. */
function answerText({ groups }: LaneView): string {
  return groups
    .flatMap((group) => (group.kind === "answer" || group.kind === "report" ? [group.text] : []))
    .join("\n\n");
}

/** The answers to a question, and what can be done with them. */
import { memo } from "react";
import type { ExchangeView } from "../../client/live/conversation.js";
import { TurnView } from "../turn/turn-view.js";
import type { TurnActions } from "../turn/turn-actions.js";
import { AnswerActions } from "./answer-actions.js";

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
  const { turn, selectedId, isRunning } = exchange;
  if (!turn) return isRunning ? <p className="waiting-line">Starting</p> : null;
  const lane = turn.lanes.find(({ messageId }) => messageId === selectedId) ?? turn.lanes[0];
  return (
    <div className={turn.lanes.length > 1 ? "answer is-wide" : "answer"} id={`m-${selectedId}`}>
      <TurnView view={turn} actions={actions} pickedMessageId={selectedId} />
      {!isRunning && lane && (
        <AnswerActions
          exchange={exchange}
          lane={lane}
          isOneOfSeveral={turn.lanes.length > 1}
          isBusy={isBusy}
          onSelect={onSelect}
          onRegenerate={onRegenerate}
          onRate={onRate}
        />
      )}
    </div>
  );
});

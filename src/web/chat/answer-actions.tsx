/** What can be done with an answer: copy it, rate it, look at how it was made, ask for another one. */
import { useState } from "react";
import type { ExchangeView } from "../../client/live/conversation.js";
import type { LaneView } from "../../client/view.js";
import { IconButton } from "../ui/icon-button.js";
import { useCopy } from "../ui/use-copy.js";
import { AnswerDetails } from "./answer-details.js";
import { answerText } from "./conversation-markdown.js";
import { FeedbackForm } from "./feedback-form.js";
import { VersionSwitcher } from "./version-switcher.js";

export interface AnswerActionsProps {
  readonly exchange: ExchangeView;
  /** The lane that the buttons are about. */
  readonly lane: LaneView;
  readonly isOneOfSeveral: boolean;
  /** Something runs in the conversation: no other branch now. */
  readonly isBusy: boolean;
  readonly onSelect: (messageId: string) => void;
  readonly onRegenerate: (messageId: string) => void;
  readonly onRate: (messageId: string, rating: number) => void;
}

export function AnswerActions(props: AnswerActionsProps) {
  const { exchange, lane, isOneOfSeveral, isBusy, onSelect, onRegenerate, onRate } = props;
  const { answerVersions, turn, ratings, user } = exchange;
  const [areDetailsOpen, setDetailsOpen] = useState(false);
  const [isAsking, setAsking] = useState(false);
  const { messageId } = lane;
  const rating = ratings.get(messageId) ?? 0;
  const rate = (next: number): void => {
    onRate(messageId, rating === next ? 0 : next);
    setAsking(next < 0 && rating !== next);
  };
  return (
    <>
      <div className="message-actions" role="group" aria-label="Answer">
        {isOneOfSeveral && <span className="actions-of">{lane.modelName}</span>}
        {answerVersions.length > 1 && (
          <VersionSwitcher
            what="answer"
            ids={answerVersions.map((version) => version.messageId)}
            current={answerVersions.find(({ turnId }) => turnId === turn?.turnId)?.messageId ?? ""}
            onSelect={onSelect}
            disabled={isBusy}
          />
        )}
        <CopyButton lane={lane} />
        <IconButton small icon="up" label="Good answer" aria-pressed={rating === 1} onClick={() => rate(1)} />
        <IconButton
          small
          icon="down"
          label="Bad answer"
          aria-pressed={rating === -1}
          onClick={() => rate(-1)}
        />
        <IconButton
          small
          icon="retry"
          label="Answer again"
          disabled={isBusy}
          onClick={() => onRegenerate(messageId)}
        />
        <IconButton
          small
          icon="info"
          label="Details of the answer"
          aria-haspopup="dialog"
          onClick={() => setDetailsOpen(true)}
        />
        {!isOneOfSeveral && <span className="answer-facts">{lane.modelName}</span>}
      </div>
      {isAsking && rating === -1 && <FeedbackForm messageId={messageId} onClose={() => setAsking(false)} />}
      {areDetailsOpen && turn && (
        <AnswerDetails
          turnId={turn.turnId}
          messageId={messageId}
          askedAt={user.createTime}
          onClose={() => setDetailsOpen(false)}
        />
      )}
    </>
  );
}

function CopyButton({ lane }: { readonly lane: LaneView }) {
  const [outcome, copy] = useCopy();
  const label =
    outcome === "copied"
      ? "Copied"
      : outcome === "failed"
        ? "The browser does not allow copying"
        : "Copy the answer";
  return (
    <>
      <IconButton
        small
        icon={outcome === "copied" ? "check" : "copy"}
        label={label}
        onClick={() => copy(answerText(lane))}
      />
      <span className="hidden-text" role="status">
        {outcome ? label : ""}
      </span>
    </>
  );
}

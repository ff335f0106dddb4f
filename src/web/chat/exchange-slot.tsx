/** The place of one question and its answers in the column: drawn, or as yet only as high as they will be. */
import { memo } from "react";
import type { ExchangeView } from "../../client/live/conversation.js";
import type { SendPosition } from "../../client/live/outbox.js";
import type { TurnActions } from "../turn/turn-actions.js";
import { Answer } from "./answer.js";
import "./exchange-slot.css";
import { estimatedHeight } from "./exchange-size.js";
import { UserMessage } from "./user-message.js";

export interface ExchangeSlotProps {
  readonly exchange: ExchangeView;
  readonly isDrawn: boolean;
  readonly actions: TurnActions;
  /** Something runs in the conversation: no other branch now. */
  readonly isBusy: boolean;
  readonly onSelect: (messageId: string) => void;
  readonly onRegenerate: (messageId: string) => void;
  readonly onRate: (messageId: string, rating: number) => void;
  readonly onSend: (text: string, position: SendPosition) => void;
}

/** Draws again only what changed in the exchange. */
export const ExchangeSlot = memo(function ExchangeSlot(props: ExchangeSlotProps) {
  const { exchange, isDrawn, actions, isBusy, onSelect, onRegenerate, onRate, onSend } = props;
  const { user, userVersions } = exchange;
  const height = estimatedHeight(exchange);
  return (
    <section
      className="exchange exchange-slot"
      id={`m-${user.messageId}`}
      role="group"
      aria-label="Question and answer"
      aria-busy={!isDrawn}
      style={isDrawn ? { containIntrinsicSize: `auto ${height}px` } : { height }}
    >
      {isDrawn && (
        <>
          <UserMessage
            message={user}
            versions={userVersions}
            isBusy={isBusy}
            onSelect={onSelect}
            onEdit={(text) => onSend(text, { case: "edit", messageId: user.messageId })}
          />
          <Answer
            exchange={exchange}
            actions={actions}
            isBusy={isBusy}
            onSelect={onSelect}
            onRegenerate={onRegenerate}
            onRate={onRate}
          />
        </>
      )}
    </section>
  );
});

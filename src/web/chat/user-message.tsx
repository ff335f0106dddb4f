/** What the user has said, with its edited versions; and what is still on its way. */
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { timestampDate, type Timestamp } from "@bufbuild/protobuf/wkt";
import { useEffect, useRef, useState } from "react";
import type { Message } from "../../../gen/turnwire/chat/v1/types_pb.js";
import { explainError } from "../../client/explain-error.js";
import { clientError } from "../../client/errors.js";
import type { OutboxEntry } from "../../client/live/outbox.js";
import { Icon } from "../ui/icon.js";
import { IconButton } from "../ui/icon-button.js";
import { VersionSwitcher } from "./version-switcher.js";

export interface UserMessageProps {
  readonly message: Message;
  readonly versions: readonly string[];
  readonly onSelect: (messageId: string) => void;
  readonly onEdit: (text: string) => void;
  /** A turn runs: neither editing nor switching now. */
  readonly isBusy: boolean;
}

export function UserMessage({ message, versions, onSelect, onEdit, isBusy }: UserMessageProps) {
  const [isEditing, setEditing] = useState(false);
  const { input } = message;
  if (isEditing) {
    return (
      <EditForm
        text={input?.text ?? ""}
        onCancel={() => setEditing(false)}
        onSave={(text) => {
          setEditing(false);
          onEdit(text);
        }}
      />
    );
  }
  return (
    <div className="user-message">
      <Bubble text={input?.text ?? ""} names={input?.attachments.map(({ name }) => name) ?? []} />
      <div className="message-actions">
        {message.createTime && <AskedAt time={message.createTime} />}
        {versions.length > 1 && (
          <VersionSwitcher
            what="question"
            ids={versions}
            current={message.messageId}
            onSelect={onSelect}
            disabled={isBusy}
          />
        )}
        <IconButton
          small
          icon="edit"
          className="edit-question"
          label="Edit the question"
          onClick={() => setEditing(true)}
          disabled={isBusy}
        />
      </div>
    </div>
  );
}

/** When it was asked: the hour, and the day too if it was not today. */
function AskedAt({ time }: { readonly time: Timestamp }) {
  const date = timestampDate(time);
  const isToday = date.toDateString() === new Date().toDateString();
  return (
    <time className="asked-at" dateTime={date.toISOString()} title={date.toLocaleString()}>
      {isToday
        ? date.toLocaleTimeString(undefined, { timeStyle: "short" })
        : date.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" })}
    </time>
  );
}

function Bubble({ text, names }: { readonly text: string; readonly names: readonly string[] }) {
  return (
    <div className="bubble">
      <h2 className="hidden-text">You asked</h2>
      {names.length > 0 && (
        <ul className="plain chips" aria-label="Attached files">
          {names.map((name, i) => (
            <li key={i} className="chip">
              <Icon name="file" />
              <span className="chip-name">{name}</span>
            </li>
          ))}
        </ul>
      )}
      {text && <p className="bubble-text">{text}</p>}
    </div>
  );
}

function EditForm(props: {
  readonly text: string;
  readonly onSave: (text: string) => void;
  readonly onCancel: () => void;
}) {
  const [text, setText] = useState(props.text);
  const area = useRef<HTMLTextAreaElement>(null);
  useEffect(() => {
    const box = area.current!;
    box.focus();
    box.setSelectionRange(box.value.length, box.value.length);
  }, []);
  const save = (): void => {
    if (text.trim()) props.onSave(text.trim());
  };
  return (
    <form
      className="edit-form"
      aria-label="Edit the question"
      onSubmit={(event) => {
        event.preventDefault();
        save();
      }}
    >
      <textarea
        ref={area}
        className="field"
        rows={Math.min(12, text.split("\n").length + 1)}
        value={text}
        aria-label="Question"
        onChange={(event) => setText(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") props.onCancel();
          if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
          event.preventDefault();
          save();
        }}
      />
      <p className="edit-note">
        The answer to the old question is kept; switch between them with the arrows.
      </p>
      <div className="button-row">
        <button type="button" className="button quiet" onClick={props.onCancel}>
          Cancel
        </button>
        <button type="submit" className="button primary" disabled={!text.trim()}>
          Ask again
        </button>
      </div>
    </form>
  );
}

export interface PendingMessageProps {
  readonly entry: OutboxEntry;
  readonly isOffline: boolean;
  readonly onRetry: () => void;
  readonly onDiscard: () => void;
}

/** A message that the service has not accepted yet. */
export function PendingMessage({ entry, isOffline, onRetry, onDiscard }: PendingMessageProps) {
  const { text, attachments, status, problem } = entry;
  const words = problem && explainError(clientError(problem.code as never, problem.message));
  return (
    <div className="user-message is-pending">
      {entry.position.case !== "regenerate" && (
        <Bubble text={text} names={attachments.map(({ name }) => name)} />
      )}
      {status === "failed" ? (
        <div className="pending-line is-bad" role="alert">
          <Icon name="warn" />
          <span>
            Not sent. {words?.text} {words?.advice}
          </span>
          <button type="button" className="button" onClick={onRetry}>
            Send again
          </button>
          <button type="button" className="button quiet" onClick={onDiscard}>
            Discard
          </button>
        </div>
      ) : (
        <div className="pending-line" role="status">
          {status === "sending" && !isOffline ? <span className="spinner" /> : <Icon name="offline" />}
          <span>{pendingWords(entry, isOffline)}</span>
          {(isOffline || problem) && (
            <button type="button" className="button quiet" onClick={onDiscard}>
              Do not send
            </button>
          )}
        </div>
      )}
    </div>
  );
}

function pendingWords({ status, problem }: OutboxEntry, isOffline: boolean): string {
  if (isOffline) return "Waits for the network, then it is sent.";
  if (status === "queued" && problem?.code === ErrorCode.UNAVAILABLE)
    return "The server did not answer. It is tried again soon.";
  if (status === "queued" && problem)
    return `${problem.message[0]?.toUpperCase()}${problem.message.slice(1)}: tried again soon.`;
  return "Sending";
}

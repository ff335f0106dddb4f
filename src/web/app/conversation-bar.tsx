/** The open conversation's title, edited in place, and ways to take the conversation along. */
import { useState } from "react";
import { explainError } from "../../client/explain-error.js";
import type { Conversation } from "../../client/live/conversation.js";
import { conversationMarkdown } from "../chat/conversation-markdown.js";
import { TitleForm } from "../sidebar/title-form.js";
import { IconButton } from "../ui/icon-button.js";
import { saveFile } from "../ui/save-file.js";
import { useToast } from "../ui/toast.js";
import { useCopy } from "../ui/use-copy.js";
import { usePage } from "./page-context.js";

export function ConversationBar({
  session,
  title,
}: {
  readonly session: Conversation;
  readonly title: string;
}) {
  const { sessions } = usePage();
  const toast = useToast();
  const [isEditing, setEditing] = useState(false);
  const [outcome, copy] = useCopy();
  const failed = (error: unknown): void => toast(explainError(error));
  const withMarkdown = (use: (text: string) => void): void => {
    wholeConversation(session, title).then(use, failed);
  };
  if (isEditing)
    return (
      <div className="top-title-form">
        <h1 className="hidden-text">{title}</h1>
        <TitleForm
          title={title}
          onCancel={() => setEditing(false)}
          onSave={(next) => {
            setEditing(false);
            sessions.rename(session.sessionId, next).catch(failed);
          }}
        />
      </div>
    );
  return (
    <>
      <h1 className="top-title" onDoubleClick={() => setEditing(true)}>
        {title}
      </h1>
      <div className="top-actions">
        <IconButton small icon="edit" label="Edit the title" onClick={() => setEditing(true)} />
        <IconButton
          small
          icon={outcome === "copied" ? "check" : "copy"}
          label={
            outcome === "copied"
              ? "Copied"
              : outcome === "failed"
                ? "The browser does not allow copying"
                : "Copy the conversation as Markdown"
          }
          onClick={() => withMarkdown(copy)}
        />
        <IconButton
          small
          icon="download"
          label="Download the conversation as Markdown"
          onClick={() => withMarkdown((text) => saveFile([text], `${fileNameOf(title)}.md`, "text/markdown"))}
        />
        <span className="hidden-text" role="status">
          {outcome === "copied" ? "The conversation is copied" : ""}
        </span>
      </div>
    </>
  );
}

/** The branch that is shown, its older part read first. */
async function wholeConversation(session: Conversation, title: string): Promise<string> {
  for (let known = -1; session.view.get().hasMore; known = session.view.get().exchanges.length) {
    if (known === session.view.get().exchanges.length) break; // nothing came: what is here is what there is
    await session.loadOlder();
  }
  return conversationMarkdown(title, session.view.get().exchanges);
}

function fileNameOf(title: string): string {
  const name = title
    .replace(/[^\p{L}\p{N}]+/gu, "-")
    .replace(/^-|-$/g, "")
    .slice(0, 60);
  return name || "conversation";
}

import { memo, useState } from "react";
import { explainError } from "../../client/explain-error.js";
import type { SessionItem } from "../../client/live/session-list.js";
import { usePage } from "../app/page-context.js";
import { go, sessionHash } from "../app/router.js";
import { ConfirmDialog } from "../ui/dialog.js";
import { IconButton } from "../ui/icon-button.js";
import { useToast } from "../ui/toast.js";
import { TitleForm } from "./title-form.js";

export interface SessionRowProps {
  readonly item: SessionItem;
  readonly isCurrent: boolean;
  readonly onChosen: () => void;
}

/** One conversation: leads to it; its title is edited in place, it is deleted after a question. */
export const SessionRow = memo(function SessionRow({ item, isCurrent, onChosen }: SessionRowProps) {
  const page = usePage();
  const toast = useToast();
  const [mode, setMode] = useState<"show" | "rename" | "delete">("show");
  const title = item.title || "New conversation";
  const failed = (error: unknown): void => toast(explainError(error));

  if (mode === "rename") {
    return (
      <li className="session-row">
        <TitleForm
          title={item.title}
          onCancel={() => setMode("show")}
          onSave={(next) => {
            setMode("show");
            page.sessions.rename(item.sessionId, next).catch(failed);
          }}
        />
      </li>
    );
  }
  const remove = (): void => {
    page.sessions.delete(item.sessionId).then(() => {
      page.forget(item.sessionId);
      if (isCurrent) go("#/");
    }, failed);
  };
  return (
    <li className={isCurrent ? "session-row is-current" : "session-row"}>
      <a
        href={sessionHash(item.sessionId)}
        aria-current={isCurrent ? "page" : undefined}
        onClick={onChosen}
        onDoubleClick={() => setMode("rename")}
        title={title}
      >
        {item.isRunning && (
          <span className="running-dot" role="img" aria-label="An answer is being written" />
        )}
        <span className="session-title">{title}</span>
      </a>
      <div className="row-actions">
        <IconButton small icon="edit" label={`Rename ${title}`} onClick={() => setMode("rename")} />
        <IconButton small icon="trash" label={`Delete ${title}`} onClick={() => setMode("delete")} />
      </div>
      {mode === "delete" && (
        <ConfirmDialog
          title="Delete this conversation?"
          text={`“${title}” and all its messages will be gone for good.`}
          action="Delete"
          onConfirm={remove}
          onClose={() => setMode("show")}
        />
      )}
    </li>
  );
});

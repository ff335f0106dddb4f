/** Where messages are written. */
import {
  useEffect,
  useId,
  useRef,
  useState,
  type ClipboardEvent,
  type KeyboardEvent,
  type ReactNode,
} from "react";
import { usePage } from "../app/page-context.js";
import { IconButton } from "../ui/icon-button.js";
import { DocumentChips, useAddedDocuments } from "./document-chips.js";

export interface ComposerProps {
  /** The conversation; a draft is kept for each. */
  readonly conversation: string;
  /** Why nothing can be sent; undefined = it can. */
  readonly blocked: string | undefined;
  readonly isRunning: boolean;
  readonly onSend: (text: string) => void;
  readonly onStop: () => void;
  /** Controls at the lower edge: models, settings. */
  readonly children: ReactNode;
}

const MAX_BYTES = 512 * 1024;

/** Enter sends, Shift+Enter begins a line. While an answer is written, the button stops it. */
export function Composer(props: ComposerProps) {
  const { conversation, blocked, isRunning, onSend, onStop, children } = props;
  const [text, setText] = useDraft(conversation);
  const documents = useAddedDocuments();
  const area = useRef<HTMLTextAreaElement>(null);
  const picker = useRef<HTMLInputElement>(null);
  const hintId = useId();
  const [isOver, setOver] = useState(false);

  useEffect(() => fitHeight(area.current!), [text]);
  useEffect(() => {
    // on a phone, the keyboard would cover half of what was opened
    if (window.matchMedia("(pointer: fine)").matches) area.current!.focus();
  }, [conversation]);

  const tooLong = text.length > MAX_BYTES / 4 && new TextEncoder().encode(text).length > MAX_BYTES;
  const reason = tooLong
    ? "The message is longer than 512 KiB: attach it as a file."
    : documents.isBusy
      ? "Wait until the documents can be searched."
      : blocked;
  const isEmpty = text.trim() === "";

  const send = (): void => {
    if (reason !== undefined || isEmpty) return;
    onSend(text.trim());
    setText("");
    documents.clear();
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key === "ArrowUp" && text === "") {
      event.preventDefault();
      [...document.querySelectorAll<HTMLElement>(".edit-question")].at(-1)?.click();
      return;
    }
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    send();
  };
  const onPaste = (event: ClipboardEvent): void => {
    if (event.clipboardData.files.length === 0) return;
    event.preventDefault();
    documents.add(event.clipboardData.files);
  };

  return (
    <form
      className={isOver ? "composer is-over" : "composer"}
      aria-label="Message"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        event.preventDefault();
        setOver(false);
        documents.add(event.dataTransfer.files);
      }}
    >
      <DocumentChips added={documents} />
      <textarea
        ref={area}
        id="composer-text"
        rows={1}
        value={text}
        placeholder="Ask something"
        aria-label="Your message"
        aria-describedby={hintId}
        onChange={(event) => setText(event.target.value)}
        onKeyDown={onKeyDown}
        onPaste={onPaste}
      />
      <div className="composer-row">
        <IconButton
          icon="attach"
          label="Add documents to search in"
          onClick={() => picker.current!.click()}
        />
        <input
          ref={picker}
          type="file"
          multiple
          hidden
          aria-hidden="true"
          tabIndex={-1}
          onChange={(event) => {
            documents.add(event.target.files);
            event.target.value = "";
          }}
        />
        {children}
        <p id={hintId} className={reason ? "composer-hint is-reason" : "composer-hint"}>
          {reason ?? "Enter sends, Shift + Enter starts a line"}
        </p>
        {isRunning && (
          <IconButton icon="stop" label="Stop the answer" className="round filled stop" onClick={onStop} />
        )}
        {(!isRunning || !isEmpty) && (
          <IconButton
            icon="send"
            label="Send"
            type="submit"
            className="round filled"
            disabled={reason !== undefined || isEmpty}
          />
        )}
      </div>
    </form>
  );
}

/** What is being written, per conversation; kept for this tab, also over a reload. */
function useDraft(conversation: string): readonly [string, (text: string) => void] {
  const { account } = usePage();
  const key = `turnwire.draft.${account.name}.${conversation.startsWith("new-") ? "new" : conversation}`;
  const [draft, setDraft] = useState({ key, text: readDraft(key) });
  const text = draft.key === key ? draft.text : readDraft(key);
  if (draft.key !== key) setDraft({ key, text });
  const change = (next: string): void => {
    setDraft({ key, text: next });
    try {
      if (next) sessionStorage.setItem(key, next);
      else sessionStorage.removeItem(key);
    } catch {
      // no storage: the draft lives as long as the page
    }
  };
  return [text, change];
}

function readDraft(key: string): string {
  try {
    return sessionStorage.getItem(key) ?? "";
  } catch {
    return ""; // no storage
  }
}

function fitHeight(area: HTMLTextAreaElement): void {
  area.style.height = "auto";
  area.style.height = `${area.scrollHeight}px`;
}

import { useEffect, useRef, useState } from "react";
import { explainError } from "../../client/explain-error.js";
import { usePage } from "../app/page-context.js";
import { useToast } from "../ui/toast.js";

/** The most that the service keeps, bytes; a character has at most four. */
const MAX_CHARS = 2_000;

/** Asks what was wrong with an answer. The rating is kept whether or not somebody writes. */
export function FeedbackForm(props: { readonly messageId: string; readonly onClose: () => void }) {
  const { messageId, onClose } = props;
  const { client } = usePage();
  const toast = useToast();
  const [comment, setComment] = useState("");
  const [state, setState] = useState<"writing" | "sending" | "sent">("writing");
  const field = useRef<HTMLTextAreaElement>(null);
  useEffect(() => field.current?.focus({ preventScroll: true }), []);
  const send = (): void => {
    setState("sending");
    client.api.setFeedback({ messageId, rating: -1, comment: comment.trim() }).then(
      () => setState("sent"),
      (error: unknown) => {
        setState("writing");
        toast(explainError(error));
      },
    );
  };
  if (state === "sent")
    return (
      <p className="feedback-thanks" role="status">
        Thank you: it is kept with the answer.
      </p>
    );
  return (
    <form
      className="feedback-form"
      aria-label="What was wrong with the answer"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
      onKeyDown={(event) => {
        if (event.key !== "Escape") return;
        event.preventDefault(); // and nothing else closes or stops
        onClose();
      }}
    >
      <textarea
        ref={field}
        className="field"
        rows={2}
        maxLength={MAX_CHARS}
        placeholder="What was wrong? (optional)"
        aria-label="What was wrong?"
        value={comment}
        onChange={(event) => setComment(event.target.value)}
      />
      <div className="button-row">
        <button type="button" className="button quiet" onClick={onClose}>
          Not now
        </button>
        <button type="submit" className="button primary" disabled={!comment.trim() || state === "sending"}>
          Send
        </button>
      </div>
    </form>
  );
}

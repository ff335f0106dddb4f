import { useState } from "react";

const MAX_TITLE = 200;

/** A title that is edited in place: Enter and leaving keep it, Escape does not. */
export function TitleForm(props: {
  readonly title: string;
  readonly onSave: (title: string) => void;
  readonly onCancel: () => void;
}) {
  const { title, onSave, onCancel } = props;
  const [text, setText] = useState(title);
  const save = (): void => {
    const next = text.trim();
    if (next && next !== title) onSave(next);
    else onCancel();
  };
  return (
    <form
      className="title-form"
      onSubmit={(event) => {
        event.preventDefault();
        save();
      }}
    >
      <input
        className="field"
        aria-label="Title of the conversation"
        value={text}
        maxLength={MAX_TITLE}
        autoFocus
        onFocus={(event) => event.target.select()}
        onChange={(event) => setText(event.target.value)}
        onBlur={save}
        onKeyDown={(event) => {
          if (event.key !== "Escape") return;
          event.preventDefault(); // it stops nothing else
          onCancel();
        }}
      />
    </form>
  );
}

/** Three ways in: files, text, an address. */
import { useRef, useState, type DragEvent } from "react";
import { usePage } from "../app/page-context.js";
import { explainError } from "../../client/explain-error.js";
import { Icon } from "../ui/icon.js";
import { useToast } from "../ui/toast.js";
import { droppedFiles } from "./dropped-files.js";

type Way = "files" | "text" | "url";

const WAYS: readonly (readonly [Way, string])[] = [
  ["files", "Files"],
  ["text", "Text"],
  ["url", "Web page"],
];
const ACCEPT = ".pdf,.md,.markdown,.txt,.html,.htm,text/*,application/pdf";
const MAX_TEXT_BYTES = 512 * 1024;

export function AddDocuments() {
  const [way, setWay] = useState<Way>("files");
  return (
    <section className="add-documents" aria-label="Add documents">
      <div className="segments" role="radiogroup" aria-label="What to add">
        {WAYS.map(([id, label]) => (
          <label key={id}>
            <input type="radio" name="way" checked={way === id} onChange={() => setWay(id)} />
            <span>{label}</span>
          </label>
        ))}
      </div>
      {way === "files" && <AddFiles />}
      {way === "text" && <AddText />}
      {way === "url" && <AddUrl />}
    </section>
  );
}

function AddFiles() {
  const { documents } = usePage();
  const picker = useRef<HTMLInputElement>(null);
  const [isOver, setOver] = useState(false);
  const toast = useToast();
  const add = (files: Iterable<File>): void => [...files].forEach((file) => documents.addFile(file));
  const onDrop = (event: DragEvent): void => {
    event.preventDefault();
    setOver(false);
    droppedFiles(event.dataTransfer).then(add, (thrown: unknown) => toast(explainError(thrown)));
  };
  return (
    <>
      <button
        type="button"
        className={isOver ? "drop is-over" : "drop"}
        onClick={() => picker.current!.click()}
        onDragOver={(event) => {
          event.preventDefault();
          setOver(true);
        }}
        onDragLeave={() => setOver(false)}
        onDrop={onDrop}
      >
        <Icon name="plus" />
        <span>
          <strong>Choose files</strong> or drop files and folders here
        </span>
        <small>PDF, Markdown, HTML, text, up to 50 MB each</small>
      </button>
      <input
        ref={picker}
        type="file"
        multiple
        hidden
        accept={ACCEPT}
        aria-hidden="true"
        tabIndex={-1}
        onChange={(event) => {
          add(event.target.files ?? []);
          event.target.value = "";
        }}
      />
    </>
  );
}

function AddText() {
  const { documents } = usePage();
  const [title, setTitle] = useState("");
  const [text, setText] = useState("");
  const isTooLong = new TextEncoder().encode(text).length > MAX_TEXT_BYTES;
  return (
    <form
      className="add-form"
      onSubmit={(event) => {
        event.preventDefault();
        documents.addText(title.trim(), text);
        setTitle("");
        setText("");
      }}
    >
      <input
        className="field"
        aria-label="Title"
        placeholder="Title"
        value={title}
        maxLength={200}
        onChange={(event) => setTitle(event.target.value)}
      />
      <textarea
        className="field"
        aria-label="Text"
        placeholder="Text"
        rows={5}
        value={text}
        onChange={(event) => setText(event.target.value)}
      />
      {isTooLong && (
        <p className="composer-hint is-reason">
          The text is longer than 512 KiB: save it as a file and add that.
        </p>
      )}
      <button type="submit" className="button primary" disabled={!text.trim() || isTooLong}>
        Add the text
      </button>
    </form>
  );
}

function AddUrl() {
  const { documents } = usePage();
  const [url, setUrl] = useState("");
  return (
    <form
      className="add-form is-row"
      onSubmit={(event) => {
        event.preventDefault();
        documents.addUrl(url.trim());
        setUrl("");
      }}
    >
      <input
        className="field"
        type="url"
        required
        pattern="https?://.+"
        aria-label="Address of the page"
        placeholder="https://"
        value={url}
        onChange={(event) => setUrl(event.target.value)}
      />
      <button type="submit" className="button primary">
        Add the page
      </button>
    </form>
  );
}

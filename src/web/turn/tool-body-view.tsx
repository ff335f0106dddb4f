/** The inside of a tool card, by family. Everything a tool says is shown as text, never as HTML. */
import type { ReactNode } from "react";
import type {
  CodeBody,
  FileBody,
  MemoryBody,
  OutputBody,
  PagesBody,
  SearchBody,
  ToolBody,
} from "../../client/view.js";
import { DocumentItem } from "./document-list.js";
import { LongText } from "./markdown/code-block.js";
import { Markdown } from "./markdown/markdown.js";
import { safeUrl } from "./markdown/safe-url.js";
import { OutsideLink } from "./markdown/outside-link.js";
import { useTurnActions } from "./turn-actions.js";

/** What a tool shows of its work; nothing for a plain call. */
export function ToolBodyView({
  body,
  running,
}: {
  readonly body: ToolBody;
  readonly running: boolean;
}): ReactNode {
  switch (body.kind) {
    case "search":
      return <Search body={body} running={running} />;
    case "pages":
      return <Pages body={body} running={running} />;
    case "code":
      return <Code body={body} />;
    case "images":
      return (
        <FileButtons files={body.images.map(({ fileId, prompt }) => ({ fileId, name: prompt || "Image" }))} />
      );
    case "file":
      return <FilePart body={body} />;
    case "memory":
      return <Memories body={body} />;
    case "agent":
      return (
        <>
          {body.repo && <p className="hint">In {body.repo}</p>}
          {body.thinking && <Output label="What it said while it worked" text={body.thinking} />}
          {body.answer && <Markdown text={body.answer} />}
        </>
      );
    case "output":
      return <Outputs body={body} />;
    case "plain":
      return null;
    default:
      return body satisfies never;
  }
}

function Search({ body, running }: { readonly body: SearchBody; readonly running: boolean }): ReactNode {
  const { queries, sources, documents, from, until } = body;
  const range = [from && `from ${dayOf(from.seconds)}`, until && `until ${dayOf(until.seconds)}`].filter(
    Boolean,
  );
  const filters = [sources.length > 0 ? `in ${sources.join(", ")}` : "", ...range].filter(Boolean);
  return (
    <>
      {queries.length > 0 && (
        <ul className="queries" aria-label="Queries">
          {queries.map((query) => (
            <li key={query}>{query}</li>
          ))}
        </ul>
      )}
      {filters.length > 0 && <p className="hint">Only {filters.join(", ")}</p>}
      {documents.length > 0 && (
        <ol className="documents" aria-label="Documents found">
          {documents.map((document, i) => (
            <DocumentItem key={i} document={document} withSnippet />
          ))}
        </ol>
      )}
      {documents.length === 0 && !running && <p className="hint">Nothing was found.</p>}
    </>
  );
}

function dayOf(seconds: bigint): string {
  return new Date(Number(seconds) * 1_000).toISOString().slice(0, 10);
}

function Pages({ body, running }: { readonly body: PagesBody; readonly running: boolean }): ReactNode {
  const { urls, documents } = body;
  const read = new Set(documents.map(({ url }) => url));
  const unread = urls.filter((url) => !read.has(url));
  return (
    <ul className="documents" aria-label="Pages">
      {documents.map((document, i) => (
        <DocumentItem key={i} document={document} withSnippet />
      ))}
      {unread.map((url) => (
        <li key={url} className="document">
          <Address url={url} />
          <span className="document-place">{running ? "opening" : "not read"}</span>
        </li>
      ))}
    </ul>
  );
}

function Address({ url }: { readonly url: string }): ReactNode {
  const href = safeUrl(url);
  return href === undefined ? <span>{url}</span> : <OutsideLink href={href}>{url}</OutsideLink>;
}

function Code({ body }: { readonly body: CodeBody }): ReactNode {
  const { code, stdout, stderr, exitCode, timedOut } = body;
  return (
    <>
      {code && <Output label="Code" text={code} />}
      {stdout && <Output label="Output" text={stdout} />}
      {stderr && <Output label="Errors" text={stderr} />}
      {exitCode !== undefined && exitCode !== 0 && <p className="hint">It ended with code {exitCode}.</p>}
      {timedOut && <p className="hint">It was ended because it took too long.</p>}
    </>
  );
}

/** Text as it is, with its name. */
export function Output({ label, text }: { readonly label: string; readonly text: string }): ReactNode {
  return (
    <figure className="output">
      <figcaption>{label}</figcaption>
      <pre tabIndex={0}>
        <LongText text={text} />
      </pre>
    </figure>
  );
}

/** Stored files that open when they are chosen. */
export function FileButtons(props: {
  readonly files: readonly { readonly fileId: string; readonly name: string }[];
}): ReactNode {
  const { onOpenFile } = useTurnActions();
  if (props.files.length === 0) return null;
  return (
    <ul className="files" aria-label="Files">
      {props.files.map(({ fileId, name }) => (
        <li key={fileId}>
          {onOpenFile ? (
            <button type="button" onClick={() => onOpenFile(fileId, name)}>
              {name}
            </button>
          ) : (
            name
          )}
        </li>
      ))}
    </ul>
  );
}

function FilePart({ body }: { readonly body: FileBody }): ReactNode {
  return (
    <>
      <p className="hint">
        Characters {body.startChar} to {body.endChar} of {body.totalChars}
      </p>
      <FileButtons files={body.fileId ? [{ fileId: body.fileId, name: body.name || "The file" }] : []} />
      {body.preview && <Output label="What was read" text={body.preview} />}
    </>
  );
}

function Memories({ body }: { readonly body: MemoryBody }): ReactNode {
  if (body.noAccess) return <p className="hint">Memory may not be used here.</p>;
  return (
    <ul className="memories">
      {body.memories.map(({ text, operation }, i) => (
        <li key={i}>
          <span className="hint">{operation}</span> {text}
        </li>
      ))}
    </ul>
  );
}

function Outputs({ body }: { readonly body: OutputBody }): ReactNode {
  return body.parts.map((part, i) => (
    <div key={i}>
      {part.error && <p className="notice is-warning">{part.error}</p>}
      {part.needsSignIn && <p className="hint">Sign in at the tool&apos;s own page, then ask again.</p>}
      {part.text && (
        <Output label={part.truncated ? "Output, cut" : "Output"} text={prettyText(part.text, part.format)} />
      )}
      <FileButtons files={part.fileIds.map((fileId) => ({ fileId, name: "Open the file" }))} />
    </div>
  ));
}

/** JSON with line breaks, if it is JSON and not too long; anything else as it is. */
export function prettyText(text: string, format: string): string {
  if (format !== "json" || text.length > 64 * 1024) return text;
  try {
    return JSON.stringify(JSON.parse(text), undefined, 2);
  } catch {
    return text; // cut, or no JSON after all
  }
}

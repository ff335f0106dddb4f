import { documentFacts } from "./document-facts.js";
import { DocumentText } from "./document-text.js";
import { useDocumentText } from "./use-document-text.js";
import { Icon } from "../ui/icon.js";
import { ErrorNotice } from "../ui/notice.js";

/** One document, from the beginning or at a place. */
export function DocumentPage({
  documentId,
  at,
}: {
  readonly documentId: string;
  readonly at: number | undefined;
}) {
  const { document, text, hasMore, isLoading, error, loadMore } = useDocumentText(documentId, at ?? 0);
  return (
    <div className="page-scroll" tabIndex={-1}>
      <div className="page-column">
        <a className="back" href="#/documents">
          <Icon name="left" /> Documents
        </a>
        {error && <ErrorNotice error={error} />}
        {document && (
          <header className="page-head">
            <h1>{document.title || "Document"}</h1>
            <p className="facts">{documentFacts(document)}</p>
          </header>
        )}
        {isLoading && !text && <p className="waiting-line">Reading the document</p>}
        <DocumentText text={text} from={at} to={at === undefined ? undefined : endOfParagraph(text, at)} />
        {hasMore && !isLoading && (
          <button type="button" className="button" onClick={loadMore}>
            Read on
          </button>
        )}
      </div>
    </div>
  );
}

const LONGEST_MARK = 600;

/** A place without an end marks the line that it is in. */
function endOfParagraph(text: string, at: number): number {
  const points = [...text.slice(0, (at + LONGEST_MARK) * 2)].slice(at, at + LONGEST_MARK);
  const end = points.indexOf("\n", 1);
  return at + (end < 0 ? points.length : end);
}

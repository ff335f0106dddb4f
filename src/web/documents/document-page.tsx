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
  const { document, offset, text, hasMore, isLoading, error, loadMore } = useDocumentText(documentId, at);
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
        {text && (
          <DocumentText
            text={text}
            mediaType={document?.mediaType ?? ""}
            offset={offset}
            from={at}
            to={undefined}
            hasMore={hasMore}
          />
        )}
        {hasMore && !isLoading && (
          <button type="button" className="button" onClick={loadMore}>
            Read on
          </button>
        )}
      </div>
    </div>
  );
}

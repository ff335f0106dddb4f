/** The source behind a citation, beside the conversation: the passage, and around it the document it is from. */
import { useEffect, useRef } from "react";
import type { Document } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { OutsideLink } from "../turn/markdown/outside-link.js";
import { safeUrl } from "../turn/markdown/safe-url.js";
import { documentHash } from "../app/router.js";
import { IconButton } from "../ui/icon-button.js";
import { Icon } from "../ui/icon.js";
import { ErrorNotice } from "../ui/notice.js";
import { DocumentText } from "./document-text.js";
import { useDocumentText } from "./use-document-text.js";

export interface OpenedSource {
  readonly document: Document;
  readonly number: number | undefined;
}

export function SourcePanel({
  source,
  onClose,
}: {
  readonly source: OpenedSource;
  readonly onClose: () => void;
}) {
  const { document, number } = source;
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => heading.current!.focus(), [source]);
  // a passage of a document that is kept here names it; what a page or a connector gave has only its address
  const documentId = document.metadata["document_id"] ?? "";
  const address = /^https?:/i.test(document.url) ? safeUrl(document.url) : undefined;
  return (
    <aside
      className="panel"
      aria-labelledby="source-title"
      onKeyDown={(event) => event.key === "Escape" && onClose()}
    >
      <header className="panel-head">
        {number !== undefined && <span className="panel-number">{number}</span>}
        <h2 id="source-title" tabIndex={-1} ref={heading}>
          {document.title || document.url || "Source"}
        </h2>
        <IconButton icon="close" label="Close the source" onClick={onClose} />
      </header>
      <p className="panel-facts">
        {[
          documentId ? "From your documents" : document.source,
          document.page > 0 ? `page ${document.page}` : "",
        ]
          .filter(Boolean)
          .join(", ")}
      </p>
      <div className="panel-body">
        {documentId ? (
          <WholeText documentId={documentId} document={document} />
        ) : (
          <p className="document-text is-snippet">{document.snippet}</p>
        )}
      </div>
      <footer className="panel-foot">
        {address && (
          <OutsideLink href={address}>
            Open the page <Icon name="external" />
          </OutsideLink>
        )}
        {documentId && (
          <a className="button" href={documentHash(documentId, document.startChar)}>
            Open the document
          </a>
        )}
      </footer>
    </aside>
  );
}

/** The document around the passage; the passage alone where the document cannot be read. */
function WholeText({ documentId, document }: { readonly documentId: string; readonly document: Document }) {
  const { startChar, endChar, snippet } = document;
  const read = useDocumentText(documentId, startChar, endChar);
  if (read.error)
    return snippet ? (
      <p className="document-text is-snippet">{snippet}</p>
    ) : (
      <ErrorNotice error={read.error} />
    );
  if (!read.text && read.isLoading) return <p className="waiting-line">Reading the document</p>;
  return (
    <DocumentText
      text={read.text}
      mediaType={read.document?.mediaType ?? ""}
      offset={read.offset}
      from={startChar}
      to={endChar}
      hasMore={read.hasMore}
    />
  );
}

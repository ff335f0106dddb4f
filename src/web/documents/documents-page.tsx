/** The documents that can be searched: what there is, and ways to add more. */
import { useEffect, useState } from "react";
import { DocumentStatus, type SourceDocument } from "../../../gen/turnwire/chat/v1/types_pb.js";
import { explainError } from "../../client/explain-error.js";
import { canRetry, isIndexing, type Incoming } from "../../client/live/documents.js";
import { usePage } from "../app/page-context.js";
import { documentHash } from "../app/router.js";
import { indexed } from "../chat/document-chips.js";
import { ConfirmDialog } from "../ui/dialog.js";
import { Icon } from "../ui/icon.js";
import { IconButton } from "../ui/icon-button.js";
import { ErrorNotice } from "../ui/notice.js";
import { useToast } from "../ui/toast.js";
import { useObservable } from "../ui/use-observable.js";
import { AddDocuments } from "./add-documents.js";
import { documentFacts } from "./document-facts.js";
import { useIndexingProgress } from "./use-indexing-progress.js";

export function DocumentsPage() {
  const { documents } = usePage();
  const view = useObservable(documents.view);
  useEffect(() => documents.want(), [documents]);
  useIndexingProgress(view.documents.some(isIndexing));

  const known = new Set(view.documents.map(({ documentId }) => documentId));
  const incoming = view.incoming.filter(({ documentId }) => !known.has(documentId));
  const isEmpty = view.state === "ready" && view.documents.length === 0 && incoming.length === 0;
  return (
    <div className="page-scroll" tabIndex={-1}>
      <div className="page-column">
        <header className="page-head">
          <h1>Documents</h1>
          <p className="facts">What stands here can be searched and cited in every conversation.</p>
        </header>
        <AddDocuments />
        {view.error && (
          <ErrorNotice error={explainError(view.error)}>
            <button type="button" className="button" onClick={() => void documents.reload()}>
              Try again
            </button>
          </ErrorNotice>
        )}
        {view.state === "loading" && <p className="waiting-line">Loading</p>}
        {isEmpty && (
          <p className="list-note">
            Nothing yet. Add a PDF, a Markdown file or a web page, then ask about it.
          </p>
        )}
        <ul className="plain document-list" aria-label="Documents">
          {incoming.map((entry) => (
            <IncomingRow key={entry.key} entry={entry} onCancel={() => documents.cancelIncoming(entry.key)} />
          ))}
          {view.documents.map((document) => (
            <DocumentRow key={document.documentId} document={document} />
          ))}
        </ul>
        {view.hasMore && (
          <button type="button" className="button" onClick={() => void documents.loadMore()}>
            Show more
          </button>
        )}
      </div>
    </div>
  );
}

function IncomingRow({ entry, onCancel }: { readonly entry: Incoming; readonly onCancel: () => void }) {
  const { name, size, bytes, error } = entry;
  const words = error && explainError(error);
  return (
    <li className="document-row">
      <Icon name={error ? "warn" : "file"} />
      <div className="document-main">
        <span className="document-title">{name}</span>
        {words ? (
          <span className="document-problem" role="alert">
            {words.text} {words.advice}
          </span>
        ) : (
          <span className="document-progress">
            <progress max={size || 1} value={size > 0 ? bytes : undefined} aria-label={`Upload of ${name}`} />
            {size > 0 ? `${Math.round((bytes / size) * 100)} %` : "Fetching"}
          </span>
        )}
      </div>
      <IconButton small icon="close" label={error ? `Forget ${name}` : `Cancel ${name}`} onClick={onCancel} />
    </li>
  );
}

function DocumentRow({ document }: { readonly document: SourceDocument }) {
  const { documents } = usePage();
  const toast = useToast();
  const [isAsking, setAsking] = useState(false);
  const { documentId, status, error } = document;
  const title = document.title || document.url || "Document";
  const failed = (thrown: unknown): void => toast(explainError(thrown));
  const busy = isIndexing(document);
  return (
    <li className="document-row">
      <Icon name={status === DocumentStatus.FAILED ? "warn" : document.url ? "link" : "file"} />
      <div className="document-main">
        {status === DocumentStatus.READY ? (
          <a className="document-title" href={documentHash(documentId)}>
            {title}
          </a>
        ) : (
          <span className="document-title">{title}</span>
        )}
        {busy && (
          <span className="document-progress">
            <progress max={1} value={indexed(document)} aria-label={`Indexing of ${title}`} />
            Indexing
          </span>
        )}
        {status === DocumentStatus.FAILED && (
          <span className="document-problem">{error || "It could not be indexed."}</span>
        )}
        {status === DocumentStatus.CANCELLED && (
          <span className="document-facts">Cancelled, not searched</span>
        )}
        {status === DocumentStatus.READY && <span className="document-facts">{documentFacts(document)}</span>}
      </div>
      {busy && (
        <IconButton
          small
          icon="close"
          label={`Cancel the indexing of ${title}`}
          onClick={() => void documents.cancel(documentId).catch(failed)}
        />
      )}
      {canRetry(document) && (
        <button type="button" className="button" onClick={() => documents.retry(document)}>
          Try again
        </button>
      )}
      <IconButton small icon="trash" label={`Delete ${title}`} onClick={() => setAsking(true)} />
      {isAsking && (
        <ConfirmDialog
          title="Delete this document?"
          text={`“${title}” will no longer be found. Answers that cite it keep their passages.`}
          action="Delete"
          onConfirm={() => void documents.delete(documentId).catch(failed)}
          onClose={() => setAsking(false)}
        />
      )}
    </li>
  );
}

/** What the stores of documents have in common: a document's row, its passages' end, and changes that are told. */
import { create, toBinary } from "@bufbuild/protobuf";
import {
  DocumentStatus,
  SourceDocumentSchema,
  type DocumentFailure,
} from "../../gen/turnwire/chat/v1/types_pb.js";
import type { Channel, Queryable } from "../store/db.js";
import { insertEvent } from "../store/session-events.js";
import type { DocumentRow, DocumentSource } from "./document-store.js";
import { viewDocument } from "./view-document.js";

export const COLUMNS = `document_id, tenant_id, user_id, title, media_type, tags, project_id, source, url, file_id, status, failure,
  error, size_bytes, processed_bytes, chunks, create_time`;
export const INDEXING = DocumentStatus.INDEXING;
const CLEAR_ROWS = 2_000;

/** COLUMNS as they are read. */
export interface RawDocument {
  readonly document_id: string;
  readonly tenant_id: string;
  readonly user_id: string;
  readonly title: string;
  readonly media_type: string;
  readonly tags: string[];
  readonly project_id: string;
  readonly source: DocumentSource;
  readonly url: string;
  readonly file_id: string;
  readonly status: DocumentStatus;
  readonly failure: DocumentFailure;
  readonly error: string;
  readonly size_bytes: string;
  readonly processed_bytes: string;
  readonly chunks: number;
  readonly create_time: Date;
}

/** Changes a document; answers what it is then, undefined = nothing was changed. */
export type Work = (tx: Queryable) => Promise<DocumentRow | undefined>;

/** Does the work in a transaction that also tells whoever watches; calls `onChange` once it is committed. */
export type Apply = (work: Work, kind?: "document" | "document_deleted") => Promise<DocumentRow | undefined>;

export function applyTo(channel: Channel, onChange: (document: DocumentRow) => void): Apply {
  return async (work, kind = "document") => {
    const changed = await channel.transaction(async (tx) => {
      const document = await work(tx);
      if (document) await tell(tx, document, kind);
      return document;
    });
    if (changed) onChange(changed);
    return changed;
  };
}

/** Leaves the event in the transaction of the change. */
export async function tell(
  tx: Queryable,
  document: DocumentRow,
  kind: "document" | "document_deleted",
): Promise<void> {
  const view =
    kind === "document"
      ? viewDocument(document)
      : create(SourceDocumentSchema, { documentId: document.documentId });
  await insertEvent(tx, document.owner, { kind, sessionId: "", data: toBinary(SourceDocumentSchema, view) });
}

/**
 * In statements that each end well within their time. The document's row must be locked, so that none is added.
 * By place in the table: a join would be planned by statistics that fresh passages do not have, as a loop in a loop.
 */
export async function removePassages(tx: Queryable, documentId: string): Promise<void> {
  for (let after = -1, removed = CLEAR_ROWS; removed === CLEAR_ROWS;) {
    const rows = await tx.query<{ chunk_index: number }>(
      `delete from turnwire.passages where ctid = any (array(
         select ctid from turnwire.passages where document_id = $1 and chunk_index > $2
         order by chunk_index limit ${CLEAR_ROWS})) returning chunk_index`,
      [documentId, after],
    );
    removed = rows.length;
    after = rows.reduce((last, row) => Math.max(last, row.chunk_index), after);
  }
}

export function toRow(raw: RawDocument): DocumentRow {
  return {
    documentId: raw.document_id,
    owner: { tenantId: raw.tenant_id, userId: raw.user_id },
    title: raw.title,
    mediaType: raw.media_type,
    tags: raw.tags,
    projectId: raw.project_id,
    source: raw.source,
    url: raw.url,
    fileId: raw.file_id,
    status: raw.status,
    failure: raw.failure,
    error: raw.error,
    sizeBytes: Number(raw.size_bytes),
    processedBytes: Number(raw.processed_bytes),
    chunks: raw.chunks,
    createTime: raw.create_time,
  };
}

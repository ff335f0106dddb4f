import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { SourceDocumentSchema, type SourceDocument } from "../../gen/turnwire/chat/v1/types_pb.js";
import type { DocumentRow } from "./document-store.js";

/** A document as the contract shows it. */
export function viewDocument(row: DocumentRow): SourceDocument {
  return create(SourceDocumentSchema, {
    documentId: row.documentId,
    title: row.title || row.url || "Untitled",
    mediaType: row.mediaType,
    status: row.status,
    failure: row.failure,
    error: row.error,
    createTime: timestampFromDate(row.createTime),
    tags: [...row.tags],
    chunks: row.chunks,
    projectId: row.projectId,
    url: row.url,
    fileId: row.fileId,
    sizeBytes: String(row.sizeBytes),
    processedBytes: String(row.processedBytes),
  });
}

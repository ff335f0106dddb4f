/** The documents' rows and passages in Postgres: adding, showing, cancelling, deleting. Indexing is pg-document-work.ts. */
import { DocumentStatus } from "../../gen/turnwire/chat/v1/types_pb.js";
import type { Owner } from "../lib/rpc/service-binding.js";
import type { Channel, Queryable } from "../store/db.js";
import { lockOwner } from "../store/owner-key.js";
import { pageSize, startAfter, toPage } from "../store/page-token.js";
import type { Page, Paged } from "../store/store.js";
import {
  applyTo,
  COLUMNS,
  INDEXING,
  removePassages,
  tell,
  toRow,
  type Apply,
  type RawDocument,
} from "./document-rows.js";
import type {
  AddOutcome,
  DocumentQuotas,
  DocumentRow,
  DocumentStore,
  EarlierOutcome,
  NewDocument,
  TextPart,
} from "./document-store.js";
import { workMethods } from "./pg-document-work.js";

/**
 * `channel` is the caller's to close. `onChange` is told of each document that was added, is ready, has failed, was cancelled
 * or deleted, once that is committed with its event; it must not throw.
 */
export function pgDocumentStore(
  channel: Channel,
  onChange: (document: DocumentRow) => void = () => undefined,
): DocumentStore {
  const apply = applyTo(channel, onChange);
  return {
    earlier: (owner, { requestId, requestHash }) =>
      earlierRequest(channel, owner, { documentId: "", requestId, requestHash }),
    async add(owner, input, quotas) {
      const outcome = await channel.transaction((tx) => add(tx, owner, input, quotas));
      if (outcome.kind === "added") onChange(outcome.document);
      return outcome;
    },
    get: (owner, documentId) => get(channel, owner, documentId),
    list: (owner, page, query) => list(channel, owner, page, query),
    readText: (owner, documentId, fromChar, maxChars) =>
      readText(channel, owner, documentId, fromChar, maxChars),
    cancel: async (owner, documentId) =>
      (await cancel(apply, owner, documentId)) ?? get(channel, owner, documentId),
    delete: async (owner, documentId) => (await deleteDocument(apply, owner, documentId)) !== undefined,
    ...workMethods(channel, apply),
  };
}

async function add(
  tx: Queryable,
  owner: Owner,
  input: NewDocument,
  quotas: DocumentQuotas,
): Promise<AddOutcome> {
  await lockOwner(tx, "documents", owner);
  const earlier = await earlierRequest(tx, owner, input);
  if (earlier) return earlier;
  const over = await overQuota(tx, owner, input, quotas);
  if (over) return { kind: "quota", which: over };
  const rows = await tx.query<RawDocument>(
    `insert into turnwire.source_documents (document_id, tenant_id, user_id, request_id, request_hash, title, media_type,
         tags, project_id, source, url, file_id, pending_text, size_bytes)
       values ($1, $2, $3, nullif($4, ''), $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) returning ${COLUMNS}`,
    [
      input.documentId,
      owner.tenantId,
      owner.userId,
      input.requestId,
      input.requestHash,
      input.title,
      input.mediaType,
      input.tags,
      input.projectId,
      input.source,
      input.url,
      input.fileId,
      input.text ?? null,
      input.sizeBytes,
    ],
  );
  const document = toRow(rows[0]!);
  await tell(tx, document, "document");
  return { kind: "added", document };
}

/** What an earlier call with this request_id, or this very call before its connection broke, has made. */
async function earlierRequest(
  tx: Queryable,
  owner: Owner,
  input: Pick<NewDocument, "documentId" | "requestId" | "requestHash">,
): Promise<EarlierOutcome | undefined> {
  const rows = await tx.query<RawDocument & { readonly request_hash: string }>(
    `select ${COLUMNS}, request_hash from turnwire.source_documents
     where tenant_id = $1 and user_id = $2 and (document_id = $3 or request_id = nullif($4, ''))`,
    [owner.tenantId, owner.userId, input.documentId, input.requestId],
  );
  if (!rows[0]) return undefined;
  if (rows[0].request_hash !== input.requestHash) return { kind: "conflict" };
  return { kind: "repeated", document: toRow(rows[0]) };
}

async function overQuota(
  tx: Queryable,
  owner: Owner,
  { source, sizeBytes }: NewDocument,
  quotas: DocumentQuotas,
): Promise<keyof DocumentQuotas | undefined> {
  const rows = await tx.query<{ documents: string; indexing: string; pages: string; bytes: string }>(
    `select count(*) as documents, count(*) filter (where status = ${INDEXING}) as indexing,
       count(*) filter (where status = ${INDEXING} and source = 'web') as pages, coalesce(sum(size_bytes), 0) as bytes
     from turnwire.source_documents where tenant_id = $1 and user_id = $2`,
    [owner.tenantId, owner.userId],
  );
  const used = rows[0]!;
  if (Number(used.documents) >= quotas.maxDocuments) return "maxDocuments";
  if (Number(used.indexing) >= quotas.maxIndexing) return "maxIndexing";
  const bytes = Number(used.bytes) + sizeBytes;
  if (bytes > quotas.maxBytes) return "maxBytes";
  const pages = Number(used.pages);
  const reserved = (source === "web" ? pages + 1 : pages) * quotas.pageBytes;
  if (bytes + reserved > quotas.maxBytes) return pages > 0 ? "pageBytes" : "maxBytes";
  return undefined;
}

async function get(channel: Queryable, owner: Owner, documentId: string): Promise<DocumentRow | undefined> {
  const rows = await channel.query<RawDocument>(
    `select ${COLUMNS} from turnwire.source_documents where document_id = $1 and tenant_id = $2 and user_id = $3`,
    [documentId, owner.tenantId, owner.userId],
  );
  return rows[0] && toRow(rows[0]);
}

async function list(channel: Channel, owner: Owner, page: Page, query: string): Promise<Paged<DocumentRow>> {
  const scope = ["source documents", owner.tenantId, owner.userId, query];
  const [createdMs, documentId] = startAfter(page, scope) ?? [null, null];
  const size = pageSize(page);
  const words = query.split(/\s+/).filter((word) => word !== "");
  const rows = await channel.query<RawDocument>(
    `select ${COLUMNS} from turnwire.source_documents
     where tenant_id = $1 and user_id = $2 and ($3::text[] = '{}' or title ilike all ($3::text[]))
       and ($4::timestamptz is null or (create_time, document_id) < ($4::timestamptz, $5))
     order by create_time desc, document_id desc limit $6`,
    [
      owner.tenantId,
      owner.userId,
      words.map((word) => `%${word.replace(/[\\%_]/g, "\\$&")}%`),
      createdMs === null ? null : new Date(createdMs as number),
      documentId as string,
      size + 1,
    ],
  );
  return toPage(rows, size, scope, (row) => [row.create_time.getTime(), row.document_id], toRow);
}

async function readText(
  channel: Channel,
  owner: Owner,
  documentId: string,
  fromChar: number,
  maxChars: number,
): Promise<readonly TextPart[]> {
  const rows = await channel.query<{
    chunk_index: number;
    start_char: number;
    end_char: number;
    text: string;
  }>(
    `select chunk_index, start_char, end_char, text from turnwire.passages
     where document_id = $1 and tenant_id = $2 and user_id = $3 and end_char > $4 and start_char < $4 + $5::integer
     order by start_char`,
    [documentId, owner.tenantId, owner.userId, fromChar, maxChars],
  );
  return rows.map((row) => ({
    index: row.chunk_index,
    start: row.start_char,
    end: row.end_char,
    text: row.text,
  }));
}

/** The status and the passages in one transaction: what has ended leaves nothing behind. */
function cancel(apply: Apply, owner: Owner, documentId: string): Promise<DocumentRow | undefined> {
  return apply(async (tx) => {
    const rows = await tx.query<RawDocument>(
      `update turnwire.source_documents set status = $4, worker = '', lease_until = null, pending_text = null, chunks = 0
       where document_id = $1 and tenant_id = $2 and user_id = $3 and status = ${INDEXING} returning ${COLUMNS}`,
      [documentId, owner.tenantId, owner.userId, DocumentStatus.CANCELLED],
    );
    if (rows[0]) await removePassages(tx, documentId);
    return rows[0] && toRow(rows[0]);
  });
}

function deleteDocument(apply: Apply, owner: Owner, documentId: string): Promise<DocumentRow | undefined> {
  return apply(async (tx) => {
    const rows = await tx.query<RawDocument>(
      `select ${COLUMNS} from turnwire.source_documents
       where document_id = $1 and tenant_id = $2 and user_id = $3 for update`,
      [documentId, owner.tenantId, owner.userId],
    );
    if (!rows[0]) return undefined;
    await removePassages(tx, documentId);
    await tx.query("delete from turnwire.source_documents where document_id = $1", [documentId]);
    return toRow(rows[0]);
  }, "document_deleted");
}

/** The documents' rows and passages in Postgres. */
import { DocumentStatus, type DocumentFailure } from "../../gen/turnwire/chat/v1/types_pb.js";
import type { Channel, Queryable } from "../store/db.js";
import { lockOwner } from "../store/owner-key.js";
import { pageSize, startAfter, toPage } from "../store/page-token.js";
import type { Page, Paged } from "../store/store.js";
import type { Passage } from "./chunker.js";
import type {
  AddOutcome,
  DocumentQuotas,
  DocumentRow,
  DocumentSource,
  DocumentStore,
  Lease,
  NewDocument,
  Owner,
  ReadDocument,
  TextPart,
} from "./document-store.js";
import { ABOUT_MARK, hasUnspaced, ownerTerm, repeatedWords, spaceOut } from "./terms.js";

const COLUMNS = `document_id, tenant_id, user_id, title, media_type, tags, project_id, source, url, file_id, status, failure,
  error, size_bytes, processed_bytes, chunks, create_time`;
const CLEAR_ROWS = 2_000;
const INDEXING = DocumentStatus.INDEXING;

interface RawDocument {
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

/** `channel` is the caller's to close. */
export function pgDocumentStore(channel: Channel): DocumentStore {
  return {
    add: (owner, input, quotas) => add(channel, owner, input, quotas),
    get: (owner, documentId) => get(channel, owner, documentId),
    list: (owner, page, query) => list(channel, owner, page, query),
    readText: (owner, documentId, fromChar, maxChars) =>
      readText(channel, owner, documentId, fromChar, maxChars),
    cancel: (owner, documentId) => cancel(channel, owner, documentId),
    delete: (owner, documentId) => deleteDocument(channel, owner, documentId),
    claim: (worker, leaseMs, notOwner) => claim(channel, worker, leaseMs, notOwner),
    renew: (lease, leaseMs) => renew(channel, lease, leaseMs),
    release: (lease) => release(channel, lease),
    pendingText: (lease) => pendingText(channel, lease),
    clear: (lease) => clear(channel, lease),
    addPassages: (lease, batch, about, processedBytes, leaseMs) =>
      addPassages(channel, lease, batch, about, processedBytes, leaseMs),
    finish: (lease, about) => finish(channel, lease, about),
    fail: (lease, failure, error) => fail(channel, lease, failure, error),
    settleIndex: async () => {
      await channel.query("select gin_clean_pending_list('turnwire.passages_by_terms')");
    },
  };
}

async function add(
  channel: Channel,
  owner: Owner,
  input: NewDocument,
  quotas: DocumentQuotas,
): Promise<AddOutcome> {
  return channel.transaction(async (tx) => {
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
    return { kind: "added", document: toRow(rows[0]!) };
  });
}

/** What an earlier call with this request_id, or this very call before its connection broke, has made. */
async function earlierRequest(
  tx: Queryable,
  owner: Owner,
  input: NewDocument,
): Promise<AddOutcome | undefined> {
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
async function cancel(channel: Channel, owner: Owner, documentId: string): Promise<DocumentRow | undefined> {
  const cancelled = await channel.transaction(async (tx) => {
    const rows = await tx.query<RawDocument>(
      `update turnwire.source_documents set status = $4, worker = '', lease_until = null, pending_text = null, chunks = 0
       where document_id = $1 and tenant_id = $2 and user_id = $3 and status = ${INDEXING} returning ${COLUMNS}`,
      [documentId, owner.tenantId, owner.userId, DocumentStatus.CANCELLED],
    );
    if (rows[0]) await removePassages(tx, documentId);
    return rows[0] && toRow(rows[0]);
  });
  return cancelled ?? get(channel, owner, documentId);
}

async function deleteDocument(channel: Channel, owner: Owner, documentId: string): Promise<boolean> {
  return channel.transaction(async (tx) => {
    const rows = await tx.query(
      "select from turnwire.source_documents where document_id = $1 and tenant_id = $2 and user_id = $3 for update",
      [documentId, owner.tenantId, owner.userId],
    );
    if (rows.length === 0) return false;
    await removePassages(tx, documentId);
    await tx.query("delete from turnwire.source_documents where document_id = $1", [documentId]);
    return true;
  });
}

async function claim(
  channel: Channel,
  worker: string,
  leaseMs: number,
  notOwner: Owner | undefined,
): Promise<Lease | undefined> {
  const rows = await channel.query<RawDocument & { readonly attempts: number }>(
    `update turnwire.source_documents set worker = $1, attempts = attempts + 1, processed_bytes = 0, chunks = 0,
       lease_until = clock_timestamp() + $2 * interval '1 millisecond'
     where document_id = (
       select document_id from turnwire.source_documents
       where status = ${INDEXING} and (lease_until is null or lease_until < clock_timestamp())
       order by (tenant_id = $3 and user_id = $4), create_time limit 1 for update skip locked)
     returning ${COLUMNS}, attempts`,
    [worker, leaseMs, notOwner?.tenantId ?? "", notOwner?.userId ?? ""],
    { repeat: false },
  );
  return rows[0] && { document: toRow(rows[0]), worker, attempts: rows[0].attempts };
}

/** The condition that a row is still the lease's; its parameters come first. */
const HELD = `document_id = $1 and worker = $2 and attempts = $3 and status = ${INDEXING}`;

function held({ document, worker, attempts }: Lease): [string, string, number] {
  return [document.documentId, worker, attempts];
}

async function renew(channel: Channel, lease: Lease, leaseMs: number): Promise<boolean> {
  const rows = await channel.query(
    `update turnwire.source_documents set lease_until = clock_timestamp() + $4 * interval '1 millisecond' where ${HELD} returning 1`,
    [...held(lease), leaseMs],
  );
  return rows.length > 0;
}

async function release(channel: Channel, lease: Lease): Promise<void> {
  await channel.query(
    `update turnwire.source_documents set worker = '', lease_until = null, attempts = attempts - 1 where ${HELD}`,
    held(lease),
  );
}

async function pendingText(channel: Channel, lease: Lease): Promise<string> {
  const rows = await channel.query<{ pending_text: string | null }>(
    `select pending_text from turnwire.source_documents where ${HELD}`,
    held(lease),
  );
  return rows[0]?.pending_text ?? "";
}

async function clear(channel: Channel, lease: Lease): Promise<boolean> {
  return channel.transaction(async (tx) => {
    // The row stays locked: nobody takes the document over while its passages go.
    const rows = await tx.query(
      `select from turnwire.source_documents where ${HELD} for no key update`,
      held(lease),
    );
    if (rows.length === 0) return false;
    await removePassages(tx, lease.document.documentId);
    return true;
  });
}

/** In statements that each end well within their time. The document's row must be locked, so that none is added. */
async function removePassages(tx: Queryable, documentId: string): Promise<void> {
  for (let removed = CLEAR_ROWS; removed === CLEAR_ROWS;) {
    const rows = await tx.query(
      `delete from turnwire.passages where document_id = $1 and chunk_index in (
         select chunk_index from turnwire.passages where document_id = $1 limit ${CLEAR_ROWS}) returning 1`,
      [documentId],
    );
    removed = rows.length;
  }
}

/**
 * The terms of a passage: its words, those of its headings and title with weight A and B; its owner's mark; and for the
 * words that it is about, their mark.
 */
const ADD_PASSAGES = {
  name: "add_passages",
  text: `
    with document as (
      update turnwire.source_documents set processed_bytes = $4, chunks = chunks + cardinality($6::int[]),
        lease_until = clock_timestamp() + $5 * interval '1 millisecond'
      where ${HELD} returning document_id, tenant_id, user_id),
    added as (
      insert into turnwire.passages (document_id, chunk_index, tenant_id, user_id, start_char, end_char, page, heading, text, terms)
      select d.document_id, p.chunk_index, d.tenant_id, d.user_id, p.start_char, p.end_char, p.page, p.heading, p.text,
        setweight(to_tsvector($14::regconfig, p.search_heading), 'A') || setweight(to_tsvector($14::regconfig, $15), 'B')
        || to_tsvector($14::regconfig, coalesce(p.search_text, p.text))
        || array_to_tsvector($16::text || array(
          select lexeme || $17 from unnest(to_tsvector($14::regconfig, p.about || ' ' || p.search_heading))))
      from document d, unnest($6::int[], $7::int[], $8::int[], $9::int[], $10::text[], $11::text[], $12::text[], $13::text[], $18::text[])
        as p (chunk_index, start_char, end_char, page, heading, text, search_text, search_heading, about))
    select count(*) as held from document`,
};

async function addPassages(
  channel: Channel,
  lease: Lease,
  batch: readonly Passage[],
  about: ReadDocument,
  processedBytes: number,
  leaseMs: number,
): Promise<boolean> {
  const rows = await channel.query<{ held: string }>(
    ADD_PASSAGES,
    [
      ...held(lease),
      processedBytes,
      leaseMs,
      batch.map((passage) => passage.index),
      batch.map((passage) => passage.start),
      batch.map((passage) => passage.end),
      batch.map((passage) => passage.page),
      batch.map((passage) => passage.heading),
      batch.map((passage) => passage.text),
      batch.map(({ text }) => (hasUnspaced(text) ? spaceOut(text) : null)), // the same text is not sent twice
      batch.map((passage) => spaceOut(passage.heading)),
      about.language,
      spaceOut(about.title),
      ownerTerm(lease.document.owner),
      ABOUT_MARK,
      batch.map((passage) => repeatedWords(passage.text)),
    ],
    { repeat: false }, // a second time would break the primary key; the attempt begins anew instead
  );
  return rows[0]!.held === "1";
}

async function finish(channel: Channel, lease: Lease, about: ReadDocument): Promise<DocumentRow | undefined> {
  const rows = await channel.query<RawDocument>(
    `update turnwire.source_documents set status = $4, title = $5, media_type = $6, language = $7, size_bytes = $8,
       processed_bytes = $8, worker = '', lease_until = null, pending_text = null
     where ${HELD} returning ${COLUMNS}`,
    [...held(lease), DocumentStatus.READY, about.title, about.mediaType, about.language, about.sizeBytes],
  );
  return rows[0] && toRow(rows[0]);
}

async function fail(
  channel: Channel,
  lease: Lease,
  failure: DocumentFailure,
  error: string,
): Promise<DocumentRow | undefined> {
  return channel.transaction(async (tx) => {
    const rows = await tx.query<RawDocument>(
      `update turnwire.source_documents set status = $4, failure = $5, error = $6, worker = '', lease_until = null,
         pending_text = null, chunks = 0
       where ${HELD} returning ${COLUMNS}`,
      [...held(lease), DocumentStatus.FAILED, failure, error],
    );
    if (rows[0]) await removePassages(tx, lease.document.documentId);
    return rows[0] && toRow(rows[0]);
  });
}

function toRow(raw: RawDocument): DocumentRow {
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

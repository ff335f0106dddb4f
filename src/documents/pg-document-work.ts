/** What a worker does with a document while it has a lease on it. Every write names the lease. */
import { DocumentStatus, type DocumentFailure } from "../../gen/turnwire/chat/v1/types_pb.js";
import type { Owner } from "../lib/rpc/service-binding.js";
import type { Channel } from "../store/db.js";
import type { Passage } from "./chunker.js";
import { COLUMNS, INDEXING, removePassages, toRow, type Apply, type RawDocument } from "./document-rows.js";
import type { DocumentRow, DocumentStore, Lease, ReadDocument } from "./document-store.js";
import { ABOUT_MARK, indexable, ownerTerm, repeatedWords } from "./terms.js";
import { otherForms } from "./word-forms.js";

type WorkMethods = Pick<
  DocumentStore,
  "claim" | "renew" | "release" | "pendingText" | "clear" | "addPassages" | "finish" | "fail" | "settleIndex"
>;

export function workMethods(channel: Channel, apply: Apply): WorkMethods {
  return {
    claim: (worker, leaseMs, notOwner) => claim(channel, worker, leaseMs, notOwner),
    renew: (lease, leaseMs) => renew(channel, lease, leaseMs),
    release: (lease) => release(channel, lease),
    pendingText: (lease) => pendingText(channel, lease),
    clear: (lease) => clear(channel, lease),
    addPassages: (lease, batch, about, processedBytes, leaseMs) =>
      addPassages(channel, lease, batch, about, processedBytes, leaseMs),
    finish: (lease, about) => finish(apply, lease, about),
    fail: (lease, failure, error) => fail(apply, lease, failure, error),
    settleIndex: async () => {
      await channel.query("select gin_clean_pending_list('turnwire.passages_by_terms')");
    },
  };
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

/**
 * The terms of a passage: its words and other forms of them, those of its headings and title with weight A and B; its owner's mark; and for the
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
        || to_tsvector($14::regconfig, coalesce(p.search_text, p.text)) || to_tsvector($14::regconfig, p.other_forms)
        || array_to_tsvector($16::text || array(
          select lexeme || $17 from unnest(to_tsvector($14::regconfig, p.about || ' ' || p.search_heading))))
      from document d, unnest($6::int[], $7::int[], $8::int[], $9::int[], $10::text[], $11::text[], $12::text[], $13::text[], $18::text[],
        $19::text[]) as p (chunk_index, start_char, end_char, page, heading, text, search_text, search_heading, about, other_forms))
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
      batch.map(({ text }) => unlessSame(text, indexable(text))), // the same text is not sent twice
      batch.map((passage) => indexable(passage.heading)),
      about.language,
      titleWords(about),
      ownerTerm(lease.document.owner),
      ABOUT_MARK,
      batch.map((passage) => repeatedWords(passage.text)),
      batch.map((passage) => otherForms(`${passage.heading}\n${passage.text}`)),
    ],
    { repeat: false }, // a second time would break the primary key; the attempt begins anew instead
  );
  return rows[0]!.held === "1";
}

/** What is searched for as a document's title: it, and the name of its file or page. */
function titleWords({ title, name }: ReadDocument): string {
  const all = `${title} ${name}`;
  return indexable(`${all} ${otherForms(all)}`);
}

function unlessSame(text: string, other: string): string | null {
  return other === text ? null : other;
}

function finish(apply: Apply, lease: Lease, about: ReadDocument): Promise<DocumentRow | undefined> {
  return apply(async (tx) => {
    const rows = await tx.query<RawDocument>(
      `update turnwire.source_documents set status = $4, title = $5, media_type = $6, language = $7, size_bytes = $8,
         processed_bytes = $8, worker = '', lease_until = null, pending_text = null
       where ${HELD} returning ${COLUMNS}`,
      [...held(lease), DocumentStatus.READY, about.title, about.mediaType, about.language, about.sizeBytes],
    );
    return rows[0] && toRow(rows[0]);
  });
}

function fail(
  apply: Apply,
  lease: Lease,
  failure: DocumentFailure,
  error: string,
): Promise<DocumentRow | undefined> {
  return apply(async (tx) => {
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

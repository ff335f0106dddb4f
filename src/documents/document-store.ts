/** The port of the documents' rows: what the service and the ingest need of Postgres. Reads and writes are per principal. */
import type { DocumentFailure, DocumentStatus } from "../../gen/turnwire/chat/v1/types_pb.js";
import type { Owner } from "../lib/rpc/service-binding.js";
import type { Page, Paged } from "../store/store.js";
import type { Passage } from "./chunker.js";

/** Kind of origin. */
export type DocumentSource = "text" | "upload" | "web";

export interface DocumentRow {
  readonly documentId: string;
  readonly owner: Owner;
  readonly title: string;
  readonly mediaType: string;
  readonly tags: readonly string[];
  readonly projectId: string;
  readonly source: DocumentSource;
  /** "" unless source is "web". */
  readonly url: string;
  /** "" unless source is "upload". */
  readonly fileId: string;
  readonly status: DocumentStatus;
  readonly failure: DocumentFailure;
  readonly error: string;
  readonly sizeBytes: number;
  readonly processedBytes: number;
  readonly chunks: number;
  readonly createTime: Date;
}

export interface NewDocument extends Pick<
  DocumentRow,
  "documentId" | "title" | "mediaType" | "tags" | "projectId" | "source" | "url" | "fileId" | "sizeBytes"
> {
  /** "" = not idempotent. */
  readonly requestId: string;
  readonly requestHash: string;
  /** The text itself, for source "text". */
  readonly text: string | undefined;
}

export interface DocumentQuotas {
  readonly maxDocuments: number;
  /** Documents that wait or are being indexed. */
  readonly maxIndexing: number;
  /** Of all documents together, as they were added. */
  readonly maxBytes: number;
  /** What a page counts that is not read yet: as much as it may have. */
  readonly pageBytes: number;
}

export type EarlierOutcome =
  { readonly kind: "repeated"; readonly document: DocumentRow } | { readonly kind: "conflict" };

export type AddOutcome =
  | EarlierOutcome
  | { readonly kind: "added"; readonly document: DocumentRow }
  /** "pageBytes": the pages that are still read may be too much together. */
  | { readonly kind: "quota"; readonly which: keyof DocumentQuotas };

/** What a worker holds while it indexes; every write names it, and is refused once it is lost. */
export interface Lease {
  readonly document: DocumentRow;
  readonly worker: string;
  /** How often indexing was begun, this time included. */
  readonly attempts: number;
}

/** What is known of a document once it was read. */
export interface ReadDocument {
  readonly title: string;
  /** Of its file or page, by which it is found too; may be empty. */
  readonly name: string;
  readonly mediaType: string;
  readonly language: string;
  readonly sizeBytes: number;
}

/** A passage as a part of the text. */
export type TextPart = Pick<Passage, "index" | "start" | "end" | "text">;

export interface DocumentStore {
  /** What an earlier request with this request_id has come to; undefined = there was none. */
  earlier(
    owner: Owner,
    request: Pick<NewDocument, "requestId" | "requestHash">,
  ): Promise<EarlierOutcome | undefined>;
  add(owner: Owner, input: NewDocument, quotas: DocumentQuotas): Promise<AddOutcome>;
  get(owner: Owner, documentId: string): Promise<DocumentRow | undefined>;
  /** Newest first; `query`: words of the title. */
  list(owner: Owner, page: Page, query: string): Promise<Paged<DocumentRow>>;
  /** Passages from the one that holds the position, until there are `maxChars` characters; [] = beyond the end. */
  readText(
    owner: Owner,
    documentId: string,
    fromChar: number,
    maxChars: number,
  ): Promise<readonly TextPart[]>;
  /** Cancels what is being indexed; undefined = not there. What is indexed or failed stays as it is. */
  cancel(owner: Owner, documentId: string): Promise<DocumentRow | undefined>;
  delete(owner: Owner, documentId: string): Promise<boolean>;

  // ---- the worker's -----------------------------------------------------------------------------------------------
  /** The next document that nobody indexes; of another owner than `notOwner` if there is one. */
  claim(worker: string, leaseMs: number, notOwner: Owner | undefined): Promise<Lease | undefined>;
  /** False = lost: cancelled, deleted, or another's. */
  renew(lease: Lease, leaseMs: number): Promise<boolean>;
  /** Gives it back unfinished, as if it had not been begun. */
  release(lease: Lease): Promise<void>;
  pendingText(lease: Lease): Promise<string>;
  /** Removes what an earlier attempt left. False = lost, nothing was removed. */
  clear(lease: Lease): Promise<boolean>;
  /** Adds passages, says how far it got and renews the lease. False = lost, nothing was added. */
  addPassages(
    lease: Lease,
    batch: readonly Passage[],
    about: ReadDocument,
    processedBytes: number,
    leaseMs: number,
  ): Promise<boolean>;
  /** undefined = lost. */
  finish(lease: Lease, about: ReadDocument): Promise<DocumentRow | undefined>;
  /** Ends it as FAILED and removes its passages; undefined = lost. */
  fail(lease: Lease, failure: DocumentFailure, error: string): Promise<DocumentRow | undefined>;
  /** Nothing waits any more: moves what the index still holds back into its place. */
  settleIndex(): Promise<void>;
}

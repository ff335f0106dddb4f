/** DocumentService: adds, shows, lists, cancels and deletes the caller's documents. Indexing them is ingest.ts. */
import { createHash } from "node:crypto";
import { create, toBinary } from "@bufbuild/protobuf";
import {
  AddDocumentRequestSchema,
  AddDocumentResponseSchema,
  CancelDocumentResponseSchema,
  DeleteDocumentResponseSchema,
  DocumentService,
  GetDocumentResponseSchema,
  ListDocumentsResponseSchema,
  type AddDocumentRequest,
} from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../lib/errors.js";
import { bindService, type Principal, type ServiceBinding } from "../lib/rpc/service-binding.js";
import type { Store } from "../store/store.js";
import type {
  AddOutcome,
  DocumentQuotas,
  DocumentRow,
  DocumentStore,
  NewDocument,
} from "./document-store.js";
import { DEFAULT_INGEST_LIMITS, type Ingest } from "./ingest.js";
import { viewDocument } from "./view-document.js";

export interface DocumentServiceDeps {
  readonly store: DocumentStore;
  readonly files: Pick<Store, "getFile">;
  readonly ingest: Pick<Ingest, "wake" | "abandon">;
  readonly newId: () => string;
  readonly quotas?: Partial<DocumentQuotas>;
}

export const DEFAULT_QUOTAS: DocumentQuotas = {
  maxDocuments: 10_000,
  maxIndexing: 2_000,
  maxBytes: 2 * 1024 * 1024 * 1024,
  pageBytes: DEFAULT_INGEST_LIMITS.maxBytes,
};

/** Code points of one part of GetDocument: at most 512 KiB as UTF-8. */
const PART_CHARS = 128 * 1024;

export function createDocumentService(deps: DocumentServiceDeps): ServiceBinding {
  const { store, ingest } = deps;
  const quotas = { ...DEFAULT_QUOTAS, ...deps.quotas };
  return bindService(DocumentService, {
    async addDocument(request, { principal }) {
      const outcome = await add(deps, principal, request, quotas);
      const document = addedOrThrow(outcome, quotas);
      ingest.wake();
      return create(AddDocumentResponseSchema, { document: viewDocument(document) });
    },

    async getDocument(request, { principal }) {
      const from = readPosition(request.partToken);
      const document = await store.get(principal, request.documentId);
      if (!document) throw noDocument(request.documentId);
      const parts = await store.readText(principal, request.documentId, from, PART_CHARS);
      const text = parts.map((part) => part.text).join("");
      const last = parts.at(-1);
      return create(GetDocumentResponseSchema, {
        document: viewDocument(document),
        text: afterCodePoints(text, Math.max(0, from - (parts[0]?.start ?? from))),
        nextPartToken: last && last.index + 1 < document.chunks ? String(last.end) : "",
      });
    },

    async listDocuments(request, { principal }) {
      const page = { size: request.pageSize || 50, token: request.pageToken };
      const { rows, nextToken } = await store.list(principal, page, request.query);
      return create(ListDocumentsResponseSchema, {
        documents: rows.map(viewDocument),
        nextPageToken: nextToken,
      });
    },

    async cancelDocument(request, { principal }) {
      const document = await store.cancel(principal, request.documentId);
      if (!document) throw noDocument(request.documentId);
      ingest.abandon(request.documentId);
      return create(CancelDocumentResponseSchema, { document: viewDocument(document) });
    },

    async deleteDocument(request, { principal }) {
      if (!(await store.delete(principal, request.documentId))) throw noDocument(request.documentId);
      ingest.abandon(request.documentId);
      return create(DeleteDocumentResponseSchema);
    },
  });
}

/** The earlier request comes first: its answer stays the same when its file is gone. */
async function add(
  deps: DocumentServiceDeps,
  principal: Principal,
  request: AddDocumentRequest,
  quotas: DocumentQuotas,
): Promise<AddOutcome> {
  const { requestId } = request;
  const requestHash = createHash("sha256").update(toBinary(AddDocumentRequestSchema, request)).digest("hex");
  const earlier = requestId && (await deps.store.earlier(principal, { requestId, requestHash }));
  if (earlier) return earlier;
  return deps.store.add(principal, await toNewDocument(deps, principal, request, requestHash), quotas);
}

async function toNewDocument(
  { files, newId }: DocumentServiceDeps,
  principal: Principal,
  request: AddDocumentRequest,
  requestHash: string,
): Promise<NewDocument> {
  const { source } = request;
  const common = {
    documentId: newId(),
    requestId: request.requestId,
    requestHash,
    title: request.title,
    mediaType: request.mediaType,
    tags: request.tags,
    projectId: request.projectId,
    url: "",
    fileId: "",
    text: undefined,
  };
  switch (source.case) {
    case "text": {
      const text = source.value.replaceAll("\0", "\ufffd");
      const mediaType = request.mediaType || "text/plain";
      return { ...common, source: "text", mediaType, text, sizeBytes: Buffer.byteLength(text) };
    }
    case "fileId": {
      const file = await files.getFile(principal, source.value);
      if (!file)
        throw new TurnError(ErrorCode.NOT_FOUND, {
          message: `no file ${source.value}`,
          details: { field: "file_id" },
        });
      return {
        ...common,
        source: "upload",
        fileId: file.fileId,
        title: request.title || file.name,
        mediaType: file.mediaType,
        sizeBytes: Number(file.sizeBytes),
      };
    }
    case "url":
      return { ...common, source: "web", url: source.value, sizeBytes: 0 };
    case undefined:
      throw new TurnError(ErrorCode.INVALID_ARGUMENT, {
        message: "source: give text, file_id or url",
        details: { field: "source" },
      });
  }
}

function addedOrThrow(outcome: AddOutcome, quotas: DocumentQuotas): DocumentRow {
  switch (outcome.kind) {
    case "added":
    case "repeated":
      return outcome.document;
    case "conflict":
      throw new TurnError(ErrorCode.REQUEST_CONFLICT, { details: { field: "request_id" } });
    case "quota":
      throw overQuota(outcome.which, quotas);
  }
}

function overQuota(which: keyof DocumentQuotas, quotas: DocumentQuotas): TurnError {
  switch (which) {
    case "maxDocuments":
      return new TurnError(ErrorCode.SIZE_LIMIT, {
        message: `you have ${quotas.maxDocuments} documents, which is the limit: delete some`,
      });
    case "maxBytes":
      return new TurnError(ErrorCode.SIZE_LIMIT, {
        message: `your documents may have at most ${Math.floor(quotas.maxBytes / (1024 * 1024))} MiB together: delete some`,
      });
    case "pageBytes":
      return new TurnError(ErrorCode.OVERLOADED, {
        message: `of the ${Math.floor(quotas.maxBytes / (1024 * 1024))} MiB that your documents may have, the pages that are still read may need the rest: wait until some are ready`,
        retryAfterMs: 10_000,
      });
    case "maxIndexing":
      return new TurnError(ErrorCode.OVERLOADED, {
        message: `${quotas.maxIndexing} of your documents are still being indexed: wait until some are ready`,
        retryAfterMs: 10_000,
      });
  }
}

/** Greatest position: an integer of Postgres. */
const MAX_POSITION = 2_000_000_000;

function readPosition(token: string): number {
  if (token === "") return 0;
  const position = Number(token);
  if (/^\d{1,10}$/.test(token) && position <= MAX_POSITION) return position;
  throw new TurnError(ErrorCode.INVALID_ARGUMENT, {
    message: "part_token: a position in the text is needed, or next_part_token of the part before",
    details: { field: "part_token" },
  });
}

/** What follows the first `count` code points. */
function afterCodePoints(text: string, count: number): string {
  const simple = !/[\ud800-\udfff]/.test(text.slice(0, count));
  return text.slice(simple ? count : [...text].slice(0, count).join("").length);
}

function noDocument(documentId: string): TurnError {
  return new TurnError(ErrorCode.NOT_FOUND, {
    message: `no document ${documentId}`,
    details: { field: "document_id" },
  });
}

/** What the documents' suites stand on: both services over a real Postgres and behind a real edge, with an ingest. */
import { createClient, type Client } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { onTestFinished } from "vitest";
import { DocumentService, FileService } from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import { DocumentStatus, type SourceDocument } from "../../gen/turnwire/chat/v1/types_pb.js";
import { createDocumentService, type DocumentServiceDeps } from "../../src/documents/document-service.js";
import { Ingest, type IngestOptions } from "../../src/documents/ingest.js";
import { pgDocumentStore } from "../../src/documents/pg-document-store.js";
import { createFilesHandler } from "../../src/edge/files-handler.js";
import { createSafeFetch } from "../../src/egress/safe-fetch.js";
import { createExtractor, type Extractor, type ExtractorOptions } from "../../src/extract/extractor.js";
import { createFileService } from "../../src/files/file-service.js";
import { Uploads, type UploadsOptions } from "../../src/files/uploads.js";
import { systemClock } from "../../src/lib/clock.js";
import { newId } from "../../src/lib/ids.js";
import { silentLogger, type Logger } from "../../src/lib/log.js";
import type { Authenticate, Principal } from "../../src/lib/rpc/service-binding.js";
import { Channel } from "../../src/store/db.js";
import type { Store } from "../../src/store/store.js";
import { pgUploadStore } from "../../src/store/uploads.js";
import { useEdge } from "../contract/edge-fixture.js";

export interface DocumentsOptions {
  readonly url: string;
  readonly store: Store;
  readonly allowHosts?: readonly string[];
  readonly ingest?: Partial<IngestOptions>;
  readonly extractor?: ExtractorOptions;
  readonly quotas?: DocumentServiceDeps["quotas"];
  readonly uploadLimits?: UploadsOptions["limits"];
  /** Of file transfers over HTTP. */
  readonly logger?: Logger;
  /** False: nothing is indexed before `ingest.start()`. Default true. */
  readonly started?: boolean;
}

export interface Caller {
  readonly documents: Client<typeof DocumentService>;
  readonly files: Client<typeof FileService>;
}

export interface TestDocuments extends Caller {
  readonly httpUrl: string;
  readonly ingest: Ingest;
  readonly extractor: Extractor;
  readonly channel: Channel;
  /** Another user: "tenant/user". The fixture's own is "acme/alice". */
  as(user: string): Caller;
  /** Waits until the document is no longer being indexed. */
  settled(documentId: string, user?: string): Promise<SourceDocument>;
  close(): Promise<void>;
}

/** One replica's document and file services, gone when the test ends. */
export async function useDocuments(options: DocumentsOptions): Promise<TestDocuments> {
  const channel = new Channel(options.url, 6, silentLogger);
  const settling = new Set<() => void>();
  const store = pgDocumentStore(channel, (document) => {
    options.store.wakeWatchers(document.owner);
    for (const look of settling) look();
  });
  const extractor = createExtractor(options.extractor);
  const ingest = new Ingest({
    store,
    files: options.store,
    fetch: createSafeFetch({ allowHosts: options.allowHosts ?? [], totalTimeoutMs: 5_000 }),
    extractor,
    clock: systemClock,
    logger: silentLogger,
    worker: newId(),
    ...options.ingest,
  });
  const uploads = new Uploads({ store: pgUploadStore(channel), newId, limits: options.uploadLimits });
  const authenticate: Authenticate = (headers) => principalOf(headers.get("x-user") ?? "acme/alice");
  const edge = await useEdge(
    [
      createDocumentService({ store, files: options.store, ingest, newId, quotas: options.quotas }),
      createFileService({ reads: options.store, uploads }),
    ],
    {
      authenticate,
      files: createFilesHandler({
        uploads,
        reads: options.store,
        authenticate,
        logger: options.logger ?? silentLogger,
      }),
    },
  );
  if (options.started !== false) ingest.start();
  let closing: Promise<void> | undefined;
  const close = (): Promise<void> =>
    (closing ??= (async () => {
      await ingest.close();
      await extractor.close();
      await channel.close();
    })());
  onTestFinished(close);
  const as = (user: string): Caller => clientsOf(edge.url, user);
  const own = as("acme/alice");
  return {
    ...own,
    httpUrl: edge.url,
    ingest,
    extractor,
    channel,
    as,
    close,
    async settled(documentId, user = "acme/alice") {
      for (;;) {
        const woken = new Promise<void>((resolve) => {
          settling.add(resolve);
          setTimeout(resolve, 50); // another replica may have finished it
        });
        const { document } = await as(user).documents.getDocument({ documentId });
        if (document!.status !== DocumentStatus.INDEXING) return document!;
        await woken;
      }
    },
  };
}

function principalOf(user: string): Principal {
  const [tenantId = "", userId = ""] = user.split("/");
  return { tenantId, userId, admin: false };
}

function clientsOf(baseUrl: string, user: string): Caller {
  const transport = createConnectTransport({
    baseUrl,
    httpVersion: "2",
    interceptors: [
      (next) => (request) => {
        request.header.set("x-user", user);
        return next(request);
      },
    ],
  });
  return { documents: createClient(DocumentService, transport), files: createClient(FileService, transport) };
}

/** Uploads bytes in parts; answers the file's id. */
export async function upload(
  files: Client<typeof FileService>,
  data: Uint8Array,
  about: { readonly name: string; readonly mediaType?: string; readonly partBytes?: number },
): Promise<string> {
  const partBytes = about.partBytes ?? 1024 * 1024;
  const uploadId = newId();
  for (let at = 0; ; at += partBytes) {
    const part = data.subarray(at, at + partBytes);
    const last = at + partBytes >= data.length;
    const { file } = await files.uploadFile({
      uploadId,
      name: about.name,
      mediaType: about.mediaType ?? "",
      offset: String(at),
      data: part,
      last,
    });
    if (last) return file!.fileId;
  }
}

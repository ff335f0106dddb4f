/** Documents and files of the chat service: their stores over connections of their own, the ingest, both RPC services. */
import { createDocumentService } from "../documents/document-service.js";
import { Ingest, type IngestLimits } from "../documents/ingest.js";
import { pgDocumentStore } from "../documents/pg-document-store.js";
import { createSafeFetch } from "../egress/safe-fetch.js";
import { createExtractor } from "../extract/extractor.js";
import { createFileService } from "../files/file-service.js";
import { ABANDONED_MS, Uploads } from "../files/uploads.js";
import { systemClock } from "../lib/clock.js";
import { newId } from "../lib/ids.js";
import type { Logger } from "../lib/log.js";
import type { ServiceBinding } from "../lib/rpc/service-binding.js";
import { Channel } from "../store/db.js";
import type { Store } from "../store/store.js";
import { pgUploadStore } from "../store/uploads.js";
import type { DocumentIndex } from "../tool/builtin/document-index.js";
import { openDocumentIndex } from "./document-index.js";

export interface StartDocumentsOptions {
  readonly databaseUrl: string;
  readonly store: Store;
  readonly logger: Logger;
  /** Name of this process in leases. */
  readonly incarnation: string;
  /** "host:port" pairs that documents may be read from although they are private. */
  readonly allowHosts: readonly string[];
  readonly limits?: Partial<IngestLimits>;
}

export interface RunningDocuments {
  readonly services: readonly ServiceBinding[];
  readonly uploads: Uploads;
  readonly index: DocumentIndex;
  close(): Promise<void>;
}

const CONNECTIONS = 6;
const FETCH_TIMEOUT_MS = 60_000;
/** What extracting one document may take: files are larger than what open_url reads, and nobody waits for them. */
const EXTRACTION = { maxProcesses: 2, timeoutMs: 60_000, maxHeapMiB: 512, maxMiB: 1_024 };
const SWEEP_MS = 600_000;
const SWEEP_UPLOADS = 100;

/** Begins to index what waits. */
export function startDocuments(options: StartDocumentsOptions): RunningDocuments {
  const { store: files, logger } = options;
  const channel = new Channel(options.databaseUrl, CONNECTIONS, logger);
  const store = pgDocumentStore(channel, ({ owner }) => files.wakeWatchers(owner));
  const uploadStore = pgUploadStore(channel);
  const uploads = new Uploads({ store: uploadStore, newId });
  const extractor = createExtractor(EXTRACTION);
  const index = openDocumentIndex(options.databaseUrl, logger);
  const ingest = new Ingest({
    store,
    files,
    fetch: createSafeFetch({ allowHosts: options.allowHosts, totalTimeoutMs: FETCH_TIMEOUT_MS }),
    extractor,
    clock: systemClock,
    logger,
    worker: options.incarnation,
    limits: options.limits,
  });
  ingest.start();
  const sweeping = setInterval(() => {
    uploadStore.deleteAbandoned(ABANDONED_MS, SWEEP_UPLOADS).catch((error: unknown) => {
      logger.warn({ err: error }, "abandoned uploads were not removed");
    });
  }, SWEEP_MS);
  sweeping.unref();
  return {
    services: [
      createDocumentService({ store, files, ingest, newId }),
      createFileService({ reads: files, uploads }),
    ],
    uploads,
    index,
    async close() {
      clearInterval(sweeping);
      await ingest.close();
      await extractor.close();
      await Promise.all([channel.close(), index.close()]);
    },
  };
}

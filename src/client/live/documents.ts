/**
 * The caller's documents and those on their way in. Owns the list as far as it was read, and the uploads of this tab; the
 * list follows the events of the service.
 *
 * D1 a document that is known stays known until it is deleted, however the list is read. D2 one that is indexed, failed or
 * cancelled is never shown as being indexed again. D3 few uploads at a time; what is lost on the way is sent again.
 */
import type { Client } from "@connectrpc/connect";
import type {
  AddDocumentRequest,
  DocumentService,
  FileService,
  WatchResponse,
} from "../../../gen/turnwire/chat/v1/chat_service_pb.js";
import { DocumentStatus, type SourceDocument } from "../../../gen/turnwire/chat/v1/types_pb.js";
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { Slots } from "../../lib/slots.js";
import { toClientError, type TurnwireClientError } from "../errors.js";
import { newRequestId } from "../request-id.js";
import { retryCall } from "../retry-call.js";
import { uploadFile, type UploadSource } from "../upload-file.js";
import type { HubLink } from "./hub-link.js";
import { Observable } from "./observable.js";
import { PagedList } from "./paged-list.js";

/** A document on its way in. */
export interface Incoming {
  readonly key: string;
  readonly name: string;
  /** 0 = not known. */
  readonly size: number;
  /** Bytes that are uploaded. */
  readonly bytes: number;
  /** Once the service has it: the document then tells how indexing goes. */
  readonly documentId: string;
  readonly error: TurnwireClientError | undefined;
}

export interface DocumentsView {
  readonly state: "loading" | "ready" | "failed";
  readonly error: TurnwireClientError | undefined;
  /** Newest first. */
  readonly documents: readonly SourceDocument[];
  readonly incoming: readonly Incoming[];
  readonly hasMore: boolean;
}

export interface DocumentsDeps {
  readonly documents: Client<typeof DocumentService>;
  readonly files: Pick<Client<typeof FileService>, "uploadFile">;
  readonly link: HubLink;
}

/** Where a document comes from. */
export type DocumentSource = Exclude<AddDocumentRequest["source"], { case: undefined }>;

interface AddedDocument {
  readonly title: string;
  readonly source: DocumentSource;
  readonly tags?: string[];
  readonly mediaType?: string;
}

const PAGE_SIZE = 50;
/** The service takes a limited number of uploads from one user; a few at a time use the line as well as many. */
const MAX_UPLOADS = 3;
/** Documents whose progress is asked for at once. */
const MAX_FOLLOWED = 20;
const MAX_READS = 3;
/** A place that no text reaches: GetDocument then answers without text. */
const BEYOND = "2000000000";

export class Documents {
  readonly view = new Observable<DocumentsView>({
    state: "loading",
    error: undefined,
    documents: [],
    incoming: [],
    hasMore: false,
  });
  readonly #deps: DocumentsDeps;
  readonly #aborts = new Map<string, AbortController>();
  readonly #uploads = new Slots(MAX_UPLOADS);
  readonly #list: PagedList<SourceDocument>;
  #isWanted = false;
  #following: Promise<void> | undefined;

  constructor(deps: DocumentsDeps) {
    this.#deps = deps;
    this.#list = new PagedList({
      fetch: async (pageToken) => {
        const page = await deps.documents.listDocuments({ pageSize: PAGE_SIZE, pageToken });
        return { items: page.documents, nextPageToken: page.nextPageToken };
      },
      idOf: ({ documentId }) => documentId,
      timeOf: addedMs,
      merge: (known, next) => (isIndexing(next) && !isIndexing(known) ? known : next),
    });
    deps.link.onMessage((message) => this.#onWatch(message));
    deps.link.status.subscribe(() => {
      if (this.#isWanted && deps.link.status.get().kind === "online") void this.reload();
    });
  }

  /** Reads the list if nobody has yet. */
  want(): void {
    if (this.#isWanted) return;
    this.#isWanted = true;
    void this.reload();
  }

  /** Reads the newest anew. */
  async reload(): Promise<void> {
    await this.#read(() => this.#list.reload());
  }

  async loadMore(): Promise<void> {
    await this.#read(() => this.#list.loadMore());
  }

  /** Asks how the indexing goes, of those that have waited longest; what becomes of the others, events tell. */
  follow(): Promise<void> {
    const oldest = this.#list.items.filter(isIndexing).slice(-MAX_FOLLOWED);
    const slots = new Slots(MAX_READS);
    const ask = (): Promise<unknown> =>
      Promise.all(oldest.map(({ documentId }) => slots.run(() => this.#ask(documentId))));
    this.#following ??= ask()
      .then(() => this.#publish())
      .finally(() => (this.#following = undefined));
    return this.#following;
  }

  /** Uploads a file and has it indexed. The key names it in `view.incoming`. */
  addFile(file: UploadSource): string {
    return this.#add(file.name, file.size, async (key, signal) => {
      const onProgress = (bytes: number): void => this.#change(key, { bytes });
      const { fileId } = await uploadFile(this.#deps.files, file, { signal, onProgress });
      return { title: file.name, source: { case: "fileId", value: fileId } };
    });
  }

  addText(title: string, text: string): string {
    const source: DocumentSource = { case: "text", value: text };
    return this.#add(title || "Text", text.length, () => Promise.resolve({ title, source }));
  }

  addUrl(url: string): string {
    return this.#add(url, 0, () => Promise.resolve({ title: "", source: { case: "url", value: url } }));
  }

  /** Adds anew what could not be indexed, from its file or address, and then deletes what failed. */
  retry(failed: SourceDocument): string {
    const { documentId, title, tags, mediaType, fileId, url } = failed;
    const source: DocumentSource = url ? { case: "url", value: url } : { case: "fileId", value: fileId };
    const add = (): Promise<AddedDocument> =>
      Promise.resolve({ title: url ? "" : title, tags, mediaType: url ? "" : mediaType, source });
    return this.#add(title || url, 0, add, () => this.delete(documentId));
  }

  /** Takes an upload out: stops it while it runs, forgets it when it has failed. */
  cancelIncoming(key: string): void {
    this.#aborts.get(key)?.abort();
    this.#set({ incoming: this.view.get().incoming.filter((each) => each.key !== key) });
  }

  /** Stops the indexing of a document. */
  async cancel(documentId: string): Promise<void> {
    const { document } = await this.#deps.documents.cancelDocument({ documentId });
    if (document) this.#list.put(document);
    this.#publish();
  }

  async delete(documentId: string): Promise<void> {
    await this.#deps.documents.deleteDocument({ documentId });
    this.#list.remove(documentId);
    this.#publish();
  }

  #add(
    name: string,
    size: number,
    prepare: (key: string, signal: AbortSignal) => Promise<AddedDocument>,
    afterwards?: () => Promise<void>,
  ): string {
    const key = newRequestId();
    const abort = new AbortController();
    this.#aborts.set(key, abort);
    const entry: Incoming = { key, name, size, bytes: 0, documentId: "", error: undefined };
    this.#set({ incoming: [entry, ...this.view.get().incoming] });
    const run = async (): Promise<void> => {
      abort.signal.throwIfAborted(); // cancelled while it waited
      const { signal } = abort;
      const request = { ...(await prepare(key, signal)), requestId: key };
      const { document } = await retryCall(() => this.#deps.documents.addDocument(request, { signal }), {
        signal,
      });
      if (!document) return;
      this.#list.put(document);
      this.#publish();
      this.#change(key, { documentId: document.documentId });
      await afterwards?.();
    };
    this.#uploads
      .run(run)
      .catch((thrown: unknown) => {
        if (!abort.signal.aborted) this.#change(key, { error: toClientError(thrown) });
      })
      .finally(() => this.#aborts.delete(key));
    return key;
  }

  async #ask(documentId: string): Promise<void> {
    try {
      const { document } = await this.#deps.documents.getDocument({ documentId, partToken: BEYOND });
      if (document) this.#list.put(document);
    } catch (thrown) {
      if (toClientError(thrown).code === ErrorCode.NOT_FOUND) this.#list.remove(documentId);
    }
  }

  async #read(read: () => Promise<void>): Promise<void> {
    try {
      await read();
      this.#set({ state: "ready", error: undefined });
      this.#publish();
    } catch (thrown) {
      this.#set({ state: this.#list.size > 0 ? "ready" : "failed", error: toClientError(thrown) });
    }
  }

  #onWatch({ events, reload }: WatchResponse): void {
    if (reload && this.#isWanted) void this.reload();
    for (const { event } of events) {
      if (event.case === "document") this.#list.put(event.value);
      else if (event.case === "documentDeleted") this.#list.remove(event.value);
      else continue;
      this.#publish();
    }
  }

  #publish(): void {
    this.#set({ documents: this.#list.items, hasMore: this.#list.hasMore });
  }

  #change(key: string, change: Partial<Incoming>): void {
    const incoming = this.view
      .get()
      .incoming.map((each) => (each.key === key ? { ...each, ...change } : each));
    this.#set({ incoming });
  }

  #set(change: Partial<DocumentsView>): void {
    this.view.set({ ...this.view.get(), ...change });
  }
}

/** True for what has failed and whose file or address is still known. */
export function canRetry({ status, url, fileId }: SourceDocument): boolean {
  return status === DocumentStatus.FAILED && (url !== "" || fileId !== "");
}

/** True while a document can still become ready. */
export function isIndexing({ status }: SourceDocument): boolean {
  return status === DocumentStatus.INDEXING || status === DocumentStatus.UNSPECIFIED;
}

function addedMs({ createTime }: SourceDocument): number {
  return createTime ? Number(createTime.seconds) * 1000 + createTime.nanos / 1e6 : Number.MAX_SAFE_INTEGER;
}

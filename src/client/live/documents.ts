/**
 * The caller's documents and those on their way in. Owns the list as far as it was read, and the uploads of this tab; the
 * list follows the events of the service.
 */
import type { Client } from "@connectrpc/connect";
import type {
  AddDocumentRequest,
  DocumentService,
  FileService,
  WatchResponse,
} from "../../../gen/turnwire/chat/v1/chat_service_pb.js";
import { DocumentStatus, type SourceDocument } from "../../../gen/turnwire/chat/v1/types_pb.js";
import { toClientError, type TurnwireClientError } from "../errors.js";
import { newRequestId } from "../request-id.js";
import { uploadFile, type UploadSource } from "../upload-file.js";
import type { HubLink } from "./hub-link.js";
import { Observable } from "./observable.js";

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

const PAGE_SIZE = 50;

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
  #nextPageToken = "";
  #isWanted = false;

  constructor(deps: DocumentsDeps) {
    this.#deps = deps;
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

  async reload(): Promise<void> {
    await this.#read("");
  }

  async loadMore(): Promise<void> {
    if (this.#nextPageToken) await this.#read(this.#nextPageToken);
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

  /** Takes an upload out: stops it while it runs, forgets it when it has failed. */
  cancelIncoming(key: string): void {
    this.#aborts.get(key)?.abort();
    this.#set({ incoming: this.view.get().incoming.filter((each) => each.key !== key) });
  }

  /** Stops the indexing of a document. */
  async cancel(documentId: string): Promise<void> {
    const { document } = await this.#deps.documents.cancelDocument({ documentId });
    if (document) this.#put(document);
  }

  async delete(documentId: string): Promise<void> {
    await this.#deps.documents.deleteDocument({ documentId });
    this.#set({ documents: this.view.get().documents.filter((each) => each.documentId !== documentId) });
  }

  #add(
    name: string,
    size: number,
    prepare: (key: string, signal: AbortSignal) => Promise<{ title: string; source: DocumentSource }>,
  ): string {
    const key = newRequestId();
    const abort = new AbortController();
    this.#aborts.set(key, abort);
    const entry: Incoming = { key, name, size, bytes: 0, documentId: "", error: undefined };
    this.#set({ incoming: [entry, ...this.view.get().incoming] });
    const run = async (): Promise<void> => {
      const request = await prepare(key, abort.signal);
      const { document } = await this.#deps.documents.addDocument(
        { ...request, requestId: key },
        { signal: abort.signal },
      );
      if (!document) return;
      this.#put(document);
      this.#change(key, { documentId: document.documentId });
    };
    run()
      .catch((thrown: unknown) => {
        if (!abort.signal.aborted) this.#change(key, { error: toClientError(thrown) });
      })
      .finally(() => this.#aborts.delete(key));
    return key;
  }

  async #read(pageToken: string): Promise<void> {
    try {
      const page = await this.#deps.documents.listDocuments({ pageSize: PAGE_SIZE, pageToken });
      this.#nextPageToken = page.nextPageToken;
      const before = pageToken ? this.view.get().documents : [];
      const known = new Set(before.map(({ documentId }) => documentId));
      this.#set({
        state: "ready",
        error: undefined,
        documents: [...before, ...page.documents.filter(({ documentId }) => !known.has(documentId))],
        hasMore: page.nextPageToken !== "",
      });
    } catch (thrown) {
      const state = this.view.get().documents.length > 0 ? "ready" : "failed";
      this.#set({ state, error: toClientError(thrown) });
    }
  }

  #onWatch({ events, reload }: WatchResponse): void {
    if (reload && this.#isWanted) void this.reload();
    for (const { event } of events) if (event.case === "document") this.#put(event.value);
  }

  #put(document: SourceDocument): void {
    const { documents } = this.view.get();
    const index = documents.findIndex(({ documentId }) => documentId === document.documentId);
    this.#set({ documents: index < 0 ? [document, ...documents] : documents.with(index, document) });
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

/** True while a document can still become ready. */
export function isIndexing({ status }: SourceDocument): boolean {
  return status === DocumentStatus.INDEXING || status === DocumentStatus.UNSPECIFIED;
}
